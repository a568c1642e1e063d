"""Survey of a damaged log: its readable content and its losses, for both a refused start and a salvage.

The log is read as in recovery, through `mending`, and reading continues after each damage. A *gap* is a range of LSNs
that no complete block covers. `pieces` proves some of the content of a gap. Later records prove more: which of its
messages were dequeued since, and which of its records were copied. The rest is *unknown* and causes doubt: a message
from before the gap that no later record mentions may have been dequeued in the gap.

Data after a torn end was never confirmed and is left out, as in recovery. Without a complete mark the end of the
confirmed data is unknown, so every complete block counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ..base.disk.seam import ReadableDirectory
from ..journal.format.block import BLOCK_HEAD_BYTES, Block
from ..journal.format.container import DATA_OFFSET
from ..journal.format.record import HEAD_BYTES, Flag, RecordHead, RecordType
from ..journal.read.scanner import Damage, LogReader
from ..store.message_map.message_entry import DetailedMessage
from ..store.message_map.reconciliation import reconcile
from ..store.message_map.state import State
from .broken_block import BrokenBlock, broken_blocks, says_twice
from .lenient_directory import LenientDirectory
from .log_identity import identify
from .replay import Replay
from .salvageable import Finding


@dataclass
class Gap:
    """A range of LSNs in one slot that no complete block covers."""

    finding: Finding
    unknown: list[tuple[int, int]]
    """The LSN ranges in the gap of which nothing is proven."""
    ended: set[int] = field(default_factory=set)
    """Messages of the unknown ranges that were dequeued or deleted later: their loss does not matter."""
    copied: set[int] = field(default_factory=set)
    """Records of the unknown ranges that were also copied elsewhere."""

    @property
    def unknown_records(self) -> int:
        """The maximum number of records in the unknown ranges."""
        return sum(max(0, end - first - BLOCK_HEAD_BYTES) // HEAD_BYTES for first, end in self.unknown)

    def hides(self, lsn: int) -> bool:
        return any(first <= lsn < end for first, end in self.unknown)


class LostMessage(NamedTuple):
    """A message that was stored and can't be read."""

    message_id: int
    queue_ids: tuple[int, ...]
    reason: str
    certain: bool
    """True if the message was certainly not dequeued before."""


class Piece(NamedTuple):
    """A record of a broken block, and the LSN of its payload."""

    payload_lsn: int
    head: RecordHead


