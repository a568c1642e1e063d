"""Containers: which file holds which slot of the log, which files are free, and where new ones come from.

A container is filled with zeros and synced under a temporary name before it gets its final name. Syncing overwritten
blocks is two to ten times faster than syncing writes into space that was only reserved. A full disk cannot prevent such
writes later. `prepare` does this work in advance and off the append path.

A container may be reused once a record that leaves its slot out of the log is *durable* (a base at or beyond its end,
or a hole). After a crash no older record may depend on the container. An archive, if configured, receives it first.
While a backup copies the log, or a reader still needs the content, the container is in `limbo`. A file that has a
second name is never reused.

Messages are admitted (`find_room`) only while the number of free containers exceeds the reserve. A full disk therefore
stops neither admitted messages nor dequeues: see `room`.

Threads: every method takes the pool's lock, and none holds it while a file is read. Only `read` is called per message,
for content that is not in memory.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from typing import TypeVar
from uuid import UUID

from ...base.disk.seam import Directory, File
from ...base.errors import DiskError, DiskFull
from ..format import container
from ..format.container import ContainerHead
from . import space_reserve as room
from .archiver import Archiver, Left
from .file_copies import new_file
from .held_containers import NO_SLOT_HELD, HeldContainers, Holds, Keeper
from .open_files import OpenFiles

log = logging.getLogger(__name__)

T = TypeVar("T")


_ZEROS = bytes(16 << 10)
"""Longer writes would make larger folios, and each flush would count as a write of a whole folio."""
_FULL = "can't create a container: durable messages are rejected; free some space"


class ContainerPool:
    """The containers of one log."""

    def __init__(
        self,
        directory: Directory,
        container_bytes: int,
        log_uuid: UUID,
        *,
        keep: int,
        holds: Holds | None = None,
        keeper: Keeper | None = None,
        reserve_bytes: int = room.RESERVE_BYTES,
    ) -> None:
        """*keep*: the minimum number of containers of the log, used and free together.

        *holds*: reports whether the containers that are in the log now are held, for example by a backup. *keeper*:
        decides which containers that left the log are not reused.
        """
        self.directory = directory
        self.container_bytes = container_bytes
        self.log_uuid = log_uuid
        self.full: DiskFull | None = None
        """Set while the containers that are wanted can't be made because the disk is full."""
        self.low: DiskFull | None = None
        """Set while the disk is nearly full."""
        self.has_room = False
        """True while messages are certain to be stored without a call of `find_room`, up to `batch_bytes` at once."""
        self.batch_bytes = reserve_bytes // room.BATCHES
        """The bytes of a batch of messages that the reserve has room for."""
        self.reserved_bytes = 0
        """The bytes that were promised to be writable, beside the reserve. See `reserve_bytes`."""
        self.made = 0
        """Containers made since the log was opened."""
        self.released = 0
        """Containers that held a slot and left the log since it was opened: their content is history."""
        self.archiver: Archiver | None = None
        self.ring: Callable[[], None] | None = None
        """Called when `prepare` has something to do."""
        self.on_room: Callable[[], None] | None = None
        """Called when messages can be stored again."""
        self._keep = keep
        self._reserve_bytes = reserve_bytes
        self._claimed = 0
        self._refused = False
        self._suspects: set[int] = set()  # numbers of containers whose sectors are in doubt
        self._lock = threading.Lock()
        self._used: dict[int, int] = {}  # slot to container number
        self._free: deque[int] = deque()
        self._limbo = HeldContainers(container_bytes, holds, keeper)
        self._vacant: deque[int] = deque()  # numbers of deleted files
        numbers = [container.file_number(name) or 0 for name in directory.names()]
        self._next_number = max(numbers, default=0) + 1  # never the name of a file that is left alone
        self._open_files = OpenFiles()

    def adopt(self, slot: int, number: int) -> None:
        """Assign *slot* to container *number*; a container that held it before is no longer tracked."""
        with self._lock:
            self._used[slot] = number

    def slots(self) -> dict[int, int]:
        """Slot to container number, of the containers in use."""
        with self._lock:
            return dict(self._used)

    @property
    def free_count(self) -> int:
        return len(self._free)

    @property
    def limbo_count(self) -> int:
        """Number of containers that are neither in the log nor free, but held or kept. They do not count as reserve."""
        return len(self._limbo)

    @property
    def is_full(self) -> bool:
        """Return whether new messages are to be refused. Admitted ones can still be written."""
        return self.full is not None or self.low is not None

    @property
    def unclaimed(self) -> int:
        """Number of free containers that no slot was begun for."""
        return len(self._free) - self._claimed

    @property
    def spare(self) -> int:
        """Number of unclaimed containers beyond the reserve; negative while the reserve is in use."""
        promised = -(-self.reserved_bytes // self.container_bytes)
        return self.unclaimed - room.reserve(self.container_bytes, len(self._used), self._reserve_bytes) - promised

    def room_bytes(self) -> int:
        """Return how many more bytes the disk and the free containers can store."""
        try:
            free_bytes = self.directory.free_bytes()
        except DiskError:
            return 0
        left_bytes = free_bytes + max(self.spare, 0) * self.container_bytes
        return max(0, left_bytes - room.low_water(self.container_bytes))

    @property
    def in_need(self) -> bool:
        """Return whether the disk is full and the reserve in use, so that all possible space must be reclaimed."""
        return self.full is not None and self.spare < 0

    def lacks_spare(self) -> bool:
        """Return whether `prepare` has to make a container."""
        return self.spare < (room.SPARES_TO_RESUME if self.full else room.SPARES) or self._lacks_first()

    def claim(self) -> None:
        """Note that a slot is begun, and will need a container."""
        with self._lock:
            self._claimed += 1
        self.has_room = False
        if self.ring is not None and self.lacks_spare():
            self.ring()

    def reserve_bytes(self, size_bytes: int) -> None:
        """Keep *size_bytes* writable in addition to the reserve, instead of the previous size."""
        self.reserved_bytes = size_bytes
        self.has_room = False

    def find_room(self, size_bytes: int = 0) -> DiskFull | None:
        """Return the reason why no message can be stored now; None if one can.

        Called before each batch of messages for which `has_room` and `batch_bytes` do not answer.

        While the reserve is in use, a container is created synchronously in the calling thread, so that admitted
        messages never depend on the reserve. The same applies to containers that a batch of *size_bytes* needs beyond
        the share of the reserve for one batch. This happens only if traffic fills containers faster than `prepare`
        creates them. Messages then wait for the disk. The alternative would be to reject them.
        """
        self.has_room = True  # before the look: another thread that takes room during it resets this
        refusal = self._find_room(size_bytes)
        if refusal is not None or self.spare < 0 or self.is_full:
            self.has_room = False
        return refusal

    def _find_room(self, size_bytes: int) -> DiskFull | None:
        wanted = 0
        if size_bytes > self.batch_bytes:
            wanted = -(-(size_bytes - self.batch_bytes) // self.container_bytes)
        if self.spare < wanted and self.full is None:
            try:
                if wanted:
                    return self._make_room(wanted)
                self.prepare()
            except DiskError as error:
                self._say("disk.failed", f"no container can be created: {error}", True)  # a caller gets it again
        return self.full or self.low

    def _make_room(self, wanted: int) -> DiskFull | None:
        """See that there are so many spares. Where others would get less than they are left else, none is made."""
        if self.low is None:
            lacking_bytes = (wanted - self.spare) * self.container_bytes
            if self.directory.free_bytes() - lacking_bytes < room.low_water(self.container_bytes):
                reason = f"no space left for {lacking_bytes} bytes at once"
                return DiskFull(self.directory.path, reason, "free some space, or send less at a time, to fewer queues")
        while self.spare < wanted and not self.is_full:
            self._add()
        return self.full or self.low

    def read(self, slot: int, use: Callable[[File], T]) -> T:
        """Return the result of *use* for the file that holds *slot*. A few files are kept open.

        Raises `KeyError` if no file holds the slot, also if the container was freed during the call, as *use* may
        then have read another slot.
        """
        with self._lock:
            reading = self._open_files.borrow(slot) or self._open_files.lend(
                slot, self.directory.open(container.file_name(self._used[slot]))
            )
        try:
            return use(reading.file)
        finally:
            with self._lock:
                reading.let_go()
                if slot not in self._used:
                    raise KeyError(slot)

    def open(self, slot: int) -> File:
        """Return the file that holds *slot*, for the caller to read and close. Raises `KeyError` if none does."""
        with self._lock:
            return self.directory.open(container.file_name(self._used[slot]))

    def take(
        self, slot: int, *, incarnation: int, prev_lsn: int, base_lsn: int, time_us: int, opening: bool = False
    ) -> File:
        """Start *slot*, which was claimed, in a free container or a new one. Return the file, for the caller to close.

        The container's head is written, not yet synced. Raises `DiskFull` rather than take what openings need if this
        is not one.
        """
        number = self._free_or_made(0 if opening else room.FOR_OPENINGS)
        with self._lock:
            self._claimed -= 1
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
        self.has_room = False
        return file

    def begin(self) -> None:
        """Create the minimum number of containers; the others are created later, in the background.

        On a full disk one free container is sufficient; raises `DiskFull` if no container is free.
        """
        if not self._free:
            number = self._free_or_made(0)
            with self._lock:
                self._free.append(number)
        while self._lacks_first() and self.prepare():
            pass

    def _add(self) -> bool:
        """Make a container; return whether it was made. A full disk is recorded in `full`."""
        try:
            made = self._make()
        except DiskFull as error:
            self._say("disk.full", _FULL, self._is_full_by(error))
            return False
        with self._lock:
            self._free.append(made)
        return True

    def _free_or_made(self, left_alone: int) -> int:
        """Return a free container if more than *left_alone* are free, or a new one.

        On a full disk it may be a container that was held so far.
        """
        with self._lock:
            if len(self._free) > left_alone:
                return self._free.popleft()
        try:
            return self._make()
        except DiskFull as error:
            is_news = self._is_full_by(error)
            self.settle()
            with self._lock:
                number = self._free.popleft() if len(self._free) > left_alone else None
            if number is None:
                raise  # the error is complete
            self._say("disk.full", _FULL, is_news)
            return number

    def _is_full_by(self, error: DiskFull) -> bool:
        """Record *error* in `full`; return whether the disk was not known to be full before."""
        is_news = self.full is None
        self.full = error
        self.has_room = False
        self._refused = True
        return is_news

    def _lacks_first(self) -> bool:
        return not self._free or len(self._free) + len(self._used) < self._keep

    def prepare(self) -> bool:
        """Make one container ahead of need if a spare is lacking; return whether one was made.

        A full disk is recorded in `full`, not raised.
        """
        lacking = self.lacks_spare()
        if lacking and not self._add():
            return False
        if not self.lacks_spare():
            self._say("disk.has-room", "containers can be made again", self.full is not None)
            self.full = None
        self._tell_of_room()
        return lacking

    def look_at_room(self) -> None:
        """Update `low` from the free space on the disk, with hysteresis."""
        left = self.directory.free_bytes() + max(self.spare, 0) * self.container_bytes
        if left < room.low_water(self.container_bytes):
            reason = f"{left >> 20} MiB are left on the disk"
            self._say("disk.low", f"{reason}: durable messages are rejected; free some space", self.low is None)
            self.low = DiskFull(self.directory.path, reason, "free some space")
            self.has_room = False
            self._refused = True
        elif self.low is not None and left >= room.high_water(self.container_bytes):
            self._say("disk.has-room", "there is room on the disk again", True)
            self.low = None
        self._tell_of_room()

    def _tell_of_room(self) -> None:
        if self._refused and not self.is_full:
            self._refused = False
            if self.on_room is not None:
                self.on_room()

    def _say(self, event: str, what: str, is_news: bool) -> None:
        if is_news:
            log.warning("%s: %s", self.directory.path, what, extra={"event": event})

    def release(self, slots: Iterable[int]) -> None:
        """Release the containers of *slots*, which are durably no longer part of the log."""
        left: list[Left] = []
        with self._lock:
            for slot in slots:
                if slot in self._used:  # a slot may have been skipped without a block
                    left.append(Left(slot, self._used.pop(slot)))
                    self.released += 1
                self._open_files.forget(slot)
            history = [] if self.archiver is None else [one for one in left if one.number not in self._suspects]
        if self.archiver is not None:
            self.archiver.take_over(history)
        for one in left:
            if one not in history:
                self.give_back(one)

    def give_back(self, left: Left) -> None:
        """Take back a container that the log and the archive no longer need."""
        self._limbo.add(left)
        self.settle()

    def settle(self) -> None:
        """Free the released containers, except those that are held or kept."""
        for number in self._limbo.let_go(self.slots, is_full=self.is_full, in_need=self.in_need):
            with suppress(DiskError):  # the remaining file is harmless; the next opening finds it
                if number in self._suspects:
                    self._put_away(number)
                elif self.directory.link_count(container.file_name(number)) > 1:
                    self._unlink(number)
                else:
                    self._free.append(number)

    def trim(self) -> None:
        """Give containers back to the file system once more than half of them are free (checklist E62)."""
        while True:
            with self._lock:
                total = len(self._free) + len(self._used)
                if len(self._free) * 2 <= total or total <= self._keep or self.spare <= room.SPARES:
                    return
                surplus = self._free.pop()
            try:
                self._unlink(surplus)
            except DiskError:
                return  # it is harmless; the next opening finds it

    def blank(self, file: File, offset: int) -> None:
        """Write zeros from *offset* to the container's end."""
        for at in range(offset, self.container_bytes, len(_ZEROS)):
            file.write_at(at, _ZEROS[: self.container_bytes - at])

    def fresh(self) -> int:
        """Return the number of a free or new container to copy a slot into."""
        number = self._free_or_made(0)
        self.has_room = False
        return number

    def retire(self, number: int) -> None:
        """Remove a container whose sectors are in doubt from the directory, so that they are never used again.

        As soon as it is in no use: what is part of the log leaves that first, and what is held stays as it is. It does
        not go into the archive. On a full disk, where no other one can be made for it, it stays, empty, if it passes a
        trial.
        """
        with self._lock:
            self._suspects.add(number)
            if number in self._used.values():
                return  # `release` will have it
            if number in self._free:
                self._free.remove(number)
        self.has_room = False
        if self._limbo.is_held(in_need=self.in_need):
            self.give_back(Left(NO_SLOT_HELD, number))
        else:
            self._put_away(number)

    def _put_away(self, number: int) -> None:
        self.prepare()
        name = container.file_name(number)
        if self.full is not None and self.directory.link_count(name) == 1 and self._passes(name):
            with self._lock:
                self._suspects.discard(number)
                self._free.append(number)
            return
        self.directory.unlink(name)
        self.directory.sync()
        self._suspects.discard(number)

    def _passes(self, name: str) -> bool:
        """Return whether zeros written to the complete file are read back past the page cache."""
        try:
            with closing(self.directory.open(name, writable=True)) as file:
                self.blank(file, 0)
                file.sync()
                file.forget()
                sizes = range(0, self.container_bytes, len(_ZEROS))
                return not any(any(file.read_at(offset, len(_ZEROS))) for offset in sizes)
        except DiskError:
            return False

    def close(self) -> None:
        with self._lock:
            self._open_files.forget_all()

    def _unlink(self, number: int) -> None:
        self.directory.unlink(container.file_name(number))
        self._vacant.append(number)  # a log that is archived must not run out of numbers

    def _make(self) -> int:
        with self._lock:
            number = self._vacant.popleft() if self._vacant else self._next_number
            self._next_number = max(self._next_number, number + 1)
        with new_file(self.directory, container.file_name(number)) as file:
            self.blank(file, 0)
            file.sync()
        with self._lock:
            self.made += 1
        return number
