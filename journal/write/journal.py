"""The journal: records are appended in memory, gathered into blocks, and made durable a group at a time.

Threads. One thread at a time, the *appender*, calls the methods of `Journal`; there is no lock per record. One thread
at a time, the *writer*, calls those of `LogWriter`, which takes only blocks that were sealed. With a `Flusher` the
writer is its thread; without one, `flush` does both. Any thread may use `stored`.

Group commit. `append` returns the record's LSN at once. `seal` closes the open block and hands it to the writer, which
writes all sealed blocks, syncs once, and raises `durable_lsn`: everything below it survives a power cut. At most
`max_write_buffers` sealed blocks wait; then `append` waits for the writer, or writes without a `Flusher`.

A power cut leaves every durable block, and any part of the others; recovery cuts the log at the first gap.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, repeat

from crc32c import crc32c

from ...base.clock import Clock
from ...base.disk.seam import SECTOR_BYTES
from ...base.errors import JournalError
from ..files.container_pool import ContainerPool
from ..files.durable_reads import DurableReads
from ..files.space_reserve import FOR_OPENINGS
from ..format import holes
from ..format.block import BLOCK_HEAD_BYTES, MAX_RECORDS
from ..format.container import DATA_OFFSET
from ..format.holes import Hole
from ..format.log_mark import MarkFile
from ..format.record import HEAD, HEAD_BYTES, MAX_PAYLOAD_BYTES, RecordType
from .log_slots import LogSlots
from .log_writer import LogWriter, SealedBlock

BLOCK_LIMIT_BYTES = 1 << 20
"""A block is sealed before it grows past this, so that a flush never needs one huge buffer."""
OWN_LSN = -1
"""The placeholder for the LSN of the record itself as a message or transaction ID, for the first record of an object.
"""

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
        pool: ContainerPool,
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
        misplaced: Callable[[], str] = lambda: "",
    ) -> None:
        """Start writing in the empty *slot*, behind the block at *prev_lsn*.

        *slots*: those of the log so far, ascending, each to the last block before it. *syncers*: see `Writing`.
        *block_flags*: the flags of each block. *misplaced*: see `LogWriter`.
        """
        self.pool = pool
        self.container_bytes = pool.container_bytes
        self.log_id = int.from_bytes(pool.log_uuid.bytes[:8], "little")
        self.incarnation = incarnation
        self.extent = LogSlots(pool.container_bytes, slots, log_holes, slot)
        """The slots and holes of the log. For the appender only."""
        first_bytes = BLOCK_HEAD_BYTES + 2 * HEAD_BYTES + holes.HOLE_BYTES * self.extent.most_of_openings
        self.most_payload_bytes = min(MAX_PAYLOAD_BYTES, self.container_bytes - DATA_OFFSET - first_bytes)
        """The largest payload that fits into a new container, even after the longest list of holes."""
        self.writer = LogWriter(
            pool, mark, clock, self.extent, incarnation=incarnation, durable_lsn=durable_lsn, syncers=syncers,
            misplaced=misplaced,
        )
        self.stored = DurableReads(pool, self.log_id)
        """The durable part, to be read back."""
        self.wait_for_writer: Callable[[Callable[[], bool]], None] | None = None
        """The hook of a `Flusher` that waits while its argument reports that no room is left."""
        self._clock = clock
        self._max_sealed = max_write_buffers
        self._sealed = self.writer.sealed
        self._heads: list[bytes] = []
        self._payloads: list[bytes] = []
        self._moved_bytes = self._own_bytes = 0  # in the unsealed block
        self.head_bytes = self.note_bytes = 0
        """Bytes of the record heads in the unsealed block, and those of notes among them. Records are awaited if there
        are more heads than notes."""
        self._flags = self._block_flags = block_flags
        self._begin = self._first_head = self._prev_lsn = 0
        self._limit = self._place = 0
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
        """Add a record; return its LSN. It is durable once `durable_lsn` passes that.

        *payload* is kept by reference until written. Once a write has failed, `seal` raises `JournalFailed`, and so
        does an append that needs a new block.
        """
        return self.append_record(type, payload, time_us, flags, undo_prev, message_id, queue_id, txn_id, extra)

    def append_record(
        self, type: int, payload: bytes, time_us: int, flags: int, undo_prev: int, message_id: int, queue_id: int,
        txn_id: int, extra: int, /,
    ) -> int:  # fmt: skip
        """Add a record from positional arguments, like `append` but faster: for operations done once per message."""
        size = len(payload)
        at, place = self.head_bytes, self._place
        if at + place + size > self._limit or size > MAX_PAYLOAD_BYTES:
            self._make_room(size)
            at, place = self.head_bytes, self._place
        lsn = self._first_head + at
        head = _pack_head(
            type, flags, at // HEAD_BYTES, place, size, crc32c(payload) if size else 0, undo_prev,
            lsn if message_id < 0 else message_id, queue_id, lsn if txn_id < 0 else txn_id, time_us, extra,
        )  # fmt: skip
        self._heads.append(head)
        self.head_bytes = at + HEAD_BYTES
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
            at, limit = self.head_bytes, self._limit
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
            self.head_bytes = at + HEAD_BYTES * fit
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
            at, place = self.head_bytes, self._place
            fit = min(len(message_ids) - len(lsns), (self._limit - at - place) // HEAD_BYTES + 1)
            if fit <= 0:
                self._make_room(0)
                continue
            first, number = self._first_head + at, at // HEAD_BYTES
            some = message_ids[len(lsns) : len(lsns) + fit]
            numbers = range(number, number + fit)
            self._heads += map(_pack_last, repeat(kind), numbers, repeat(place), some, some, repeat(shared), some)
            self.head_bytes = at + HEAD_BYTES * fit
            lsns += range(first, first + HEAD_BYTES * fit, HEAD_BYTES)
        return lsns

    def append_hint(
        self, type: int, payload: bytes, *, time_us: int, queue_id: int, extra: int, flags: int = 0
    ) -> int:
        """Add a note, which no operation waits for (see `has_awaited`); return its LSN."""
        lsn = self.append_record(type, payload, time_us, flags, 0, 0, queue_id, 0, extra)
        self.note_bytes += HEAD_BYTES
        return lsn

    def clear_flags(self) -> None:
        """Clear the flags of the unsealed block."""
        self._flags = 0

    @property
    def next_lsn(self) -> int:
        """Lowest LSN at which the next block can begin: every record appended so far lies below."""
        if not self.head_bytes:
            return self._begin
        end_lsn = self._first_head + self.head_bytes + self._place
        return end_lsn + -end_lsn % SECTOR_BYTES

    @property
    def left_bytes(self) -> int:
        """Number of bytes that can be appended without making a container."""
        here = -self.next_lsn % self.container_bytes
        return here + max(0, self.pool.unclaimed - FOR_OPENINGS) * self.container_bytes

    @property
    def next_awaited_lsn(self) -> int:
        """Lowest LSN that all awaited records lie below: `next_lsn`, or the start of a block that has only notes."""
        if self.head_bytes == self.note_bytes:
            return self._begin
        end_lsn = self._first_head + self.head_bytes + self._place
        return end_lsn + -end_lsn % SECTOR_BYTES  # `next_lsn`, without a call

    @property
    def has_awaited(self) -> bool:
        """Return whether the unsealed block contains a record that is not a note."""
        return self.head_bytes > self.note_bytes

    @property
    def cut_lsn(self) -> int:
        """Every record so far but notes lies below, and every later one there or behind. The appender's thread."""
        return self._begin + (BLOCK_HEAD_BYTES + self.head_bytes if self.has_awaited else 0)

    @property
    def has_unsealed(self) -> bool:
        return self.head_bytes > 0

    def seal(self) -> bool:
        """Pass the unsealed block to the writer; return whether it had records."""
        if not self.head_bytes:
            return False
        if self.writer.failure is not None:
            raise self.writer.failure
        lsn, end_lsn = self._begin, self.next_lsn
        sealed = SealedBlock(
            lsn, self._prev_lsn, end_lsn, self._heads, self._payloads, self._place, self.extent.base_lsn,
            self._moved_bytes, self._own_bytes, self._flags,
        )  # fmt: skip
        self._sealed.append(sealed)
        self._begin_block(end_lsn, lsn)
        return True

    def append_control(self, type: RecordType, payload: bytes = b"", *, extra: int = 0) -> int:
        """Add a record of the log about itself; return its LSN."""
        lsn = self.append(type, payload, time_us=self._clock.wall_us(), extra=extra)
        self._own_bytes += HEAD_BYTES + len(payload)
        return lsn

    def count_moved(self, size_bytes: int) -> None:
        """Count the record just appended, of *size_bytes*, as a copy of an older one."""
        self._moved_bytes += size_bytes

    def flush(self) -> int:
        """Make everything appended so far durable, from this thread; the durable LSN. Not with a `Flusher`."""
        self.seal()
        return self.writer.write_out()

    def retire(self, slots: Iterable[int], *, are_openings: bool = False) -> list[int]:
        """Retire *slots*, whose records are no longer needed according to durable records (checklist E8, E9, E25).

        The base moves up to the first remaining slot; slots behind it become holes. Their containers are free for reuse
        when a record that lists them is durable. The last slot, even if it is completely full, and unknown slots are
        skipped.
        Returns the slots that left the log: with too many holes a slot stays until the base passes it. *are_openings*:
        see `LogSlots.retire`.
        """
        passed, punched = self.extent.retire(slots, are_openings=are_openings)
        if punched:
            self.extent.punched.append((self._append_holes(), punched))
        return passed + punched

    def close(self) -> None:
        """Flush, write the closing mark, release the files. The writer must be at rest.

        Raises `JournalFailed` if that fails; after an earlier failure only the files are released.
        """
        try:
            if self.writer.failure is None:
                self.flush()
                self.writer.write_mark(closed=True)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Release the files and write nothing, as a killed process would."""
        self.writer.close()
        self.pool.close()

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _begin_block(self, lsn: int, prev_lsn: int) -> None:
        assert self._begin <= lsn, "LSNs only rise"
        assert prev_lsn < lsn
        self._begin = lsn
        self._prev_lsn = prev_lsn
        self._first_head = lsn + BLOCK_HEAD_BYTES
        self.head_bytes = self._place = 0
        self._moved_bytes = self._own_bytes = self.note_bytes = 0
        self._flags = self._block_flags
        self._heads = []
        self._payloads = []
        room = self.container_bytes - lsn % self.container_bytes if lsn % self.container_bytes else 0
        size = min(room, BLOCK_LIMIT_BYTES, BLOCK_HEAD_BYTES + MAX_RECORDS * HEAD_BYTES)
        self._limit = size - BLOCK_HEAD_BYTES - HEAD_BYTES  # for heads and payloads, with one head still to come

    def _make_room(self, payload_bytes: int) -> None:
        """Seal the block, and continue in the next container if the record does not fit behind it."""
        if payload_bytes > MAX_PAYLOAD_BYTES:
            raise _too_long(payload_bytes, MAX_PAYLOAD_BYTES)
        if self.head_bytes and self.seal():
            self._wait_for_room()
        if self.head_bytes + self._place + payload_bytes > self._limit:
            self._begin_slot(-(-self._begin // self.container_bytes), self._prev_lsn)
            if self.head_bytes + self._place + payload_bytes > self._limit:
                raise _too_long(payload_bytes, self.most_payload_bytes)

    def _begin_slot(self, slot: int, prev_lsn: int) -> None:
        """Go on in *slot*; it begins with the holes there are."""
        self.pool.claim()
        self.extent.begin(slot, prev_lsn, self._begin)
        self._begin_block(slot * self.container_bytes + DATA_OFFSET, prev_lsn)
        if self.extent.holes:
            self._append_holes()

    def _append_holes(self) -> int:
        return self.append_control(RecordType.LOG_HOLES, holes.encode(self.extent.holes))

    def _wait_for_room(self) -> None:
        if self._max_sealed and len(self._sealed) >= self._max_sealed:
            if self.wait_for_writer is None:
                self.writer.write_out()
            else:
                self.wait_for_writer(self._is_full)
        if self.writer.failure is not None:
            raise self.writer.failure

    def _is_full(self) -> bool:
        return len(self._sealed) >= self._max_sealed and self.writer.failure is None


def _too_long(payload_bytes: int, most_bytes: int) -> JournalError:
    reason = f"a payload of {payload_bytes} bytes, a record takes {most_bytes}"
    return JournalError("journal", reason, "write it in chunks")
