"""The content of a file in memory by sector: the current one, and older versions to which a power cut may revert."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import pairwise
from typing import Literal, NamedTuple

from ..disk.seam import Buffer


class Pending(NamedTuple):
    """A change that a power cut may lose. It is the same in a copy, so it can be chosen here and applied there."""

    operation: int
    """The number of the call that made it, counted over the directory and its files."""
    kind: Literal["sector", "size", "create", "rename", "link", "unlink"]
    file: int
    """The file, whatever its name: the number of the call that created it."""
    name: str
    at: int = 0
    """The index of the sector, or the new size in bytes."""
    new_name: str = ""
    """The name the file has afterwards, for a create, a rename or a link."""


Junk = Callable[[str, int, bytes], bytes]
"""The content of a lost sector, given the file's name, the sector's index and its last synced content."""


class FileNode:
    """The content of a file. A sector that is missing in *sectors* holds zeros, as do the bytes beyond the size."""

    def __init__(self, number: int, name: str, sector_bytes: int) -> None:
        self.number = number
        self.name = name
        self.size = 0
        self.zeros = bytes(sector_bytes)
        self.sectors: dict[int, bytes] = {}
        # Since the last sync, oldest first: (0, what was synced), then (operation, what it wrote) for each write.
        self.versions: dict[int, tuple[tuple[int, bytes], ...]] = {}
        self.sizes: list[tuple[int, int]] = []
        self.unsyncable: set[int] = set()
        self._shared = False
        self._print: list[int] = []  # the fingerprint once it was asked for; copies have it, too

    def copy(self) -> FileNode:
        twin = FileNode.__new__(FileNode)
        self._shared = True
        twin.__dict__.update(self.__dict__)
        return twin

    def read(self, offset: int, size_bytes: int) -> bytes:
        end = min(offset + size_bytes, self.size)
        if offset >= end:
            return b""
        unit, get, zeros = len(self.zeros), self.sectors.get, self.zeros
        first = offset // unit
        if end <= (first + 1) * unit:
            return get(first, zeros)[offset - first * unit : end - first * unit]
        complete = b"".join([get(index, zeros) for index in range(first, -(-end // unit))])
        return complete[offset - first * unit : end - first * unit]

    def write(self, operation: int, offset: int, data: Buffer) -> None:
        if not data:
            return
        self._own()
        sectors, versions, zeros = self.sectors, self.versions, self.zeros
        unit, end = len(zeros), offset + len(data)
        indexes = range(offset // unit, -(-end // unit))
        is_aligned = len(indexes) > 8 and offset % unit == end % unit == 0
        is_blank = is_aligned and versions.keys().isdisjoint(indexes) and sectors.keys().isdisjoint(indexes)
        if is_blank and data == bytes(len(data)):  # a new container has a thousand such sectors
            versions.update(dict.fromkeys(indexes, ((0, zeros), (operation, zeros))))
            sectors.update(dict.fromkeys(indexes, zeros))
            indexes = range(0)
        for index in indexes:
            old = sectors.get(index, zeros)
            at = index * unit - offset  # of the sector in *data*
            if at >= 0 and at + unit <= len(data):
                new = bytes(data[at : at + unit])
            else:
                new = old[: max(0, -at)] + data[max(0, at) : at + unit] + old[end - index * unit :]
            versions[index] = (*versions.get(index, ((0, old),)), (operation, new))
            sectors[index] = new
        if self.unsyncable:
            self.unsyncable.difference_update(range(offset // unit, -(-end // unit)))
        if end > self.size:
            self.sizes = self.sizes or [(0, self.size)]
            self.sizes.append((operation, end))
            self.size = end

    def sync(self) -> None:
        self.versions = {index: self.versions[index] for index in self.unsyncable}
        self.sizes = []

    def forget(self) -> None:
        """Drop sectors that count as clean and are not on the disk; reads return their last synced content again."""
        if not self.unsyncable:
            return
        self._own()
        for index in self.unsyncable:
            self.sectors[index] = self.versions.pop(index)[0][1]
        self.unsyncable = set()

    def pending(self, changing: bool) -> Iterator[Pending]:
        for index, versions in self.versions.items():
            for (_, before), (operation, content) in pairwise(versions):
                if not changing or content != before:
                    yield Pending(operation, "sector", self.number, self.name, index)
        for operation, size in self.sizes[1:]:
            yield Pending(operation, "size", self.number, self.name, size)

    def fingerprint(self) -> int:
        if not self._print:
            zeros = self.zeros
            written = [item for item in self.sectors.items() if item[1] != zeros]
            self._print.append(hash((self.size, frozenset(written))))
        return self._print[0]

    def after_power_cut(self, kept: Collection[Pending], junk: Junk | None) -> FileNode:
        twin = self.copy()
        twin.versions, twin.sizes, twin.unsyncable = {}, [], set()
        if not self.versions and not self.sizes:
            return twin
        twin.sectors, twin._print = dict(self.sectors), []
        for index, versions in self.versions.items():
            for operation, content in reversed(versions):
                if not operation and junk:
                    content = junk(self.name, index, content).ljust(len(content), b"\0")[: len(content)]
                if not operation or Pending(operation, "sector", self.number, self.name, index) in kept:
                    twin.sectors[index] = content
                    break
        sizes = self.sizes or [(0, self.size)]
        survived = [size for at, size in sizes[1:] if Pending(at, "size", self.number, self.name, size) in kept]
        twin._truncate(survived[-1] if survived else sizes[0][1])
        return twin

    def _own(self) -> None:
        """Share nothing with a copy any more: something is about to change."""
        self._print = []
        if self._shared:
            self.sectors = dict(self.sectors)
            self.versions = dict(self.versions)
            self.sizes = list(self.sizes)
            self.unsyncable = set(self.unsyncable)
            self._shared = False

    def _truncate(self, size: int) -> None:
        unit = len(self.zeros)
        for index in range(-(-size // unit), -(-self.size // unit)):
            self.sectors.pop(index, None)
        last, tail = divmod(size, unit)
        if tail and last in self.sectors:
            self.sectors[last] = self.sectors[last][:tail].ljust(unit, b"\0")
        self.size = size
