"""The journal: records are appended in memory, gathered into blocks, and made durable a group at a time.

Threads. One thread at a time, the *appender*, calls `append`, `seal`, `retire` and `flush`; there is no lock per
record. One thread at a time, the *writer*, calls `write_out`; it takes only blocks that were sealed. With a `Flusher`
the writer is its thread; without one, `flush` is both. Any thread may read `durable_lsn`, and what is `stored`.

Group commit. `append` returns the record's LSN at once. `seal` closes the gathered block and gives it to the writer,
which writes all sealed blocks, syncs once, and moves `durable_lsn` up: everything below it survives a power cut. At
most `max_write_buffers` sealed blocks wait; then `append` waits for the writer, or writes itself where there is none.

A power cut leaves every durable block, and any part of what was not yet durable; recovery cuts at the first gap.
"""

from __future__ import annotations

import struct
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import accumulate, repeat

from crc32c import crc32c

from ..base.clock import Clock
from ..base.errors import DiskError, JournalError, JournalFailed
from . import block, holes
from .block import BLOCK_HEAD_BYTES, MAX_RECORDS, padded
from .container import DATA_OFFSET
from .extent import Extent
from .holes import Hole
from .mark import MarkFile
from .meters import Meters, Written
from .pool import Pool
from .record import HEAD, HEAD_BYTES, MAX_PAYLOAD_BYTES, RecordType
from .room import FOR_OPENINGS
from .sealed import Sealed
from .stored import Stored
from .writing import Writing

BLOCK_LIMIT_BYTES = 1 << 20
"""A block is sealed before it grows past this, so that a flush never needs one huge buffer."""
OWN_LSN = -1
"""As a message or transaction id: the record's own LSN, for the first record of an object."""

_pack_head = HEAD.pack
_pack_first = struct.Struct("<HHIII8xQ32s").pack
"""A head of `append_all`: type and flags, number, place, size, CRC, its own LSN, and what all of them share."""
_pack_shared = struct.Struct("<QQQQ").pack
_pack_last = struct.Struct("<HHI8xQQ24sQ").pack
"""A head of `append_last`: type and flags, number, place, the message, that again, what all share, and once more."""
_pack_shared_last = struct.Struct("<QQQ").pack


