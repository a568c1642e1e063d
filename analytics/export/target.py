"""The target directory of an export: its identity, and the lock that limits writing to one process at a time.

Our files in it, except the table, are in `_cairnmq`: readers of Parquet ignore names with a leading underscore.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from ...base.disk.file_lock import lock_file
from ...base.disk.real import RealDirectory, disk_error, disk_errors
from ...base.errors import CairnError, ForeignStore, StoreInUse
from ...base.private_files import make_private_directories, open_private
from ...base.remote_paths import is_remote
from ...base.typed_json import JsonFormat, decode_json

T = TypeVar("T")
OWN = "_cairnmq"
_IDENTITY = "export.json"
_FORMAT = 1
_ANOTHER = "name another directory"
_UNFIT = {"delta": "[]%\\", "iceberg": "#?"}
"""Characters that the libraries of a format misinterpret in a path: they panic, write elsewhere, or can't read it."""


@dataclass(frozen=True)
class ExportIdentity:
    """The identity of an export. It never changes."""

    kind: str
    """The format of the table: parquet, delta or iceberg."""
    log: str
    """The log's UUID, in hexadecimal digits."""
    container_bytes: int
    columns: tuple[str, ...]
    partition: tuple[str, ...]


class Target:
    """A directory, locked by this process until `close`."""

    def __init__(self, path: str) -> None:
        """Raises `CairnError` if it is in use, or holds something else."""
        if is_remote(path):
            remedy = "mount it and name the directory, or copy the export there"
            raise CairnError(path, "exports go to file systems only", remedy)
        self.path = os.path.abspath(path)
        self.own = os.path.join(self.path, OWN)
        if os.path.exists(path) and not os.path.isdir(path):
            raise CairnError(path, "not a directory", _ANOTHER)
        names = os.listdir(path) if os.path.isdir(path) else []
        place = os.path.join(self.own, _IDENTITY)
        if any(name != OWN for name in names) and not os.path.exists(place):
            raise ForeignStore(path, f"not empty ({min(names)!r} is in it), and no export", _ANOTHER)
        with disk_errors(self.own, "create"):
            make_private_directories(self.own)
        for directory in (self.path, os.path.dirname(self.path)):
            RealDirectory(directory).sync()
        lock = lock_file(os.path.join(self.own, "lock"))
        if lock is None:
            raise StoreInUse(self.path, "another export is writing there", "wait for it, or name another one")
        self._lock = lock
        try:
            self.identity = _identity(place)
        except BaseException:
            self.close()
            raise

    def settle(self, wanted: ExportIdentity) -> None:
        """Make it the target of *wanted*, or see that it is. Raises `ForeignStore` if it is another's."""
        found = self.identity
        if found is None:
            write_json(os.path.join(self.own, _IDENTITY), {"format": _FORMAT, **asdict(wanted)})
            self.identity = wanted
            return
        if found.log != wanted.log:
            raise ForeignStore(self.path, f"the export of another log, {found.log}; this is {wanted.log}", _ANOTHER)
        for name, is_so, asked in (
            ("its format", found.kind, wanted.kind), ("columns", found.columns, wanted.columns),
            ("partitioned by", found.partition, wanted.partition),
            ("container size", found.container_bytes, wanted.container_bytes),
        ):  # fmt: skip
            if is_so != asked:
                reason = f"an export with another choice ({name}: {_reported(is_so)}, not {_reported(asked)})"
                raise ForeignStore(self.path, reason, f"leave that out, or {_ANOTHER}")

    def close(self) -> None:
        self._lock.close()


def check_fits(path: str, kind: str) -> None:
    """Raises `CairnError` if a table of that format can't be at *path*. Looks at the name alone."""
    complete = os.path.abspath(path)
    unfit = next((one for one in complete if one in _UNFIT.get(kind, "")), None)
    if unfit is not None:
        reason = f"the library for {kind} can't have {unfit!r} in the path of a table"
        raise CairnError(complete, reason, f"{_ANOTHER}, or export --format parquet")


def _reported(value: object) -> str:
    return (",".join(value) or "none") if isinstance(value, tuple) else str(value)


def _identity(path: str) -> ExportIdentity | None:
    found = read_json(path, JsonFormat)
    if found is None:
        return None
    if found.format > _FORMAT:
        raise ForeignStore(path, f"an export of format {found.format}", "use a newer version")
    return read_json(path, ExportIdentity)


def unreadable(path: str, reason: str) -> CairnError:
    """The error for a progress file that can't be read."""
    return CairnError(path, f"can't be read: {reason}", "restore it, or export into another directory")


def read_json(path: str, kind: type[T]) -> T | None:
    """The value in the file; None if there is no file. Raises `CairnError`."""
    try:
        with open(path, "rb") as file:
            return decode_json(file.read(), kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise disk_error(path, "read", error) from error
    except ValueError as error:
        raise unreadable(path, str(error)) from error


def write_json(path: str, value: dict[str, Any]) -> None:
    """Writes *value* atomically: after a power cut the file has the old or the new content. Raises `DiskError`."""
    half = path + ".half"
    try:
        with open(half, "w", encoding="utf-8", opener=open_private) as file:
            json.dump(value, file, separators=(",", ":"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(half, path)
        RealDirectory(os.path.dirname(path)).sync()
    except OSError as error:
        with suppress(OSError):
            os.unlink(half)
        raise disk_error(path, "write", error) from error
