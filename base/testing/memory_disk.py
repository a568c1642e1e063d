"""A disk in memory with simulated power failures. It separates written data from data that survives a power cut.

A change is pending until it is synced, and a power cut may lose any subset of the pending changes (`Pending`):

kind    made durable by     if it is lost
sector  `sync` of the file  the sector holds its newest surviving version, at worst the last synced one (or zeros)
size    `sync` of the file  the file has its newest surviving size; data beyond it is lost
create  directory `sync`    the file does not exist, synced or not, unless a later rename of it survived
rename  directory `sync`    the file has its old name, and a file that it replaced exists again
link    directory `sync`    the file does not have that name
unlink  directory `sync`    the file exists again

Several directories can share one disk (`beside`): a file can have a name in each, and they lose power together. A
sector that was written twice since the last sync is pending twice: the kernel may have written it back in between, so
each version can survive. Changes of names are atomic, and a file never has two names in one directory. Changes that
survive apply in their order. They can be any subset. With `ordered=True` they are a prefix of the changes of each
directory, as with the journal of ext4.

Copies share their sectors until one of them writes, so that thousands of copies are affordable.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Collection

from ..disk.real import disk_error, link_error
from ..disk.seam import SECTOR_BYTES, Buffer, Directory
from ..errors import DiskError
from .sectors import FileNode, Junk, Pending

Survivors = Collection[Pending] | Callable[[Pending], bool] | random.Random


class MemoryFile:
    """An open file. See `seam.File` for the promises."""

    def __init__(self, directory: MemoryDirectory, node: FileNode, name: str, writable: bool) -> None:
        self.name = name
        self._directory = directory
        self._node: FileNode | None = node
        self._writable = writable

    def size_bytes(self) -> int:
        return self._opened("stat").size

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        node = self._node
        if node is None or offset < 0:
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
        """Simulate a failed write-back of Linux: the sectors that are pending now count as clean.

        Reads still return them, but no later sync makes them durable, unless they are written again before it.
        """
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

    def _opened(self, action: str, offset: int = 0) -> FileNode:
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

    def survived(self, kept: Collection[Pending], ordered: bool) -> dict[str, int]:
        """The names after a power cut that of the changes leaves those that are *kept*."""
        names = self.synced
        for change in self.changes:
            if change in kept:
                names = _renamed(names, change)
            elif ordered:
                break
        return names

    def held(self) -> set[int]:
        """The files that have a name here, or may have one after a power cut."""
        return {*self.names.values(), *self.synced.values(), *(change.file for change in self.changes)}


class _Disk:
    """The state that directories on one disk share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.operations = 0
        self.nodes: dict[int, FileNode] = {}  # also the unlinked ones, until the directory is synced
        self.listings: dict[str, _Listing] = {}


class MemoryDirectory:
    """A flat directory. The disk writes *sector_bytes* atomically.

    `on_operation` is called after each successful change or sync, with a short description, by the thread that made it
    and without a lock: it may take copies. `free_bytes` always returns `left_bytes`, regardless of writes. A copy has
    no hook and has free space.
    """

    def __init__(self, path: str = "/memory", *, sector_bytes: int = SECTOR_BYTES) -> None:
        self.path = path
        self.sector_bytes = sector_bytes
        self.on_operation: Callable[[str], None] | None = None
        self.left_bytes = 1 << 50
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
        return self.left_bytes

    def create(self, name: str) -> MemoryFile:
        with self.lock:
            if name in self._listing.names:
                raise self.refusal(name, "open", errno.EEXIST)
            number = self.next_operation()
            node = self._disk.nodes[number] = FileNode(number, name, self.sector_bytes)
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
            if self._listing.changes:
                self._listing.sync()
                held = set[int]().union(*(listing.held() for listing in self._disk.listings.values()))
                self._disk.nodes = {number: node for number, node in self._disk.nodes.items() if number in held}
        self.tell("sync directory")

    def pending(self, *, changing: bool = False) -> list[Pending]:
        """Return all changes that a power cut may lose now, oldest first; *changing*: without writes of equal content.

        """
        with self.lock:
            changes = [change for listing in self._disk.listings.values() for change in listing.changes]
            sectors = [item for node in self._disk.nodes.values() for item in node.pending(changing)]
            return sorted([*changes, *sectors])

    def fingerprint(self) -> int:
        """Return a hash of all names and their content. Equal directories in one process have equal hashes."""
        return _fingerprint([(name, self.node(number)) for name, number in self._listing.names.items()])

    def after_power_cut(
        self, survivors: Survivors, *, ordered: bool = False, junk: Junk | None = None
    ) -> MemoryDirectory:
        """Return the disk after a power cut at which just *survivors* of `pending` were written.

        *survivors*: a collection of them, a predicate, or a random number generator that draws first how many, then
        which. All content of the result counts as synced.
        """
        if isinstance(survivors, random.Random):
            share = survivors.random()
            kept = frozenset([item for item in self.pending() if survivors.random() < share])
        elif callable(survivors):
            kept = frozenset([item for item in self.pending() if survivors(item)])
        else:
            kept = frozenset(survivors)
        with self.lock:
            names = {path: listing.survived(kept, ordered) for path, listing in self._disk.listings.items()}
            return self.made_of(names, lambda number: self.node(number).after_power_cut(kept, junk))

    def made_of(self, names: dict[str, dict[str, int]], content: Callable[[int], FileNode]) -> MemoryDirectory:
        """A disk with these *names* of files in each directory, and of each file its *content*, a copy."""
        disk = _Disk()
        disk.operations = self._disk.operations
        for path, listed in names.items():
            disk.listings[path] = _Listing(listed)
            for name, number in listed.items():
                node = disk.nodes.get(number)
                if node is None:
                    node = disk.nodes[number] = content(number)
                node.name = name
        return self._at(self.path, disk)

    def after_kill(self) -> MemoryDirectory:
        """Return the disk as the next process finds it: with everything written; pending changes are still pending."""
        with self.lock:
            disk = _Disk()
            disk.operations = self._disk.operations
            for path, listing in self._disk.listings.items():
                twin = disk.listings[path] = _Listing(listing.synced)
                twin.names, twin.changes = listing.names, list(listing.changes)
            disk.nodes = {number: node.copy() for number, node in self._disk.nodes.items()}
        return self._at(self.path, disk)

    def power_cut(self, *, changing: bool = False, junk: Junk | None = None) -> PowerCut:
        """Return power cuts of this disk, for many choices of the changes that survive."""
        return PowerCut(self, self.pending(changing=changing), junk)

    def listings(self) -> dict[str, _Listing]:
        return self._disk.listings

    def node(self, number: int) -> FileNode:
        return self._disk.nodes[number]

    def leads_to(self, name: str, number: int) -> bool:
        """Return whether *name* is the name of the file with *number*."""
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


