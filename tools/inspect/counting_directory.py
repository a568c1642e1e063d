"""A directory that counts what is read of its files: what a look at a store has cost, exactly."""

from __future__ import annotations

import os

from ...base.disk.real import RealDirectory, RealFile


class CountingDirectory(RealDirectory):
    """A directory that counts the bytes that were read. One thread at a time."""

    read_bytes = 0
    """Bytes that files opened here have given, a byte that was read twice counted twice."""

    def open(self, name: str, *, writable: bool = False) -> RealFile:
        return _CountedFile(self, os.path.join(self.path, name), os.O_RDWR if writable else os.O_RDONLY)


class _CountedFile(RealFile):
    def __init__(self, directory: CountingDirectory, path: str, flags: int) -> None:
        super().__init__(path, flags)
        self._directory = directory

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        found = super().read_at(offset, size_bytes)
        self._directory.read_bytes += len(found)
        return found

    def read_into(self, offset: int, view: memoryview) -> int:
        done = super().read_into(offset, view)
        self._directory.read_bytes += done
        return done
