"""A directory of Parquet files in Hive layout, `day=2026-11-21/queue=orders/`.

A commit has several files, and no file system renames several at once. Each file is therefore written and synced under
a name that no reader accepts as Parquet. Then the state, a separate file, is renamed: it lists the exported LSNs, and
the files that are still to be renamed. Then these are renamed. After a crash the next process renames the files that
the state lists, and removes all other temporary files, which belong to no commit. The names are derived from LSNs, so
no row is exported twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from ...base.disk.real import RealDirectory, disk_error, disk_errors, sync_path
from ...base.errors import CairnError
from ..scan.ranges import Ranges
from .rows import Rows, Shape
from .sources import ExportPart
from .target import Target, read_json, unreadable, write_json

_HALF = ".half"
_STATE = "state.json"
_OPEN_FILES = 200
"""The maximum number of files that are open for writing; a queue that exceeds it gets another file later."""
_GROUP_ROWS = 64 << 10, 1 << 20
_COMPRESSION = "zstd"


class ParquetSink:
    """A directory of Parquet files as a target of exports. One process at a time, see `Target`."""

    def __init__(self, target: Target, shape: Shape) -> None:
        """Complete an interrupted commit. Raises `CairnError`."""
        self._path = target.path
        self._shape = shape
        self._place = os.path.join(target.own, _STATE)
        self._is_swept = True
        """False if files may be left that belong to no commit."""
        found = read_json(self._place, dict[str, Any]) or {"exported": [], "moving": [], "is_writing": False}
        try:
            self.exported = Ranges.of(found["exported"])
            moving = [str(name) for name in found["moving"]]
            self._is_writing = bool(found["is_writing"])
        except (KeyError, TypeError, ValueError) as error:
            raise unreadable(self._place, repr(error)) from error
        if self._is_writing or moving:
            self._move(moving)
            self._sweep()

    def write_batch(self, part: ExportPart, rows: Rows) -> None:
        """Write the *rows* of *part* to files, which become visible together."""
        if not self._is_swept:
            self._sweep()
        if not self._is_writing:
            self._is_writing = True
            self._write_state()
        try:
            written = self._write(part, rows)
            _sync(self._path, written)
        except BaseException as error:
            with suppress(CairnError):
                self._sweep()
            if rows.error is not None:
                raise rows.error from None
            if isinstance(error, OSError):
                raise disk_error(self._path, "write", error) from error
            if isinstance(error, pa.ArrowException):
                raise CairnError(self._path, f"Parquet can't be written: {error}", "see this message") from error
            raise
        self.exported = part.added_to(self.exported)
        moving = [os.path.relpath(path, self._path) for path in written]
        self._write_state(moving)
        self._move(moving)

    def close(self) -> None:
        """Remove the state of an unfinished commit, so that the next process has nothing to repair."""
        if self._is_writing and self._is_swept:
            self._is_writing = False
            self._write_state()

    def _write(self, part: ExportPart, rows: Rows) -> list[str]:
        """Write the files of *part* and return their paths.

        They are found by name: a thread of Arrow would release a `file_visitor` after this call, see `Rows.reader`
        (9 of 60 processes that ended at once were aborted).
        """
        start = f".{part.first_lsn:016x}-{part.end_lsn:016x}-"
        schema = self._shape.schema
        fields = [schema.field(name) for name in self._shape.partition]
        form = ds.ParquetFileFormat()
        integers = [
            field.name for field in schema if pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type)
        ]
        texts = [field.name for field in schema if pa.types.is_string(field.type)]
        options = form.make_write_options(
            compression=_COMPRESSION, use_dictionary=texts,
            column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
        )  # fmt: skip
        ds.write_dataset(
            rows.reader(), self._path, format=form, file_options=options, use_threads=False,
            partitioning=ds.partitioning(pa.schema(fields), flavor="hive"),
            basename_template=f"{start}{{i}}{_HALF}",
            existing_data_behavior="overwrite_or_ignore", max_partitions=1 << 20, max_open_files=_OPEN_FILES,
            min_rows_per_group=_GROUP_ROWS[0], max_rows_per_group=_GROUP_ROWS[1],
        )  # fmt: skip
        return self._unfinished(start)

    def _write_state(self, moving: Sequence[str] = ()) -> None:
        state = {"exported": self.exported.runs, "moving": moving, "is_writing": self._is_writing}
        write_json(self._place, state)

    def _move(self, names: Iterable[str]) -> None:
        """Give files the names that readers look for; those that are renamed already, or were removed, are left out."""
        directories = set()
        for name in names:
            path = os.path.join(self._path, name)
            place, base = os.path.split(path)
            final = os.path.join(place, base.removeprefix(".").removesuffix(_HALF) + ".parquet")
            with disk_errors(path, "rename"), suppress(FileNotFoundError):
                os.rename(path, final)
                directories.add(place)
        for place in directories:
            RealDirectory(place).sync()

    def _sweep(self) -> None:
        """Remove the files that belong to no commit. Raises `CairnError`; no commit begins before they are removed."""
        self._is_swept = False
        with disk_errors(self._path, "remove unfinished files in"):
            for path in self._unfinished("."):
                os.unlink(path)
        self._is_swept = True

    def _unfinished(self, start: str) -> list[str]:
        """Return the files of partitions without a name of a Parquet file yet, whose names begin with *start*.

        Partitions may be symbolic links, which Arrow follows. Raises `OSError` for a directory that can't be read.
        """
        folders = [self._path]
        for name in self._shape.partition:
            found = [entry for folder in folders for entry in os.scandir(folder)]
            folders = [entry.path for entry in found if entry.name.startswith(f"{name}=") and entry.is_dir()]
        names = [os.path.join(folder, name) for folder in folders for name in os.listdir(folder)]
        return sorted(path for path in names if os.path.basename(path).startswith(start) and path.endswith(_HALF))


def _sync(top: str, paths: Iterable[str]) -> None:
    """Make files and their names durable, and those of the directories up to *top*."""
    directories = {top}
    for path in paths:
        sync_path(path)
        place = os.path.dirname(path)
        while place != top:
            directories.add(place)
            place = os.path.dirname(place)
    for place in directories:
        RealDirectory(place).sync()
