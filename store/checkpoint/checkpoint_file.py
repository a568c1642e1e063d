"""The file of a checkpoint: entries in LMDB that change atomically.

A checkpoint is a cache, so whatever is wrong with the file costs time and never data. LMDB trusts its own pages, and
rot in them may bring down the process that reads them: so a process of its own looks through the file first.

The seam that the rest of the checkpoint sees is `CheckpointFile`; LMDB maps its file into memory and can't stand on the
disk seam.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Protocol

import lmdb
from crc32c import crc32c

from ...base.disk.real import RealDirectory
from ...base.errors import DiskError

Entry = tuple[bytes, bytes]
"""A key and a value."""
_FIRST_MAP_BYTES = 64 << 20
_PROBE_TIMEOUT_S = 600.0
_LOOKS = 5
"""The number of attempts to read a file that changes meanwhile: a tool may read beside a broker."""
_DAMAGED_STATUS = 3


class BadCheckpoint(Exception):
    """An unusable checkpoint; recovery then reads the complete log instead."""


class DamagedCheckpoint(BadCheckpoint):
    """An entry that differs from what was written; a crash does not cause that."""


class CheckpointFile(Protocol):
    """Named entries. One thread at a time."""

    def load(self) -> dict[bytes, bytes]:
        """All entries as of the last commit; `BadCheckpoint` if they can't be read."""

    def commit(self, changes: Mapping[bytes, bytes | None], last: Callable[[int], Entry], *, clear: bool) -> None:
        """Change entries (None removes one), in a new file if *clear*; durable on return.

        The result of *last*, called with the resulting number of entries, is added at the end. Raises `BadCheckpoint`
        on failure; the previous commit may then be kept or lost.
        """

    def discard(self) -> None:
        """Remove it all, durably."""


def sealed(key: bytes, body: bytes) -> bytes:
    """An entry's value: *body* behind a checksum that binds it to *key*."""
    return crc32c(body, crc32c(key)).to_bytes(4, "little") + body


def unsealed(key: bytes, value: bytes) -> bytes:
    """Return the body of *value*. Raises `DamagedCheckpoint` if it differs from what was sealed."""
    body = value[4:]
    if crc32c(body, crc32c(key)) != int.from_bytes(value[:4], "little"):
        raise DamagedCheckpoint(f"the checksum of entry {key.hex()} fails")
    return body


_DATA = "data.mdb"


def symbolic_link(path: str) -> str:
    """Return the symbolic link that LMDB would follow: the directory *path*, or the file in it. Empty without a link.
    """
    return next((place for place in (path, os.path.join(path, _DATA)) if os.path.islink(place)), "")


class LmdbFile:
    """Entries in an LMDB environment, in a directory of its own, that is open only while it is read or written."""

    def __init__(self, path: str) -> None:
        self.path = path

    def load(self) -> dict[bytes, bytes]:
        if link := symbolic_link(self.path):
            raise BadCheckpoint(f"{link} is a symbolic link, which is not followed")
        if not os.path.exists(os.path.join(self.path, _DATA)):
            raise BadCheckpoint("not found")
        for _ in range(_LOOKS):
            try:
                with _reading(self.path) as env:
                    begun = env.info()["last_txnid"]
                    try:
                        _probe(self.path)
                        with env.begin() as txn:
                            entries = {bytes(key): bytes(value) for key, value in txn.cursor()}
                    except BadCheckpoint:
                        if env.info()["last_txnid"] == begun:
                            raise
                        continue
                    if env.info()["last_txnid"] == begun:
                        return entries
            except (lmdb.Error, OSError) as error:
                raise BadCheckpoint(f"it can't be read ({error})") from error
        raise BadCheckpoint("it was written while it was read")

    def commit(self, changes: Mapping[bytes, bytes | None], last: Callable[[int], Entry], *, clear: bool) -> None:
        if clear:
            self.discard()  # rather than have LMDB look into what may be rotten
        try:
            with self._opened() as env:
                while True:
                    try:
                        return _commit(env, changes, last)
                    except lmdb.MapFullError:
                        env.set_mapsize(env.info()["map_size"] * 2)
        except (lmdb.Error, OSError) as error:
            raise BadCheckpoint(f"it can't be written ({error})") from error

    def discard(self) -> None:
        if os.path.lexists(self.path):
            shutil.rmtree(self.path, ignore_errors=True)
            with contextlib.suppress(DiskError):
                RealDirectory(os.path.dirname(os.path.abspath(self.path))).sync()

    def _opened(self) -> lmdb.Environment:
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        if link := symbolic_link(self.path):
            raise OSError(errno.ELOOP, "it is a symbolic link", link)
        size_bytes = _FIRST_MAP_BYTES
        with contextlib.suppress(OSError):
            size_bytes = max(size_bytes, 2 * os.path.getsize(os.path.join(self.path, _DATA)))
        # The store's own lock keeps others out. LMDB's is a mapped file with holes: on a full disk it ends the process.
        return lmdb.open(self.path, map_size=size_bytes, mode=0o600, lock=False)


def _commit(env: lmdb.Environment, changes: Mapping[bytes, bytes | None], last: Callable[[int], Entry]) -> None:
    with env.begin(write=True) as txn:
        for key, value in changes.items():
            if value is None:
                txn.delete(key)
            else:
                txn.put(key, value)
        txn.put(*last(txn.stat()["entries"]))


def look_through(path: str) -> None:
    """Read every entry and check it; `BadCheckpoint` or a crash if something is wrong."""
    try:
        with _reading(path) as env, env.begin(buffers=False) as txn:
            for key, value in txn.cursor():
                unsealed(bytes(key), bytes(value))
    except (lmdb.Error, OSError) as error:
        raise BadCheckpoint(f"it can't be read ({error})") from error


def _reading(path: str) -> lmdb.Environment:
    """Open for reading. Without the lock of LMDB a broker may overwrite the data, two commits later at the earliest."""
    return lmdb.open(path, readonly=True, lock=False, create=False)


def _probe(path: str) -> None:
    """Have another process look through the file: should that crash, this one lives."""
    command = [sys.executable, "-c", f"from {__name__} import main; main()", path]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PROBE_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise BadCheckpoint(f"it can't be looked through ({error})") from error
    if done.returncode:
        said = done.stdout.decode(errors="replace").strip().splitlines()
        kind = DamagedCheckpoint if done.returncode == _DAMAGED_STATUS else BadCheckpoint
        raise kind(said[-1] if said else f"reading it ended with status {done.returncode}")


def main() -> None:
    """Check the checkpoint file named by the first argument; the entry point of the separate process."""
    try:
        look_through(sys.argv[1])
    except BadCheckpoint as error:
        print(error)
        raise SystemExit(_DAMAGED_STATUS if isinstance(error, DamagedCheckpoint) else 1) from None


