"""A disk in memory, whose power can fail. It keeps apart what was written and what would survive.

A change is pending until it is synced, and a power cut may lose any subset of the pending ones (`Pending`):

kind    made durable by     if it is lost
sector  `sync` of the file  the sector holds its newest surviving version, at the worst what was last synced (or zeros)
size    `sync` of the file  the file has its newest surviving size; what lies beyond is gone for good
create  directory `sync`    the file is not there, synced or not, unless a later rename of it survived
rename  directory `sync`    the file has its old name, and a file it replaced is back
link    directory `sync`    the file has not got that name
unlink  directory `sync`    the file is back

Several directories can stand on one disk (`beside`): files can have a name in each, and they lose power together. A
sector written twice since the last sync is pending twice: the kernel may have written back in between, so each
version can be what survives. Changes of names are atomic and a file never has two names in one directory. Those that
survive apply in their order; they can be any subset or, with `ordered=True`, just a prefix of each directory's, which
is what the journal of ext4 gives.

Copies share their sectors until one of them writes, so that thousands can be taken."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Collection, Iterator
from itertools import pairwise
from typing import Literal, NamedTuple

from ..base.errors import DiskError
from .real import disk_error, link_error
from .seam import SECTOR_BYTES, Buffer, Directory


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


Survivors = Collection[Pending] | Callable[[Pending], bool] | random.Random
Junk = Callable[[str, int, bytes], bytes]
"""What a lost sector holds, given the file's name, the sector's index and its last synced content."""


class _Node:
    """The content of a file. A sector that is missing in *sectors* holds zeros, as do the bytes beyond the size."""

    def __init__(self, number: int, name: str, sector_bytes: int) -> None:
        self.number = number
        self.name = name
        self.size = 0
        self.zeros = bytes(sector_bytes)
        self.sectors: dict[int, bytes] = {}
        # Since the last sync, oldest first: (0, what was synced), then (operation, what it wrote) for each write.
        self.versions: dict[int, list[tuple[int, bytes]]] = {}
        self.sizes: list[tuple[int, int]] = []
        self.unsyncable: set[int] = set()
        self._shared = False

    def copy(self) -> _Node:
        twin = _Node.__new__(_Node)
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
        whole = b"".join([get(index, zeros) for index in range(first, -(-end // unit))])
        return whole[offset - first * unit : end - first * unit]

    def write(self, operation: int, offset: int, data: Buffer) -> None:
        if not data:
            return
        self._own()
        unit, end = len(self.zeros), offset + len(data)
        for index in range(offset // unit, -(-end // unit)):
            start = index * unit
            low, high = max(offset, start), min(end, start + unit)
            old = self.sectors.get(index, self.zeros)
            new = old[: low - start] + data[low - offset : high - offset] + old[high - start :]
            self.versions.setdefault(index, [(0, old)]).append((operation, new))
            self.sectors[index] = new
            self.unsyncable.discard(index)
        if end > self.size:
            self.sizes = self.sizes or [(0, self.size)]
            self.sizes.append((operation, end))
            self.size = end

    def sync(self) -> None:
        self.versions = {index: self.versions[index] for index in self.unsyncable}
        self.sizes = []

    def forget(self) -> None:
        """What passes for clean and is not on the disk is gone; what was last synced shows again."""
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
        zeros = self.zeros
        return hash((self.size, frozenset([item for item in self.sectors.items() if item[1] != zeros])))

    def after_power_cut(self, kept: Collection[Pending], junk: Junk | None) -> _Node:
        twin = self.copy()
        twin.versions, twin.sizes, twin.unsyncable = {}, [], set()
        if not self.versions and not self.sizes:
            return twin
        twin.sectors = dict(self.sectors)
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
        if self._shared:
            self.sectors = dict(self.sectors)
            self.versions = {index: list(versions) for index, versions in self.versions.items()}
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


class MemoryFile:
    """An open file. See `seam.File` for the promises."""

    def __init__(self, directory: MemoryDirectory, node: _Node, name: str, writable: bool) -> None:
        self.name = name
        self._directory = directory
        self._node: _Node | None = node
        self._writable = writable

    def size_bytes(self) -> int:
        return self._opened("stat").size

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        node = self._opened(f"read of {size_bytes} bytes at {offset}", offset)
        return node.read(offset, size_bytes)

    def write_at(self, offset: int, data: Buffer) -> None:
        action = f"write of {len(data)} bytes at {offset}"
        node = self._opened(action, offset)
        if not self._writable:
            raise self._directory.refusal(self.name, action, errno.EBADF)
        with self._directory.lock:
            node.write(self._directory.next_operation(), offset, data)
        self._directory.tell(f"write {self.name} {offset}+{len(data)}")

    def sync(self) -> None:
        node = self._opened("fdatasync")
        with self._directory.lock:
            node.sync()
        self._directory.tell(f"sync {self.name}")

    def sync_failed(self) -> None:
        """What Linux does when write-back fails: the sectors pending now pass for clean. Reads still show them, but no
        later sync makes them durable, unless they are written again before it."""
        node = self._opened("fdatasync")
        with self._directory.lock:
            node.unsyncable = set(node.versions)

    def forget(self) -> None:
        node = self._opened("fadvise")
        with self._directory.lock:
            node.forget()

    def is_in_place(self) -> bool:
        return self._directory.leads_to(self.name, self._opened("stat").number)

    def close(self) -> None:
        self._node = None

    def _opened(self, action: str, offset: int = 0) -> _Node:
        if self._node is None or offset < 0:
            raise self._directory.refusal(self.name, action, errno.EINVAL if self._node else errno.EBADF)
        return self._node


class _Listing:
    """The names in one directory."""

    def __init__(self, names: dict[str, int]) -> None:
        self.names = self.synced = names
        self.changes: list[Pending] = []

    def change(self, change: Pending) -> None:
        self.changes.append(change)
        self.names = _renamed(self.names, change)

    def sync(self) -> None:
        self.synced, self.changes = self.names, []

    def held(self) -> set[int]:
        """The files that have a name here, or may have one after a power cut."""
        return {*self.names.values(), *self.synced.values(), *(change.file for change in self.changes)}


class _Disk:
    """What directories on one disk share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.operations = 0
        self.nodes: dict[int, _Node] = {}  # also the unlinked ones, until the directory is synced
        self.listings: dict[str, _Listing] = {}


