"""A wrapper of the disk seam that cuts the power, or simulates a kill of the process, at a chosen call.

That call is lost as a whole, done in part, or completed as the last one. Later calls reach a disk without power and
fail by themselves; after a kill the wire refuses them, so that the data in the kernel does not change.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any, Literal

import pytest

from cairnmq.base.disk.real import RealDirectory, RealFile
from cairnmq.base.disk.seam import Buffer
from cairnmq.base.errors import DiskError
from cairnmq.tools.lab import kernel
from cairnmq.tools.lab.disks import FileSystem

End = Literal["cut", "kill"]
_AT_WRITE = ("before", "half", "after", "after")
_AT_OTHERS = ("before", "before", "after")
_PAGE_BYTES = 4096


class Wire:
    """The path of all calls of the journal to *system*. Thread-safe."""

    def __init__(self, random: Random, system: FileSystem) -> None:
        self.tripped = False
        self.calls = 0
        """The number of calls since the wire was armed."""
        self._random = random
        self._system = system
        self._end: End = "cut"
        self._armed_at = 0
        self._in_block = False
        self._killed = False
        self._writes: list[tuple[str, int, int]] = []
        self._lock = threading.RLock()

    def arm(self, calls: int, end: End, *, in_block: bool = False) -> None:
        """Trip at the *calls*-th call from now; with *in_block*, at the first call from there on that writes a block.

        A block write is one of several sectors of a container. With 0 calls only `trip` trips.
        """
        self.tripped = self._killed = False
        self._in_block = in_block
        self.calls, self._armed_at, self._end = 0, calls, end
        self._writes.clear()

    @property
    def is_kill(self) -> bool:
        """True if the wire kills the process instead of cutting the power."""
        return self._end == "kill"

    def trip(self) -> None:
        with self._lock:
            if self.tripped:
                return
            self.tripped = True
            if self._end == "kill":
                self._killed = True
            else:
                partial_write_back(self._random, self._writes)
                self._system.cut(self._random)

    def call(
        self, place: str, do: Callable[[], None], do_half: Callable[[], None] | None = None, *, in_block: bool = False
    ) -> None:
        if self._killed:
            raise DiskError(place, "the process was killed")
        with self._lock:
            self.calls += 1
            if self.tripped or not self._is_due(in_block):
                how = ""
            else:
                how = self._random.choice(_AT_WRITE if do_half else _AT_OTHERS)
                if how == "half" and do_half:
                    do_half()
                elif how == "after":
                    do()
                self.trip()
        if how == "after":
            return
        if self._killed:
            raise DiskError(place, "the process was killed")
        do()

    def _is_due(self, in_block: bool) -> bool:
        if self._in_block and self._armed_at:
            return in_block and self.calls >= self._armed_at
        return self.calls == self._armed_at

    def wrote(self, path: str, offset: int, size_bytes: int) -> None:
        with self._lock:
            self._writes.append((path, offset, size_bytes))
            del self._writes[:-64]

    def part(self, size_bytes: int) -> int:
        return self._random.randrange(size_bytes + 1)


@contextmanager
def wired(wire: Wire) -> Iterator[None]:
    """Route all calls of `RealFile` and `RealDirectory` that change files through *wire*."""
    write_at, sync, create = RealFile.write_at, RealFile.sync, RealDirectory.create

    def wired_write(self: RealFile, offset: int, data: Buffer) -> None:
        path = self._path

        def half() -> None:
            write_at(self, offset, memoryview(data)[: wire.part(len(data))])

        wire.wrote(path, offset, len(data))
        in_block = len(data) > 4096 and path.endswith(".cairn")
        wire.call(path, lambda: write_at(self, offset, data), half, in_block=in_block)

    def wired_sync(self: RealFile) -> None:
        wire.call(self.name, lambda: sync(self))

    def wired_create(self: RealDirectory, name: str) -> RealFile:
        wire.call(name, lambda: None)
        return create(self, name)

    def through(real: Callable[..., None]) -> Callable[..., None]:
        return lambda self, *args: wire.call(self.path, lambda: real(self, *args))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RealFile, "write_at", wired_write)
        patch.setattr(RealFile, "sync", wired_sync)
        patch.setattr(RealDirectory, "create", wired_create)
        for name in ("rename", "unlink", "sync"):
            method: Any = getattr(RealDirectory, name)
            patch.setattr(RealDirectory, name, through(method))
        yield


def partial_write_back(random: Random, writes: list[tuple[str, int, int]]) -> None:
    """Write back a random part of the pages of *writes* (path, offset, size) to the disk, as the kernel may do."""
    share = random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
    for path, offset, size_bytes in writes:
        with suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                for page in range(offset // _PAGE_BYTES, -(-(offset + size_bytes) // _PAGE_BYTES)):
                    if random.random() < share:
                        kernel.write_back(fd, page * _PAGE_BYTES, _PAGE_BYTES)
            finally:
                os.close(fd)