class Survey:
    """Result of `survey`. `state` holds the messages; those in `lost` and `unplaced` are not complete."""

    def __init__(self, directory: ReadableDirectory, store_uuid: UUID | None) -> None:
        identity = identify(directory, store_uuid)
        self.mark = identity.mark
        self.has_mark = identity.finding is None
        self.directory = LenientDirectory(directory, identity)
        self.reader = LogReader(self.directory, live=False)
        self.state = State(self.mark.container_bytes)
        self.findings = [finding for finding in (identity.finding, identity.doubt) if finding is not None]
        """All damage, in the order of LSNs."""
        self.gaps: list[Gap] = []
        self.lost: dict[int, LostMessage] = {}
        self.unplaced: dict[int, DetailedMessage] = {}
        """Messages on no queue, of which the record that put them on one may be lost."""
        self.doubtful: dict[int, str] = {}
        """Live messages to the reason why they may have been dequeued before."""
        self.pieces: dict[int, Piece] = {}
        """Records of broken blocks, by LSN."""
        self.queue_ids: set[int] = set()
        """The IDs of queues that any record names."""
        self._spoilt: dict[int, int] = {}  # records whose payload fails, to their message

    def remarks(self) -> list[str]:
        return list(dict.fromkeys([*self.directory.remarks, *self.reader.heads.remarks]))

    def head_findings(self) -> list[Finding]:
        """Container heads that were reconstructed from their blocks: no data is lost with them."""
        base = self.reader.heads.base_lsn
        return [finding for lsn, finding in self.directory.findings.items() if lsn >= base]

    def read(self, first_lsn: int, end_lsn: int) -> bytes:
        """The raw bytes of a range within one slot; none if no container holds it."""
        name = self.reader.heads.file_name(first_lsn // self.mark.container_bytes)
        if not name:
            return b""
        with closing(self.directory.open(name)) as file:
            return file.read_at(first_lsn % self.mark.container_bytes, end_lsn - first_lsn)

    def run(self, queue_ids: Iterable[int], progress: Callable[[int, int], None]) -> None:
        self.queue_ids.update(queue_ids)
        reader = self.reader
        replay = Replay(self.state, self.directory.path, self.mark.container_bytes)
        done, total = 0, len(reader.slots) * self.mark.container_bytes
        last_lsn = 0
        for found in reader.scan():
            if isinstance(found, Block):
                self._look_at(found)
                replay.take(found)
                last_lsn = found.lsn
                done += found.end_lsn - found.lsn
                progress(done, total)
                continue
            replay.apply()
            if found.torn and self.has_mark:
                name = self.reader.heads.file_name(found.first_lsn // self.mark.container_bytes)
                self.findings.append(Finding("torn", found.first_lsn, found.end_lsn, name, found.reason))
                break
            for gap in self._gaps(found, last_lsn):
                self.gaps.append(gap)
                self.findings.append(gap.finding)
                self._take_pieces(gap)
        replay.apply()
        self.findings += self.head_findings()
        self.findings.sort(key=lambda finding: finding.first_lsn)
        self._judge()

    def _look_at(self, block: Block) -> None:
        """Record the messages and records in earlier gaps that a complete block ends or copies."""
        table = block.table()
        self.queue_ids.update(table["queue_id"].tolist())
        if not self.gaps:
            return
        kinds = table["type"]
        ended = table["message_id"][(kinds == RecordType.DEQUEUE) | (kinds == RecordType.DELETE)].tolist()
        copied = table["undo_prev"][table["flags"] & Flag.MOVED > 0].tolist()
        for gap in self.gaps:
            gap.ended.update(filter(gap.hides, ended))
            gap.copied.update(filter(gap.hides, copied))

    def _gaps(self, damage: Damage, last_lsn: int) -> Iterator[Gap]:
        """Yield a gap for each slot that the damage lies in."""
        size = self.mark.container_bytes
        first = damage.first_lsn
        reason = damage.reason
        while first < damage.end_lsn:
            slot = first // size
            end = min(damage.end_lsn, (slot + 1) * size)
            is_rest = end == (slot + 1) * size and slot == last_lsn // size and self._is_last_of(slot, last_lsn)
            if self.reader.holds(slot) and not is_rest and end > slot * size + DATA_OFFSET:  # else it holds no block
                name = self.reader.heads.file_name(slot)
                reason = reason if name else "no container holds it"
                yield Gap(Finding("torn" if damage.torn else "corrupt", first, end, name, reason), [(first, end)])
            first, reason = end, "no whole block in it"

    def _is_last_of(self, slot: int, lsn: int) -> bool:
        """Return whether the next container, or a hole, names the block at *lsn* as the last one before it."""
        reader = self.reader
        following = next((other for other in reader.slots if other > slot), None)
        named = following is not None and reader.heads.by_slot[following].prev_lsn == lsn
        return named or any(hole.prev_lsn == lsn for hole in reader.holes)

    def _take_pieces(self, gap: Gap) -> None:
        end = gap.finding.end_lsn
        slot_lsn = gap.finding.first_lsn // self.mark.container_bytes * self.mark.container_bytes
        first = max(gap.finding.first_lsn, slot_lsn + DATA_OFFSET)
        for broken in broken_blocks(self.read(first, end), first, self.reader.log_id):
            if broken.proven:
                gap.unknown = [
                    part
                    for low, high in gap.unknown
                    for part in ((low, min(high, broken.lsn)), (max(low, broken.end_lsn), high))
                    if part[0] < part[1]
                ]
            for number, (lsn, row) in enumerate(broken.rows):
                if broken.proven or self._believes(broken, lsn, row, number):
                    self._take(broken, lsn, row)

    def _believes(self, broken: BrokenBlock, lsn: int, row: RecordHead, number: int) -> bool:
        if lsn not in broken.complete or row.queue_id not in self.queue_ids or not says_twice(lsn, row, number):
            return False
        if row.type == RecordType.START:
            self.doubtful[lsn] = f"the head of its record at LSN {lsn} is not proven"
            return True
        return (self.state.queue_of(row.message_id), self.state.place_of(row.message_id)) == (row.queue_id, row.extra)

    def _take(self, broken: BrokenBlock, lsn: int, row: RecordHead) -> None:
        piece = Piece(broken.payload_lsn + row.place, row)
        self.pieces[lsn] = piece
        self.state.apply(lsn, row, lambda: self._payload(piece) if lsn in broken.complete else memoryview(b""))
        if lsn not in broken.complete:
            self._spoilt[lsn] = row.message_id

    def _payload(self, piece: Piece) -> memoryview:
        return memoryview(self.read(piece.payload_lsn, piece.payload_lsn + piece.head.size))

    def _judge(self) -> None:
        """Say of each message whether it is lost or doubtful, and which are on no queue."""
        self._judge_spoilt()
        doubt_end = max((end for gap in self.gaps for _, end in gap.unknown), default=0)
        if doubt_end:
            self._judge_partial(doubt_end)
        reconcile(self.state, dict.fromkeys(self.reader.slots, 0))
        if doubt_end:
            self._judge_undequeued(doubt_end)
        self.doubtful = {message_id: reason for message_id, reason in self.doubtful.items() if message_id in self.state}

    def _judge_spoilt(self) -> None:
        """Messages with a payload that does not match its checksum are lost."""
        state = self.state
        for lsn, message_id in self._spoilt.items():
            detailed = state.detailed.get(message_id)
            if message_id not in state:
                continue
            if state.place_of(message_id) == lsn or (detailed and any(at == lsn for at, _ in detailed.pieces.values())):
                reason = f"the payload of its record at LSN {lsn} does not match its checksum"
                self._lose(message_id, detailed, reason, True)

    def _judge_partial(self, doubt_end: int) -> None:
        """Messages without some of their records are lost; those without a queue are noted. See `_judge`."""
        for message_id, detailed in self.state.detailed.items():
            if detailed.queues and not detailed.is_complete:
                seen = max((lsn for lsn, _ in detailed.records()), default=message_id)
                slot = message_id // self.mark.container_bytes
                removed = not detailed.start and not self.reader.holds(slot)  # deleted, or copied into a gap
                reason = "not all of its records can be read"
                self._lose(message_id, detailed, reason, seen >= doubt_end and not removed)
            elif not detailed.queues:
                self.unplaced[message_id] = detailed

    def _judge_undequeued(self, doubt_end: int) -> None:
        """Mark messages from before *doubt_end* as doubtful: an unreadable range may contain their dequeue."""
        reason = f"its dequeue may have stood in what can't be read, up to LSN {doubt_end}"
        for message_id, detailed in self._messages():
            place = self.state.place_of(message_id)
            seen = place if detailed is None else max((lsn for lsn, _ in detailed.records()), default=0)
            if seen < doubt_end and message_id not in self.lost and message_id not in self.unplaced:
                self.doubtful.setdefault(message_id, reason)

    def _messages(self) -> Iterator[tuple[int, DetailedMessage | None]]:
        for page in self.state.pages.values():
            for message_id in page:
                yield message_id, None
        yield from self.state.detailed.items()

    def _lose(self, message_id: int, detailed: DetailedMessage | None, reason: str, certain: bool) -> None:
        queue_id = self.state.queue_of(message_id)
        queues = (queue_id,) if queue_id is not None else tuple(detailed.queues) if detailed is not None else ()
        self.lost.setdefault(message_id, LostMessage(message_id, queues, reason, certain))


def survey(
    directory: ReadableDirectory,
    queue_ids: Iterable[int] = (),
    store_uuid: UUID | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Survey:
    """Read the log in *directory* as far as it goes, and write nothing. *queue_ids* and *store_uuid* are SQL's.

    Raises `ForeignStore` for what is no log, or one of a newer version; `DiskError` if not even the names can be read.
    """
    found = Survey(directory, store_uuid)
    found.run(queue_ids, progress)
    return found
