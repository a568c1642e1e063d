"""The writer of the journal: writes sealed blocks and the mark, syncs them, and releases containers.

Invariants:

* Blocks follow one another: each begins where the last one ended, or at the start of a container.
* `durable_lsn` and the base only rise. Everything below `durable_lsn` is on the disk.
* No block and no mark claims an LSN as durable before a sync has made it so.
* A container is released when its absence from the log is durable: by the base, or by the record of a hole.
* After a failed write or sync nothing more is written.
* Nothing is confirmed that the next start would not find: the container is still in its place after the sync.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from operator import add
from typing import NamedTuple

from ...base.clock import Clock
from ...base.disk.seam import File
from ...base.errors import DiskError, JournalError, JournalFailed
from ..files.container_pool import ContainerPool
from ..format import block
from ..format.container import DATA_OFFSET
from ..format.log_mark import MarkFile
from ..format.record import HEAD_BYTES
from .log_slots import LogSlots
from .metrics import Meters, Written


class SealedBlock(NamedTuple):
    """A block that waits for the writer."""

    lsn: int
    prev_lsn: int
    end_lsn: int
    """The LSN behind the padding."""
    heads: list[bytes]
    payloads: list[bytes]
    payload_bytes: int
    base_lsn: int
    """The base when the block was sealed, which is never after the holes that the block records."""
    moved_bytes: int
    own_bytes: int
    flags: int


class LogWriter:
    """Writes one log. One thread at a time, the writer; `durable_lsn`, `durable_block` and `failure` for any thread."""

    def __init__(
        self, pool: ContainerPool, mark: MarkFile, clock: Clock, extent: LogSlots, *, incarnation: int,
        durable_lsn: int, syncers: int, misplaced: Callable[[], str],
    ) -> None:  # fmt: skip
        """*syncers*: see `ContainerWriter`. *misplaced*: returns a file of the store that was moved or removed."""
        self.sealed: deque[SealedBlock] = deque()
        """Blocks that the appender has sealed, in order: it appends at the right, the writer removes at the left."""
        self.durable_lsn = durable_lsn
        """Every byte below it is on the disk."""
        self.durable_block = (0, 0, durable_lsn)
        """The last durable block: its LSN, its checksum, and its end."""
        self.failure: JournalError | None = None
        """The error after which nothing more is written."""
        self.meters = Meters()
        self._pool = pool
        self._mark = mark
        self._clock = clock
        self._extent = extent
        self._incarnation = incarnation
        self._container_bytes = pool.container_bytes
        self._log_id = int.from_bytes(pool.log_uuid.bytes[:8], "little")
        self._write_lock = threading.Lock()
        self._writing = ContainerWriter(pool, clock, self.meters, incarnation, syncers)
        self._marked_slot = extent.current_slot
        self._durable_base = extent.base_lsn
        self._misplaced = misplaced

    def close(self) -> None:
        """Releases the files."""
        self._writing.close()
        self._mark.close()

    def fail(self, error: Exception) -> JournalFailed:
        """Record that *error* prevents all further writes; return the error to raise."""
        place, reason = (error.place, error.reason) if isinstance(error, DiskError) else ("journal", repr(error))
        failure = JournalFailed(place, reason, "nothing more is confirmed; restart the broker to recover")
        self.failure = failure
        return failure

    def write_out(self) -> int:
        """Write and sync all sealed blocks; the new durable LSN. Raises `JournalFailed`, for ever, if the disk does."""
        with self._write_lock:
            if self.failure is not None:
                raise self.failure
            if not self.sealed:
                return self.durable_lsn
            try:
                end, base, last = self._write_blocks()
                self._check_place(self._writing.is_in_place())
            except DiskError as error:
                raise self.fail(error) from error
            assert end >= self.durable_lsn, "the durable LSN only rises"
            self.durable_lsn = end
            self.durable_block = last
            if self._writing.slot != self._marked_slot:  # so that the loss of whole containers is noticed
                self._marked_slot = self._writing.slot
                with suppress(DiskError):
                    # after a kill: a flush does not wait for it
                    self._write_mark(self._durable_base, closed=False, sync=False)
            self._durable_base = max(base, self._durable_base)  # the mark may have told of a later one
            if self._extent.passed or self._extent.punched:
                self._release(end, self._durable_base)
            return end

    def write_mark(self, *, closed: bool = False) -> None:
        """Write the durable LSN and the base of the log to the mark, so that space is reclaimed without traffic."""
        with self._write_lock:
            base = self._extent.base_lsn  # the records that it rests on are durable
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
            if self.failure is None:
                try:
                    self._check_place(self._mark.is_in_place() and self._writing.is_in_place(), self._misplaced())
                except DiskError as error:
                    raise self.fail(error) from error

    def _check_place(self, is_in_place: bool, misplaced: str = "") -> None:
        if misplaced or not is_in_place:
            place = misplaced or self._pool.directory.path
            raise DiskError(place, "it was removed, replaced or unmounted while it was written to")

    def _write_mark(self, base_lsn: int, *, closed: bool, sync: bool) -> None:
        self._mark.write(
            durable_lsn=self.durable_lsn, base_lsn=base_lsn, incarnation=self._incarnation,
            time_us=self._clock.wall_us(), closed=closed, sync=sync,
        )  # fmt: skip

    def _release(self, end_lsn: int, base_lsn: int) -> None:
        """Free the containers that the durable records leave out of the log."""
        assert base_lsn <= self._extent.base_lsn
        removed = self._extent.released(end_lsn, base_lsn)
        if removed:
            self._pool.release(removed)
            self._pool.trim()

    def _write_blocks(self) -> tuple[int, int, tuple[int, int, int]]:
        base, writing = self._durable_base, self._writing
        end = self.durable_lsn
        last = self.durable_block
        blocks = records = record_bytes = moved_bytes = own_bytes = block_bytes = 0
        for _ in range(len(self.sealed)):
            sealed = self.sealed[0]
            assert sealed.lsn == end or sealed.lsn % self._container_bytes == DATA_OFFSET, "blocks follow one another"
            assert sealed.base_lsn <= sealed.lsn
            base = sealed.base_lsn
            slot, offset = divmod(sealed.lsn, self._container_bytes)
            file = writing.file if slot == writing.slot else None
            if file is None:
                file = writing.begin(slot, sealed.prev_lsn, self._durable_base)
            data = block.encode(
                b"".join(sealed.heads), sealed.payloads, sealed.payload_bytes, lsn=sealed.lsn, prev_lsn=sealed.prev_lsn,
                incarnation=self._incarnation, durable_lsn=self.durable_lsn, base_lsn=base, log_id=self._log_id,
                flags=sealed.flags,
            )  # fmt: skip
            file.write_at(offset, data)
            end = sealed.lsn + len(data)
            last = (sealed.lsn, block.CRC.unpack_from(data)[0], end)
            blocks += 1
            records += len(sealed.heads)
            record_bytes += HEAD_BYTES * len(sealed.heads) + sealed.payload_bytes
            moved_bytes += sealed.moved_bytes
            own_bytes += sealed.own_bytes
            block_bytes += len(data)
            self.sealed.popleft()
        assert writing.file is not None
        begun_s = self._clock.monotonic_s()
        writing.file.sync()
        took_s = self._clock.monotonic_s() - begun_s
        meters = self.meters
        meters.fsync_s.observe(took_s)
        if writing.left:
            writing.sync_left()
            took_s = self._clock.monotonic_s() - begun_s
        group = (1, blocks, records, record_bytes, moved_bytes, own_bytes, block_bytes)
        meters.written = Written(*map(add, meters.written, group))
        meters.group_records.observe(records)
        meters.group_bytes.observe(block_bytes)
        meters.last_flushes.append((block_bytes, took_s))
        return end, base, last


class ContainerWriter:
    """The containers that a flush writes to: the current one, and those that the flush completed.

    If threads are available, a completed container is synced while the next ones are written: a flush of 8 MiB into
    containers of 1 MiB then waits for a few syncs in a row instead of nine. The order in which they reach the disk does
    not matter: no record of a flush is confirmed, and no block claims it, before all of them are synced. For the thread
    of the writer only.
    """

    def __init__(self, pool: ContainerPool, clock: Clock, meters: Meters, incarnation: int, syncers: int) -> None:
        """*syncers*: the number of threads that sync completed containers; with 0 the writer does so at the end of a
        flush."""
        self.slot = -1
        """The slot that the log is in, -1 before the first block."""
        self.file: File | None = None
        """The file that holds `slot`."""
        self._pool = pool
        self._clock = clock
        self._meters = meters
        self._incarnation = incarnation
        self._executor = ThreadPoolExecutor(syncers, "cairnmq-sync") if syncers else None
        self.left: list[tuple[File, Future[float] | None]] = []
        """Files of containers that were left and are to be synced by this flush, with the sync that is under way."""

    def begin(self, slot: int, prev_lsn: int, base_lsn: int) -> File:
        """Begin *slot*, and return the file that holds it, with a written header."""
        if self.file is not None:
            syncing = self._executor.submit(self._sync, self.file) if self._executor is not None else None
            self.left.append((self.file, syncing))
            self.file = None
        self.file = self._pool.take(
            slot, incarnation=self._incarnation, prev_lsn=prev_lsn, base_lsn=base_lsn,
            time_us=self._clock.wall_us(), opening=self.slot < 0,
        )  # fmt: skip
        self.slot = slot
        return self.file

    def sync_left(self) -> None:
        """Sync the containers that were left. Raises `DiskError`, after which all that was written is in doubt."""
        for file, syncing in self.left:
            self._meters.fsync_s.observe(self._sync(file) if syncing is None else syncing.result())
        self._close_left()

    def is_in_place(self) -> bool:
        """Return whether the next start will find the file that is written to under its name."""
        return self.file is None or self.file.is_in_place()

    def close(self) -> None:
        """Close the files after pending syncs have finished."""
        if self._executor is not None:
            self._executor.shutdown()
        self._close_left()
        if self.file is not None:
            self.file.close()

    def _sync(self, file: File) -> float:
        begun_s = self._clock.monotonic_s()
        file.sync()
        return self._clock.monotonic_s() - begun_s

    def _close_left(self) -> None:
        if not self.left:
            return
        wait([syncing for _, syncing in self.left if syncing is not None])
        for file, _ in self.left:
            file.close()
        self.left.clear()
