"""Containers: which file holds which slot of the log, which files are free, and where new ones come from.

A container is written with zeros and synced, under a temporary name, before its real name appears: overwriting blocks
that were written before is two to ten times faster to sync than writing into space that was only reserved, and no
disk can be too full for it later. `prepare` does that work ahead of need and off the append path.

A container may be reused once a record that leaves its slot out of the log is *durable* (a base at or beyond its end,
or a hole): a crash must never find an older one that still counts on it. First the archive has it, if there is one. And
while a backup copies the log (`held`), and for a file that has a second name somewhere, it is not reused at all.

Threads: every method takes the pool's lock, and none holds it while a file is read. Only `read` is called per message,
for content that is not in memory.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar
from uuid import UUID

from ..base.errors import DiskError, DiskFull
from ..disk.seam import Directory, File
from . import container
from .archiver import Archiver, Left
from .container import ContainerHead

log = logging.getLogger(__name__)

T = TypeVar("T")
_ZEROS = bytes(1 << 20)
_KEEP_OPEN = 32
LOW_WATER_BYTES = 16 << 20
"""More than may be waiting to be written at any time: blocks of 1 MiB, `max_write_buffers` of them by default."""


class _Reading:
    """A file that is open for reading. It is closed by whoever is last to let go of it."""

    __slots__ = ("file", "retired", "users")

    def __init__(self, file: File) -> None:
        self.file = file
        self.users = 0
        self.retired = False
        """It is not handed out any more."""

    def retire(self) -> None:
        self.retired = True
        if not self.users:
            self.file.close()

    def let_go(self) -> None:
        self.users -= 1
        if self.retired and not self.users:
            self.file.close()


class Pool:
    """The containers of one log."""

    def __init__(
        self,
        directory: Directory,
        container_bytes: int,
        log_uuid: UUID,
        *,
        keep: int,
        held: Callable[[], bool] = lambda: False,
    ) -> None:
        """*keep*: how many containers the log keeps at least, used and free together.

        *held*: whether somebody else counts on the containers that are in the log now.
        """
        self.directory = directory
        self.container_bytes = container_bytes
        self.log_uuid = log_uuid
        self.full: DiskFull | None = None
        """Set while no container can be made ahead of need because the disk is full."""
        self.low: DiskFull | None = None
        """Set while the disk has less room than what is accepted already, and taking messages off, may need."""
        self.made = 0
        """Containers made since the log was opened."""
        self.released = 0
        """Containers that held a slot and left the log since it was opened: what they held is history."""
        self.archiver: Archiver | None = None
        self._keep = keep
        self._held = held
        self._lock = threading.Lock()
        self._used: dict[int, int] = {}  # slot to container number
        self._free: deque[int] = deque()
        self._limbo: list[int] = []  # out of the log, and not free yet
        self._vacant: deque[int] = deque()  # numbers of files that are gone
        numbers = [container.file_number(name) or 0 for name in directory.names()]
        self._next_number = max(numbers, default=0) + 1  # never the name of a file that is left alone
        self._reading: OrderedDict[int, _Reading] = OrderedDict()  # by slot, the latest used last

    def adopt(self, number: int, slot: int | None) -> None:
        """Take over a container found on opening: it holds *slot*, or is free."""
        if slot is None:
            self.give_back(number)
            return
        with self._lock:
            self._used[slot] = number

    def slots(self) -> dict[int, int]:
        """Slot to container number, of the containers in use."""
        with self._lock:
            return dict(self._used)

    @property
    def used_count(self) -> int:
        return len(self._used)

    @property
    def free_count(self) -> int:
        return len(self._free)

    @property
    def limbo_count(self) -> int:
        """How many containers are neither in the log nor free, because a backup holds them."""
        return len(self._limbo)

    def lacks_spare(self) -> bool:
        """Whether `prepare` has something to do."""
        return not self._free or len(self._free) + len(self._used) < self._keep

    def read(self, slot: int, use: Callable[[File], T]) -> T:
        """What *use* makes of the file that holds *slot*; `KeyError` if none does. A few files are kept open.

        `KeyError` also if the container was freed meanwhile, whatever *use* saw: it may have been another slot by then.
        """
        with self._lock:
            reading = self._reading.get(slot) or self._open_for_reading(slot)
            self._reading.move_to_end(slot)
            reading.users += 1
        try:
            return use(reading.file)
        finally:
            with self._lock:
                reading.let_go()
                if slot not in self._used:
                    raise KeyError(slot)

    def open(self, slot: int) -> File:
        """The file that holds *slot*, to be read and closed by the caller; `KeyError` if none does."""
        with self._lock:
            return self.directory.open(container.file_name(self._used[slot]))

    def take(self, slot: int, *, incarnation: int, prev_lsn: int, base_lsn: int, time_us: int) -> File:
        """Start *slot* in a free container, making one if none is ready; the file, for the caller to close.

        The container's head is written, not yet synced.
        """
        with self._lock:
            number = self._free.popleft() if self._free else None
        if number is None:
            number = self._make()
        file = self.directory.open(container.file_name(number), writable=True)
        head = ContainerHead(
            incarnation, self.log_uuid, self.container_bytes, number, slot * self.container_bytes,
            prev_lsn, base_lsn, time_us,
        )  # fmt: skip
        try:
            file.write_at(0, container.encode_head(head))
        except BaseException:
            file.close()
            raise
        with self._lock:
            self._used[slot] = number
        return file

    def prepare(self) -> None:
        """Make one container ahead of need if a spare is lacking. A full disk is remembered in `full`, not raised."""
        if not self.lacks_spare():
            self.full = None
            return
        try:
            made = self._make()
        except DiskFull as error:
            self.full = error
            return
        self.full = None
        with self._lock:
            self._free.append(made)

    def look_at_room(self) -> None:
        """Notice that the disk is nearly full, or has room again: `low` has hysteresis."""
        free = self.directory.free_bytes() + len(self._free) * self.container_bytes
        if free < LOW_WATER_BYTES:
            if self.low is None:
                log.warning("%s: %d MiB are left on the disk: nothing more is stored", self.directory.path, free >> 20)
            self.low = DiskFull(self.directory.path, f"{free >> 20} MiB are left on the disk", "free some space")
        elif self.low is not None and free >= 2 * LOW_WATER_BYTES:
            log.warning("%s: there is room on the disk again", self.directory.path)
            self.low = None

    def release(self, slots: Iterable[int]) -> None:
        """Let go of the containers of *slots*, which are durably no longer part of the log."""
        left: list[Left] = []
        with self._lock:
            for slot in slots:
                if slot in self._used:  # a slot may have been skipped without a block
                    left.append(Left(slot, self._used.pop(slot)))
                    self.released += 1
                if slot in self._reading:
                    self._reading.pop(slot).retire()
        if self.archiver is not None:
            self.archiver.take_over(left)
            return
        for _, number in left:
            self.give_back(number)

    def give_back(self, number: int) -> None:
        """The log and the archive are done with file *number*."""
        with self._lock:
            self._limbo.append(number)
        self.settle()

    def settle(self) -> None:
        """Free what was given back, unless it is held."""
        if not self._limbo or self._held():
            return
        with self._lock:
            numbers, self._limbo = self._limbo, []
        for number in numbers:
            with suppress(DiskError):  # else it is in nobody's way; the next opening finds it
                if self.directory.link_count(container.file_name(number)) > 1:
                    self._unlink(number)
                else:
                    self._free.append(number)

    def trim(self) -> None:
        """Give containers back to the file system once more than half of them are free (checklist E62)."""
        while True:
            with self._lock:
                total = len(self._free) + len(self._used)
                if len(self._free) * 2 <= total or total <= self._keep or len(self._free) < 2:
                    return
                surplus = self._free.pop()
            try:
                self._unlink(surplus)
            except DiskError:
                return  # it is in nobody's way; the next opening finds it

    def close(self) -> None:
        with self._lock:
            for reading in self._reading.values():
                reading.retire()
            self._reading.clear()

    def _open_for_reading(self, slot: int) -> _Reading:
        reading = _Reading(self.directory.open(container.file_name(self._used[slot])))
        self._reading[slot] = reading
        if len(self._reading) > _KEEP_OPEN:
            self._reading.popitem(last=False)[1].retire()
        return reading

    def _unlink(self, number: int) -> None:
        self.directory.unlink(container.file_name(number))
        self._vacant.append(number)  # a log that is archived must not run out of numbers

    def _make(self) -> int:
        with self._lock:
            number = self._vacant.popleft() if self._vacant else self._next_number
            self._next_number = max(self._next_number, number + 1)
        name = container.file_name(number)
        temporary = name + ".new"
        file = self.directory.create(temporary)
        try:
            for offset in range(0, self.container_bytes, len(_ZEROS)):
                file.write_at(offset, _ZEROS[: self.container_bytes - offset])
            file.sync()
            self.directory.rename(temporary, name)
            self.directory.sync()
        except DiskError:
            self._discard(temporary)
            self._discard(name)
            raise
        finally:
            file.close()
        with self._lock:
            self.made += 1
        return number

    def _discard(self, name: str) -> None:
        """A container that could not be made leaves no file behind, or the disk would stay full."""
        try:
            if name in self.directory.names():
                self.directory.unlink(name)
        except DiskError:
            pass  # the error that led here is the one to report
