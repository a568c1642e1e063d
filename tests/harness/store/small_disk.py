"""A disk with a small capacity, and a backup that holds a store."""

from __future__ import annotations

from errno import ENOSPC

from cairnmq.base.disk.seam import Directory
from cairnmq.base.testing.faulty_disk import DiskCall, Fault, FaultyDirectory


class SmallDisk(FaultyDirectory):
    """A disk with a capacity; the test may lower it as if other programs used the space."""

    def __init__(self, inner: Directory, capacity_bytes: int) -> None:
        super().__init__(inner, self._refuse)
        self.capacity_bytes = capacity_bytes

    def free_bytes(self) -> int:
        return max(0, self.capacity_bytes - self.used_bytes())

    def used_bytes(self) -> int:
        used_bytes = 0
        for name in self.inner.names():
            file = self.inner.open(name)
            used_bytes += file.size_bytes()
            file.close()
        return used_bytes

    def _refuse(self, call: DiskCall) -> Fault | None:
        if call.kind != "write" or not call.name.endswith(".new"):
            return None
        return Fault(ENOSPC, 0.5) if self.used_bytes() + call.size_bytes > self.capacity_bytes else None


class Held:
    """A backup that holds the store until the hold is broken."""

    def __init__(self) -> None:
        self.is_there = False
        self.broken = 0

    def is_held(self) -> bool:
        return self.is_there

    def break_holds(self) -> bool:
        self.is_there = False
        self.broken += 1
        return True
