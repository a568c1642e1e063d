"""The disk seam: the smallest file system the journal needs.

Two kinds of promise, as a POSIX file system gives them: `File.sync` makes the bytes written so far survive a power cut,
`Directory.sync` does so for names (create, rename, link, unlink). Without a sync any subset of the changes may survive.

A failed operation raises `DiskError` (`DiskFull` for lack of space). A failed `sync` is final for the file: what was
written since the last good one may or may not be on the disk, and a second `sync` proves nothing.
"""

from __future__ import annotations

from typing import Protocol

SECTOR_BYTES = 512
"""The unit that a disk writes atomically."""

Buffer = bytes | bytearray | memoryview


class ReadableFile(Protocol):
    """An open file that is only read."""

    name: str

    def size_bytes(self) -> int: ...

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """The bytes at *offset*, fewer only where the file ends."""

    def close(self) -> None: ...


class File(ReadableFile, Protocol):
    """An open file addressed by byte offset. One thread may write; others may read other ranges meanwhile."""

    def write_at(self, offset: int, data: Buffer) -> None:
        """Write all of *data*, extending the file where needed; on `DiskError` any part of it may have been written."""

    def sync(self) -> None: ...

    def forget(self) -> None:
        """Drop clean pages of the file from the page cache: the next reads come from the disk.

        After a failed sync the cache may hold pages that never reached the disk. Dirty pages stay.
        """

    def is_in_place(self) -> bool:
        """Return whether the name of the file still leads to it: it was not removed, replaced or unmounted."""


class ReadableDirectory(Protocol):
    """A flat directory that is only read."""

    path: str

    def names(self) -> list[str]:
        """The names in it, sorted."""

    def open(self, name: str) -> ReadableFile: ...


class Directory(ReadableDirectory, Protocol):
    """A flat directory."""

    def free_bytes(self) -> int:
        """Return the free space of the file system, in bytes."""

    def create(self, name: str) -> File:
        """A new empty file, opened for writing; `DiskError` if the name is taken."""

    def open(self, name: str, *, writable: bool = False) -> File: ...

    def rename(self, old: str, new: str) -> None:
        """Atomic; replaces *new*."""

    def link(self, name: str, target: Directory, new_name: str) -> None:
        """Call the file *new_name* in *target*, another directory, too; its `sync` makes that durable.

        `CannotLink` if no file can have a name in both, `DiskError` if the new name is taken.
        """

    def link_count(self, name: str) -> int:
        """Return the number of names of the file in all directories."""

    def unlink(self, name: str) -> None: ...

    def sync(self) -> None: ...
