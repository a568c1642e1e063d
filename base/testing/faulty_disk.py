"""A disk that fails on demand. It wraps any directory, numbers the calls from 1 and asks a plan about each.

kind        call                   if it fails
list        `Directory.names`      nothing was done
create      `Directory.create`     nothing was done
open        `Directory.open`       nothing was done
rename      `Directory.rename`     nothing was done
link        `Directory.link`       nothing was done
unlink      `Directory.unlink`     nothing was done
sync_names  `Directory.sync`       nothing was done: a later one can still succeed
read        `File.read_at`         nothing was read
write       `File.write_at`        the share of the data that the fault specifies was written
sync        `File.sync`            in memory, pending changes are treated as clean (`MemoryFile.sync_failed`)

All other calls (size, number of names, free space, forget, `is_in_place`, close) never fail and have no number. The
errors are those of `real`, made from the same errno.

To fail at every call in turn, run the workload once without a plan and take the length of `calls`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection
from errno import EIO
from typing import Literal, NamedTuple

from ..disk.real import disk_error, link_error
from ..disk.seam import Buffer, Directory, File
from .memory_disk import MemoryFile

Kind = Literal["list", "create", "open", "rename", "link", "unlink", "sync_names", "read", "write", "sync"]


class DiskCall(NamedTuple):
    """A call about to be made. *name* is the file's, empty where the directory is meant."""

    number: int
    kind: Kind
    name: str
    offset: int = 0
    size_bytes: int = 0


class Fault(NamedTuple):
    """The error of a failed call, as a number of `errno`."""

    errno: int = EIO
    share: float = 0.0
    """The share of a write that is done before it fails: 0.5 is half of the data, 1.0 all of it."""


Plan = Callable[[DiskCall], Fault | None]


def once(number: int, fault: Fault) -> Plan:
    """Call *number* fails, the others are well."""
    return lambda call: fault if call.number == number else None


def ever_after(number: int, fault: Fault, kinds: Collection[Kind] | None = None) -> Plan:
    """Call *number* and every later one fails, or just those of *kinds*: a full disk can still read and unlink."""
    return lambda call: fault if call.number >= number and (kinds is None or call.kind in kinds) else None


class FaultyDirectory:
    """*inner*, except for the calls *plan* has a fault for. The plan may be exchanged at any time; None: no faults."""

    def __init__(self, inner: Directory, plan: Plan | None = None) -> None:
        self.path = inner.path
        self.inner = inner
        self.plan = plan
        self.calls: list[DiskCall] = []
        self._numbers = itertools.count(1)

    def names(self) -> list[str]:
        self.begin("list")
        return self.inner.names()

    def free_bytes(self) -> int:
        return self.inner.free_bytes()

    def create(self, name: str) -> FaultyFile:
        self.begin("create", name)
        return FaultyFile(self, self.inner.create(name))

    def open(self, name: str, *, writable: bool = False) -> FaultyFile:
        self.begin("open", name)
        return FaultyFile(self, self.inner.open(name, writable=writable))

    def rename(self, old: str, new: str) -> None:
        self.begin("rename", old)
        self.inner.rename(old, new)

    def link(self, name: str, target: Directory, new_name: str) -> None:
        self.begin("link", name)
        self.inner.link(name, target.inner if isinstance(target, FaultyDirectory) else target, new_name)

    def link_count(self, name: str) -> int:
        return self.inner.link_count(name)

    def unlink(self, name: str) -> None:
        self.begin("unlink", name)
        self.inner.unlink(name)

    def sync(self) -> None:
        self.begin("sync_names")
        self.inner.sync()

    def begin(
        self,
        kind: Kind,
        name: str = "",
        offset: int = 0,
        size_bytes: int = 0,
        damage: Callable[[Fault], None] | None = None,
    ) -> None:
        """Number the call; if the plan has a fault for it, do the *damage* and raise."""
        call = DiskCall(next(self._numbers), kind, name, offset, size_bytes)
        self.calls.append(call)
        fault = self.plan(call) if self.plan else None
        if fault is None:
            return
        if damage:
            damage(fault)
        place = os.path.join(self.path, name) if name else self.path
        explained = link_error if kind == "link" else disk_error
        raise explained(place, f"{kind} (call {call.number})", OSError(fault.errno, os.strerror(fault.errno)))


class FaultyFile:
    """An open file of a `FaultyDirectory`, numbered together with it."""

    def __init__(self, directory: FaultyDirectory, inner: File) -> None:
        self.name = inner.name
        self._directory = directory
        self._inner = inner

    def size_bytes(self) -> int:
        return self._inner.size_bytes()

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        self._directory.begin("read", self.name, offset, size_bytes)
        return self._inner.read_at(offset, size_bytes)

    def write_at(self, offset: int, data: Buffer) -> None:
        def write_a_part(fault: Fault) -> None:
            self._inner.write_at(offset, data[: int(len(data) * fault.share)])

        self._directory.begin("write", self.name, offset, len(data), write_a_part)
        self._inner.write_at(offset, data)

    def sync(self) -> None:
        def lose_what_is_pending(_: Fault) -> None:
            if isinstance(self._inner, MemoryFile):
                self._inner.sync_failed()

        self._directory.begin("sync", self.name, damage=lose_what_is_pending)
        self._inner.sync()

    def forget(self) -> None:
        self._inner.forget()

    def is_in_place(self) -> bool:
        return self._inner.is_in_place()

    def close(self) -> None:
        self._inner.close()