class PowerCut:
    """Power cuts of a disk without further changes, each with another subset of the pending changes that survives.

    A choice is an integer whose bit n is set if the n-th change survives. Parts that choices share are built once.
    """

    def __init__(self, directory: MemoryDirectory, pending: list[Pending], junk: Junk | None) -> None:
        self.pending = pending
        self._directory = directory
        self._junk = junk
        self._of_names = 0
        self._of_files: dict[int, int] = {}  # of each file the bits of what is pending in it
        for n, item in enumerate(pending):
            if item.kind in ("sector", "size"):
                self._of_files[item.file] = self._of_files.get(item.file, 0) | 1 << n
            else:
                self._of_names |= 1 << n
        self._names: dict[int, dict[str, dict[str, int]]] = {}
        self._nodes: dict[tuple[int, int], FileNode] = {}
        self._prints: dict[int, tuple[int, list[tuple[str, int]]]] = {}

    def leaves(self, choice: int) -> MemoryDirectory:
        """Return the disk after the power cut with this *choice*, all of its content synced."""
        return self._directory.made_of(self._listed(choice), lambda number: self._content(number, choice).copy())

    def fingerprint(self, choice: int) -> int:
        """Return the fingerprint of the content of the disk after the choice."""
        bits = choice & self._of_names
        rest = self._prints.get(bits)
        if rest is None:  # the common part of all choices with these names
            files = self._listed(choice)[self._directory.path].items()
            still = [(name, self._content(number, 0)) for name, number in files if number not in self._of_files]
            others = [(name, number) for name, number in files if number in self._of_files]
            rest = self._prints[bits] = _fingerprint(still), others
        return rest[0] + _fingerprint([(name, self._content(number, choice)) for name, number in rest[1]])

    def _listed(self, choice: int) -> dict[str, dict[str, int]]:
        bits = choice & self._of_names
        names = self._names.get(bits)
        if names is None:
            listings, kept = self._directory.listings(), self._kept(bits)
            names = self._names[bits] = {path: listing.survived(kept, False) for path, listing in listings.items()}
        return names

    def _content(self, number: int, choice: int) -> FileNode:
        bits = choice & self._of_files.get(number, 0)
        made = self._nodes.get((number, bits))
        if made is None:
            made = self._directory.node(number).after_power_cut(self._kept(bits), self._junk)
            self._nodes[number, bits] = made
        return made

    def _kept(self, bits: int) -> set[Pending]:
        return {item for n, item in enumerate(self.pending) if bits >> n & 1}


def _fingerprint(files: list[tuple[str, FileNode]]) -> int:
    return sum([hash((name, node.fingerprint())) for name, node in files])


def _renamed(names: dict[str, int], change: Pending) -> dict[str, int]:
    """*names* after *change*, also where a change before it was lost. The dict is new: copies share the old one."""
    changed = {name: number for name, number in names.items() if number != change.file and name != change.name}
    if change.new_name:
        changed[change.new_name] = change.file
    return changed