class Journal:
    """An append-only log, open for writing. `opening.open_log` makes it."""

    def __init__(
        self,
        pool: Pool,
        mark: MarkFile,
        clock: Clock,
        *,
        incarnation: int,
        slot: int,
        prev_lsn: int,
        durable_lsn: int,
        slots: dict[int, int],
        log_holes: list[Hole],
        max_write_buffers: int,
        syncers: int = 0,
        block_flags: int = 0,
    ) -> None:
        """Start writing in the empty *slot*, behind the block at *prev_lsn*.

        *slots*: those of the log so far, ascending, each to the last block before it. *syncers*: see `Writing`.
        *block_flags*: what each block says of itself.
        """
        self.pool = pool
        self.container_bytes = pool.container_bytes
        self.log_id = int.from_bytes(pool.log_uuid.bytes[:8], "little")
        self.incarnation = incarnation
        self.durable_lsn = durable_lsn
        """Every byte below it is on the disk."""
        self.extent = Extent(pool.container_bytes, slots, log_holes, slot)
        """What the log consists of. The appender's."""
        first_bytes = BLOCK_HEAD_BYTES + 2 * HEAD_BYTES + holes.HOLE_BYTES * self.extent.most_of_openings
        self.most_payload_bytes = min(MAX_PAYLOAD_BYTES, self.container_bytes - DATA_OFFSET - first_bytes)
        """What a record takes wherever it is: a container has room for it behind as many holes as there may be."""
        self.durable_block = (0, 0, durable_lsn)
        """The last durable block: its LSN, its checksum, and its end."""
        self.stored = Stored(pool, self.log_id)
        """The durable part, to be read back."""
        self.failure: JournalError | None = None
        self.meters = Meters()
        """What the writer counted."""
        self.wait_for_writer: Callable[[Callable[[], bool]], None] | None = None
        """Set by a `Flusher`: waits while what it is given says that no room is left."""
        self._mark = mark
        self._clock = clock
        self._max_sealed = max_write_buffers
        self._sealed: deque[Sealed] = deque()
        self._write_lock = threading.Lock()
        self._writing = Writing(pool, clock, self.meters, incarnation, syncers)
        self._marked_slot = slot
        self._durable_base = self.extent.base_lsn
        self._heads: list[bytes] = []
        self._payloads: list[bytes] = []
        self._moved_bytes = self._own_bytes = self._notes = 0  # in the block that gathers
        self._flags = self._block_flags = block_flags
        self._begin = self._first_head = self._prev_lsn = 0
        self._limit = self._at = self._place = 0
        self._begin_slot(slot, prev_lsn)

    # ---- the appender's side --------------------------------------------------------------------------------------

    def append(
        self,
        type: int,
        payload: bytes = b"",
        *,
        time_us: int,
        flags: int = 0,
        undo_prev: int = 0,
        message_id: int = 0,
        queue_id: int = 0,
        txn_id: int = 0,
        extra: int = 0,
    ) -> int:
        """Add a record; its LSN. It is durable once `durable_lsn` passes that.

        *payload* is kept by reference until written. Once a write has failed, `seal` raises `JournalFailed`, and so
        does an append that needs a new block.
        """
        return self.append_record(type, payload, time_us, flags, undo_prev, message_id, queue_id, txn_id, extra)

    def append_record(
        self, type: int, payload: bytes, time_us: int, flags: int, undo_prev: int, message_id: int, queue_id: int,
        txn_id: int, extra: int, /,
    ) -> int:  # fmt: skip
        """The same by position, which is faster: for what is done once for each message."""
        size = len(payload)
        at, place = self._at, self._place
        if at + place + size > self._limit or size > MAX_PAYLOAD_BYTES:
            self._make_room(size)
            at, place = self._at, self._place
        lsn = self._first_head + at
        head = _pack_head(
            type, flags, at // HEAD_BYTES, place, size, crc32c(payload) if size else 0, undo_prev,
            lsn if message_id < 0 else message_id, queue_id, lsn if txn_id < 0 else txn_id, time_us, extra,
        )  # fmt: skip
        self._heads.append(head)
        self._at = at + HEAD_BYTES
        if size:
            self._payloads.append(payload)
            self._place = place + size
        return lsn

    def append_all(
        self,
        type: int,
        payloads: Sequence[bytes],
        *,
        time_us: int,
        flags: int = 0,
        queue_id: int = 0,
        txn_id: int = 0,
    ) -> list[int]:
        """Add a record for each payload, all of them the first of a message (`OWN_LSN`); their LSNs.

        The same as so many calls of `append`, at half the cost: what they have in common is packed once.
        """
        sizes = list(map(len, payloads))
        lsns: list[int] = []
        kind, shared = type | flags << 8, _pack_shared(queue_id, txn_id, time_us, 0)
        done = 0
        while done < len(sizes):
            at, limit = self._at, self._limit
            places = list(accumulate(sizes[done:], initial=self._place))
            fit = len(places) - 1
            if at + HEAD_BYTES * (fit - 1) + places[-1] > limit:
                ends = [at + HEAD_BYTES * n + end for n, end in enumerate(places[1:])]
                fit = bisect_right(ends, limit)
            if not fit or max(sizes[done : done + fit]) > MAX_PAYLOAD_BYTES:
                self._make_room(max(sizes[done : done + fit + 1]))
                continue
            first, number = self._first_head + at, at // HEAD_BYTES
            fresh = range(first, first + HEAD_BYTES * fit, HEAD_BYTES)
            some = payloads[done : done + fit]
            self._heads += map(
                _pack_first, repeat(kind), range(number, number + fit), places, sizes[done:], map(crc32c, some), fresh,
                repeat(shared),
            )  # fmt: skip
            self._payloads += some
            self._at = at + HEAD_BYTES * fit
            self._place = places[fit]
            lsns += fresh
            done += fit
        return lsns

    def append_last(
        self, type: int, message_ids: Sequence[int], *, time_us: int, flags: int = 0, queue_id: int = 0
    ) -> list[int]:
        """Add a record without a payload for each message, that undoes the message's first record; their LSNs.

        The same as so many calls of `append` with the id as `undo_prev`, `message_id` and `extra`, at half the cost.
        """
        lsns: list[int] = []
        kind, shared = type | flags << 8, _pack_shared_last(queue_id, 0, time_us)
        while len(lsns) < len(message_ids):
            at, place = self._at, self._place
            fit = min(len(message_ids) - len(lsns), (self._limit - at - place) // HEAD_BYTES + 1)
            if fit <= 0:
                self._make_room(0)
                continue
            first, number = self._first_head + at, at // HEAD_BYTES
            some = message_ids[len(lsns) : len(lsns) + fit]
            numbers = range(number, number + fit)
            self._heads += map(_pack_last, repeat(kind), numbers, repeat(place), some, some, repeat(shared), some)
            self._at = at + HEAD_BYTES * fit
            lsns += range(first, first + HEAD_BYTES * fit, HEAD_BYTES)
        return lsns

    def append_note(self, type: int, payload: bytes, *, time_us: int, queue_id: int, extra: int) -> int:
        """Add a record that nobody waits for: see `has_awaited`; its LSN."""
        lsn = self.append_record(type, payload, time_us, 0, 0, 0, queue_id, 0, extra)
        self._notes += 1
        return lsn

    def unflag(self) -> None:
        """The block that gathers is not to say of itself what blocks say."""
        self._flags = 0

    @property
    def next_lsn(self) -> int:
        """Where the next block begins at the earliest: every record appended so far lies below."""
        return self._begin + (padded(BLOCK_HEAD_BYTES + self._at + self._place) if self._at else 0)

    @property
    def left_bytes(self) -> int:
        """How much may be appended though no container can be made."""
        here = -self.next_lsn % self.container_bytes
        return here + max(0, self.pool.unclaimed - FOR_OPENINGS) * self.container_bytes

    @property
    def next_awaited_lsn(self) -> int:
        """The same, but for notes that would be a block by themselves."""
        return self.next_lsn if self.has_awaited else self._begin

    @property
    def has_awaited(self) -> bool:
        """Whether something has gathered that is no note."""
        return self._at > HEAD_BYTES * self._notes

    @property
    def cut_lsn(self) -> int:
        """Every record so far but notes lies below, and every later one there or behind. The appender's thread."""
        return self._begin + (BLOCK_HEAD_BYTES + self._at if self.has_awaited else 0)

    @property
    def has_unsealed(self) -> bool:
        return self._at > 0

    @property
    def waiting(self) -> int:
        """How many sealed blocks wait for the writer."""
        return len(self._sealed)

    def seal(self) -> bool:
        """Give what has gathered to the writer; whether there was anything."""
        if not self._at:
            return False
        if self.failure is not None:
            raise self.failure
        sealed = Sealed(
            self._begin, self._prev_lsn, self._heads, self._payloads, self._place, self.extent.base_lsn,
            self._moved_bytes, self._own_bytes, self._flags,
        )  # fmt: skip
        self._sealed.append(sealed)
        self._begin_block(sealed.end_lsn, sealed.lsn)
        return True

    def append_own(self, type: RecordType, payload: bytes = b"", *, extra: int = 0) -> int:
        """Add a record of the log about itself; its LSN."""
        lsn = self.append(type, payload, time_us=self._clock.wall_us(), extra=extra)
        self._own_bytes += HEAD_BYTES + len(payload)
        return lsn

    def count_moved(self, size_bytes: int) -> None:
        """The record just appended, of so many bytes, is a copy of an older one."""
        self._moved_bytes += size_bytes

    def flush(self) -> int:
        """Make everything appended so far durable, from this thread; the durable LSN. Not with a `Flusher`."""
        self.seal()
        return self.write_out()

    def retire(self, slots: Iterable[int], *, are_openings: bool = False) -> list[int]:
        """No record in *slots* is needed any more, by records that are durable (checklist E8, E9, E25).

        The base moves up to the first slot that is left; slots behind it become holes. Their containers are free for
        reuse when a record that says so is durable. The last slot, also if it is full to the last byte, and what is not
        there, is passed over.
        What left the log is returned: with too many holes a slot stays until the base passes it. *are_openings*: see
        `Extent.retire`.
        """
        passed, punched = self.extent.retire(slots, are_openings=are_openings)
        if punched:
            self.extent.told(self._append_holes(), punched)
        return passed + punched

    def advance_base(self, base_lsn: int) -> None:
        """Retire every slot below the one that holds *base_lsn*. Never goes back (checklist E25)."""
        self.retire([slot for slot in self.extent.slots if slot < base_lsn // self.container_bytes])

    def container_start(self, lsn: int) -> int:
        """The first LSN of the container that holds *lsn*."""
        return lsn - lsn % self.container_bytes

    def close(self) -> None:
        """Flush, write the closing mark, release the files. The writer must be at rest.

        Raises `JournalFailed` if that fails; after an earlier failure only the files are released.
        """
        try:
            if self.failure is None:
                self.flush()
                self.write_mark(closed=True)
        finally:
            self.abandon()

    def fail(self, error: Exception) -> JournalFailed:
        """Note that nothing can be written any more, because of *error*; what to raise for it."""
        place, reason = (error.place, error.reason) if isinstance(error, DiskError) else ("journal", repr(error))
        failure = JournalFailed(place, reason, "nothing more is confirmed; restart the broker to recover")
        self.failure = failure
        return failure

    def abandon(self) -> None:
        """Release the files and write nothing, as a killed process would."""
        self._writing.close()
        self._mark.close()
        self.pool.close()

    # ---- the writer's side ----------------------------------------------------------------------------------------

    def write_out(self) -> int:
        """Write and sync all sealed blocks; the new durable LSN. Raises `JournalFailed`, for ever, if the disk does."""
        with self._write_lock:
            if self.failure is not None:
                raise self.failure
            if not self._sealed:
                return self.durable_lsn
            try:
                end, base, last = self._write_blocks()
            except DiskError as error:
                raise self.fail(error) from error
            self.durable_lsn = end
            self.durable_block = last
            if self._writing.slot != self._marked_slot:  # so that the loss of whole containers is noticed
                self._marked_slot = self._writing.slot
                with suppress(DiskError):
                    # after a kill: a flush does not wait for it
                    self._write_mark(self._durable_base, closed=False, sync=False)
            self._durable_base = max(base, self._durable_base)  # the mark may have told of a later one
            self._release(end, self._durable_base)
            return end

    def write_mark(self, *, closed: bool = False) -> None:
        """Write down in the mark what is durable now, and where the log begins: so space comes back without traffic."""
        with self._write_lock:
            base = self.extent.base_lsn  # what it rests on is durable
            known = self._mark.mark
            is_stale = known.durable_lsn != self.durable_lsn or known.base_lsn < base or not self._mark.is_synced
            if self.failure is None and (is_stale or closed):
                base = max(base, self._durable_base)
                self._write_mark(base, closed=closed, sync=True)
                if base > known.base_lsn:  # in both places, or rot in one would ask for what is given away now
                    self._write_mark(base, closed=closed, sync=True)
                self._durable_base = base
                self._release(self.durable_lsn, base)

    def look_in_place(self) -> None:
        """Raise `JournalFailed` if the files that are written to are no longer where the next start looks for them."""
        with self._write_lock:
            if self.failure is None and not (self._mark.is_in_place() and self._writing.is_in_place()):
                place = self.pool.directory.path
                raise self.fail(DiskError(place, "it was removed, replaced or unmounted while it was written to"))

    def _write_mark(self, base_lsn: int, *, closed: bool, sync: bool) -> None:
        self._mark.write(
            durable_lsn=self.durable_lsn, base_lsn=base_lsn, incarnation=self.incarnation,
            time_us=self._clock.wall_us(), closed=closed, sync=sync,
        )  # fmt: skip

    def _release(self, end_lsn: int, base_lsn: int) -> None:
        """Free the containers that what is durable now leaves out of the log."""
        gone = self.extent.released(end_lsn, base_lsn)
        if gone:
            self.pool.release(gone)
            self.pool.trim()

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _begin_block(self, lsn: int, prev_lsn: int) -> None:
        self._begin = lsn
        self._prev_lsn = prev_lsn
        self._first_head = lsn + BLOCK_HEAD_BYTES
        self._at = self._place = 0
        self._moved_bytes = self._own_bytes = self._notes = 0
        self._flags = self._block_flags
        self._heads = []
        self._payloads = []
        room = self.container_bytes - lsn % self.container_bytes if lsn % self.container_bytes else 0
        size = min(room, BLOCK_LIMIT_BYTES, BLOCK_HEAD_BYTES + MAX_RECORDS * HEAD_BYTES)
        self._limit = size - BLOCK_HEAD_BYTES - HEAD_BYTES  # for heads and payloads, with one head still to come

    def _make_room(self, payload_bytes: int) -> None:
        """Seal the block, and go on to the next container if the record does not fit behind it."""
        if payload_bytes > MAX_PAYLOAD_BYTES:
            raise _too_long(payload_bytes, MAX_PAYLOAD_BYTES)
        if self._at and self.seal():
            self._wait_for_room()
        if self._at + self._place + payload_bytes > self._limit:
            self._begin_slot(-(-self._begin // self.container_bytes), self._prev_lsn)
            if self._at + self._place + payload_bytes > self._limit:
                raise _too_long(payload_bytes, self.most_payload_bytes)

    def _begin_slot(self, slot: int, prev_lsn: int) -> None:
        """Go on in *slot*; it begins with the holes there are."""
        self.pool.claim()
        self.extent.begin(slot, prev_lsn, self._begin)
        self._begin_block(slot * self.container_bytes + DATA_OFFSET, prev_lsn)
        if self.extent.holes:
            self._append_holes()

    def _append_holes(self) -> int:
        return self.append_own(RecordType.LOG_HOLES, holes.encode(self.extent.holes))

    def _wait_for_room(self) -> None:
        if self._max_sealed and len(self._sealed) >= self._max_sealed:
            if self.wait_for_writer is None:
                self.write_out()
            else:
                self.wait_for_writer(self._is_full)
        if self.failure is not None:
            raise self.failure

    def _is_full(self) -> bool:
        return len(self._sealed) >= self._max_sealed and self.failure is None

    def _write_blocks(self) -> tuple[int, int, tuple[int, int, int]]:
        base = self._durable_base
        end = self.durable_lsn
        last = self.durable_block
        blocks = records = record_bytes = moved_bytes = own_bytes = block_bytes = 0
        for _ in range(len(self._sealed)):
            sealed = self._sealed[0]
            base = sealed.base_lsn
            slot, offset = divmod(sealed.lsn, self.container_bytes)
            file = self._writing.file_for(slot, sealed.prev_lsn, self._durable_base)
            data = block.encode(
                b"".join(sealed.heads), sealed.payloads, sealed.payload_bytes, lsn=sealed.lsn, prev_lsn=sealed.prev_lsn,
                incarnation=self.incarnation, durable_lsn=self.durable_lsn, base_lsn=base, log_id=self.log_id,
                flags=sealed.flags,
            )  # fmt: skip
            file.write_at(offset, data)
            end = sealed.lsn + len(data)
            last = (sealed.lsn, block.CRC.unpack_from(data)[0], end)
            blocks += 1
            records += len(sealed.heads)
            record_bytes += sealed.record_bytes
            moved_bytes += sealed.moved_bytes
            own_bytes += sealed.own_bytes
            block_bytes += len(data)
            self._sealed.popleft()
        begun_s = self._clock.monotonic_s()
        self._writing.sync()
        took_s = self._clock.monotonic_s() - begun_s
        self.meters.flushed(Written(1, blocks, records, record_bytes, moved_bytes, own_bytes, block_bytes), took_s)
        return end, base, last


def _too_long(payload_bytes: int, most_bytes: int) -> JournalError:
    reason = f"a payload of {payload_bytes} bytes, a record takes {most_bytes}"
    return JournalError("journal", reason, "write it in chunks")