class MemoryDirectory:
    """A flat directory. *sector_bytes* is what the disk writes whole or not at all.

    `on_operation` is called after each operation that succeeded in changing or syncing something, with a short
    description, by the thread that did it and without a lock: it may take copies. A copy has no hook."""

    def __init__(self, path: str = "/memory", *, sector_bytes: int = SECTOR_BYTES) -> None:
        self.path = path
        self.sector_bytes = sector_bytes
        self.on_operation: Callable[[str], None] | None = None
        self._put_on(_Disk())

    def beside(self, path: str) -> MemoryDirectory:
        """The directory *path* on the same disk."""
        return self._at(path, self._disk)

    @property
    def lock(self) -> threading.Lock:
        return self._disk.lock

    def names(self) -> list[str]:
        return sorted(self._listing.names)

    def free_bytes(self) -> int:
        return 1 << 50

    def create(self, name: str) -> MemoryFile:
        with self.lock:
            if name in self._listing.names:
                raise self.refusal(name, "open", errno.EEXIST)
            number = self.next_operation()
            node = self._disk.nodes[number] = _Node(number, name, self.sector_bytes)
            self._listing.change(Pending(number, "create", number, name, new_name=name))
        self.tell(f"create {name}")
        return MemoryFile(self, node, name, True)

    def open(self, name: str, *, writable: bool = False) -> MemoryFile:
        with self.lock:
            return MemoryFile(self, self._disk.nodes[self._number(name, "open")], name, writable)

    def rename(self, old: str, new: str) -> None:
        with self.lock:
            number = self._number(old, f"rename to {new}")
            self._listing.change(Pending(self.next_operation(), "rename", number, old, new_name=new))
            self._disk.nodes[number].name = new
        self.tell(f"rename {old} {new}")

    def link(self, name: str, target: Directory, new_name: str) -> None:
        action = f"link to {os.path.join(target.path, new_name)}"
        with self.lock:
            number = self._number(name, action)
            if not isinstance(target, MemoryDirectory) or target._disk is not self._disk:
                error = OSError(errno.EXDEV, os.strerror(errno.EXDEV))
                raise link_error(os.path.join(self.path, name), action, error)
            if new_name in target._listing.names:
                raise self.refusal(name, action, errno.EEXIST)
            target._listing.change(Pending(self.next_operation(), "link", number, new_name, new_name=new_name))
        self.tell(f"link {name} {new_name}")

    def link_count(self, name: str) -> int:
        with self.lock:
            number = self._number(name, "stat")
            return sum(list(listing.names.values()).count(number) for listing in self._disk.listings.values())

    def unlink(self, name: str) -> None:
        with self.lock:
            number = self._number(name, "unlink")
            self._listing.change(Pending(self.next_operation(), "unlink", number, name))
        self.tell(f"unlink {name}")

    def sync(self) -> None:
        with self.lock:
            self._listing.sync()
            held = set[int]().union(*(listing.held() for listing in self._disk.listings.values()))
            self._disk.nodes = {number: node for number, node in self._disk.nodes.items() if number in held}
        self.tell("sync directory")

    def pending(self, *, changing: bool = False) -> list[Pending]:
        """Everything a power cut may lose now, oldest first; *changing*: without writes of what was there already."""
        with self.lock:
            changes = [change for listing in self._disk.listings.values() for change in listing.changes]
            sectors = [item for node in self._disk.nodes.values() for item in node.pending(changing)]
            return sorted([*changes, *sectors])

    def fingerprint(self) -> int:
        """The same for two disks, in one process, if the same names have the same content."""
        nodes = self._disk.nodes
        return hash(frozenset([(name, nodes[number].fingerprint()) for name, number in self._listing.names.items()]))

    def after_power_cut(
        self, survivors: Survivors, *, ordered: bool = False, junk: Junk | None = None
    ) -> MemoryDirectory:
        """What the disk holds if of `pending` just *survivors* were written: a collection of them, a predicate, or a
        random number generator that draws first how many, then which. All of it counts as synced."""
        if isinstance(survivors, random.Random):
            share = survivors.random()
            kept = frozenset([item for item in self.pending() if survivors.random() < share])
        elif callable(survivors):
            kept = frozenset([item for item in self.pending() if survivors(item)])
        else:
            kept = frozenset(survivors)
        with self.lock:
            disk = _Disk()
            disk.operations = self._disk.operations
            for path, listing in self._disk.listings.items():
                names = listing.synced
                for change in listing.changes:
                    if change in kept:
                        names = _renamed(names, change)
                    elif ordered:
                        break
                disk.listings[path] = _Listing(names)
                for name, number in names.items():
                    if number not in disk.nodes:
                        disk.nodes[number] = self._disk.nodes[number].after_power_cut(kept, junk)
                    disk.nodes[number].name = name
        return self._at(self.path, disk)

    def after_kill(self) -> MemoryDirectory:
        """What the next process finds: everything written is there, and what was pending still is."""
        with self.lock:
            disk = _Disk()
            disk.operations = self._disk.operations
            for path, listing in self._disk.listings.items():
                twin = disk.listings[path] = _Listing(listing.synced)
                twin.names, twin.changes = listing.names, list(listing.changes)
            disk.nodes = {number: node.copy() for number, node in self._disk.nodes.items()}
        return self._at(self.path, disk)

    def leads_to(self, name: str, number: int) -> bool:
        """Whether *name* is that of the file with *number*."""
        return self._listing.names.get(name) == number

    def next_operation(self) -> int:
        self._disk.operations += 1
        return self._disk.operations

    def tell(self, operation: str) -> None:
        if self.on_operation:
            self.on_operation(operation)

    def refusal(self, name: str, action: str, code: int) -> DiskError:
        return disk_error(os.path.join(self.path, name), action, OSError(code, os.strerror(code)))

    def _number(self, name: str, action: str) -> int:
        if name not in self._listing.names:
            raise self.refusal(name, action, errno.ENOENT)
        return self._listing.names[name]

    def _at(self, path: str, disk: _Disk) -> MemoryDirectory:
        directory = MemoryDirectory(path, sector_bytes=self.sector_bytes)
        directory._put_on(disk)
        return directory

    def _put_on(self, disk: _Disk) -> None:
        self._disk = disk
        self._listing = disk.listings.setdefault(self.path, _Listing({}))


def _renamed(names: dict[str, int], change: Pending) -> dict[str, int]:
    """*names* after *change*, also where a change before it was lost. The dict is new: copies share the old one."""
    changed = {name: number for name, number in names.items() if number != change.file and name != change.name}
    if change.new_name:
        changed[change.new_name] = change.file
    return changed
