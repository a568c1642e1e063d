"""The check of references between records, by tables: every referenced LSN must be a record of the listed type.

record                       names                           which must be
start                        itself                          as its message
chunk, enqueue, dequeue,     message_id                      a start
  delete
delete                       extra                           a start of the message
dequeue                      extra                           a start or enqueue of the message; without the delete flag
                                                             of that queue
enqueue                      extra, if any                   a start or enqueue of the message
a copy of any                undo_prev                       a record of the same type, of the same message
all of a transaction         txn_id                          a dtx-start or tx-start
tx-commit, tx-rollback       extra, if any                   the transaction's tx-prepare
tx-delete                    extra                           the transaction's tx-end

References to LSNs before the base, in reclaimed ranges, or in unreadable ranges are not checked. All references point
backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...base.texts import counted
from ...journal.format.block import BLOCK_HEAD_BYTES, Block
from ...journal.format.record import HEAD_BYTES, TABLE, Flag, RecordType
from ...journal.read.scanner import Damage
from .checked_reader import CheckedReader
from .verdicts import SALVAGE, Verdict

Numbers = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
_MANY = 1 << 15
"""The minimum number of records that are checked at once."""
_NAMED = 100
"""The maximum number of wrong references that get a verdict of their own."""
_LISTED = 1000
"""The maximum number of wrong references that are kept; further ones are only counted."""
_TARGETS = np.zeros(256, np.bool_)
_TARGETS[[
    RecordType.START, RecordType.CHUNK, RecordType.ENQUEUE, RecordType.DTX_START, RecordType.TX_START,
    RecordType.TX_END, RecordType.TX_PREPARE, RecordType.QUEUE_DELETE,
]] = True  # fmt: skip
"""Types of records that others may name."""
_OF_MESSAGES = 16
"""Types below it are of messages, the others of transactions and of the log."""


class WrongReference(NamedTuple):
    """The record at *lsn* names *named*, which is not such a record."""

    lsn: int
    named: int
    what: str


class _Part(NamedTuple):
    """Records that others may name, in order."""

    lsns: Numbers
    kinds: npt.NDArray[np.uint8]
    of: Numbers
    """The message, or the transaction."""
    queues: Numbers


class References:
    """Takes the blocks of a log in order; `finish` ends it."""

    def __init__(self, container_bytes: int, holds: Callable[[int], bool]) -> None:
        """*holds*: whether a slot is part of the log."""
        self.wrong: list[WrongReference] = []
        """The references without a matching record; a target may be unreadable, or may have left the log since."""
        self.wrong_count = 0
        self._container_bytes = container_bytes
        self._holds = holds
        self._gathered: list[tuple[bytes, int, int]] = []
        """The record heads of each block, the LSN of the first one, and their number."""
        self._waiting = 0
        self._parts: list[_Part] = []
        self._part_firsts: list[int] = []

    def take(self, block: Block) -> None:
        """Gather the references of *block*."""
        count = block.head.records
        self._gathered.append((bytes(block.body[: HEAD_BYTES * count]), block.lsn + BLOCK_HEAD_BYTES, count))
        self._waiting += count
        if self._waiting >= _MANY:
            self.finish()

    def finish(self) -> None:
        """Check what was gathered."""
        if not self._waiting:
            return
        tables, firsts, numbered = zip(*self._gathered, strict=True)
        self._gathered, self._waiting = [], 0
        heads, counts = np.frombuffer(b"".join(tables), TABLE), np.array(numbered)
        before = np.repeat(np.cumsum(counts) - counts, counts)
        numbers = np.arange(len(heads)) - before
        lsns = np.repeat(np.array(firsts, np.uint64), counts) + (numbers * HEAD_BYTES).astype(np.uint64)
        misnumbered = heads["number"] != numbers
        if misnumbered.any():
            self._tell(lsns[misnumbered], lsns[misnumbered], "its number is not its place in the block")
        self._remember(lsns, heads)
        self._check(lsns, heads)

    def _remember(self, lsns: Numbers, heads: npt.NDArray[np.void]) -> None:
        kinds = heads["type"]
        chosen = _TARGETS[kinds]
        kinds = kinds[chosen]
        lsns = lsns[chosen]
        of = np.where(kinds < _OF_MESSAGES, heads["message_id"][chosen], heads["txn_id"][chosen])
        of[kinds == RecordType.QUEUE_DELETE] = heads["queue_id"][chosen][kinds == RecordType.QUEUE_DELETE]
        if len(lsns):
            queues = heads["queue_id"][chosen]
            if queues.max() < 1 << 32:
                queues = queues.astype(np.uint32)
            self._parts.append(_Part(lsns, kinds, of, queues))
            self._part_firsts.append(int(lsns[0]))

    def _check(self, lsns: Numbers, heads: npt.NDArray[np.void]) -> None:
        kinds, flags = heads["type"], heads["flags"]
        message, txn = heads["message_id"], heads["txn_id"]
        undo_prev, extra, queue = heads["undo_prev"], heads["extra"], heads["queue_id"]
        present = {int(kind) for kind in np.flatnonzero(np.bincount(kinds, minlength=1))}
        moved = flags & np.uint8(Flag.MOVED) > 0
        prepared = flags & np.uint8(Flag.PREPARED) > 0
        has_moved, has_prepared = bool(moved.any()), bool(prepared.any())

        def look(chosen: Mask, named: Numbers, of: Numbers, allowed: tuple[int, ...], what: str,
                 queues: Numbers | None = None) -> None:  # fmt: skip
            if chosen.any():
                on = None if queues is None else queues[chosen]
                self._look(lsns[chosen], named[chosen], of[chosen], allowed, what, on)

        start, enqueue = int(RecordType.START), int(RecordType.ENQUEUE)
        if start in present:
            own = (kinds == start) & ~moved if has_moved else kinds == start
            wrong = own & (message != lsns)
            if wrong.any():
                self._tell(lsns[wrong], message[wrong], "a start of another message")
        for kind in present & {int(RecordType.CHUNK), enqueue, int(RecordType.DEQUEUE), int(RecordType.DELETE)}:
            chosen = kinds == kind
            plainly = chosen & ~(moved | prepared) if has_moved or has_prepared else chosen
            if (undo_prev[plainly] != message[plainly]).any():
                wrong = plainly & (undo_prev != message)
                self._tell(lsns[wrong], undo_prev[wrong], "undo_prev, which is not its message")
            if kind == RecordType.DEQUEUE:
                ends = chosen & ~prepared if has_prepared else chosen
                deletes = flags & np.uint8(Flag.DELETE) > 0
                look(ends & deletes, extra, message, (start, enqueue), "what it ends")
                look(ends & ~deletes, extra, message, (start, enqueue), "what it ends", queue)
                chosen = chosen & ((extra != message) | prepared)  # else it was looked at
            elif kind == RecordType.DELETE:
                look(chosen, extra, message, (start,), "what it ends")
                chosen = chosen & (extra != message)
            elif kind == enqueue:
                look(chosen & (extra > 0), extra, message, (start, enqueue), "its place in the queue")
            look(chosen, message, message, (start,), "its message")
        if has_moved:
            self._check_copies(lsns, heads, moved, prepared, look)
        if txn.any():
            begun = (int(RecordType.DTX_START), int(RecordType.TX_START))
            look((txn > 0) & (txn != lsns), txn, txn, begun, "the begin of its transaction")
            ended = (kinds == RecordType.TX_COMMIT) | (kinds == RecordType.TX_ROLLBACK)
            look(ended & (extra > 0), extra, txn, (int(RecordType.TX_PREPARE),), "the tx-prepare")
            own = (kinds >= RecordType.TX_END) & (kinds <= RecordType.TX_DELETE) & ~moved & (undo_prev != txn)
            if own.any():
                self._tell(lsns[own], undo_prev[own], "undo_prev, which is not its transaction")
            look(kinds == RecordType.TX_DELETE, extra, txn, (int(RecordType.TX_END),), "the tx-end")

    def _check_copies(
        self, lsns: Numbers, heads: npt.NDArray[np.void], moved: Mask, prepared: Mask, look: Callable[..., None]
    ) -> None:
        kinds, undo_prev = heads["type"], heads["undo_prev"]
        for kind in (RecordType.START, RecordType.CHUNK, RecordType.ENQUEUE):
            look(moved & ~prepared & (kinds == kind), undo_prev, heads["message_id"], (int(kind),), "what it copies")
        for kind in (RecordType.DTX_START, RecordType.TX_PREPARE, RecordType.TX_END):
            look(moved & (kinds == kind), undo_prev, heads["txn_id"], (int(kind),), "what it copies")
        cuts = moved & (kinds == RecordType.QUEUE_DELETE)
        look(cuts, undo_prev, heads["queue_id"], (int(RecordType.QUEUE_DELETE),), "what it copies")

    def _look(
        self, lsns: Numbers, named: Numbers, of: Numbers, allowed: tuple[int, ...], what: str, queues: Numbers | None
    ) -> None:
        """Find what is *named* by the records at *lsns*."""
        is_found = np.zeros(len(named), np.bool_)
        low = int(named.min())
        first = max(0, int(np.searchsorted(self._part_firsts, low, "right")) - 1)
        bounds = [*self._part_firsts[first:], 1 << 63]
        for part, begin, end in zip(self._parts[first:], bounds, bounds[1:], strict=False):
            here = np.flatnonzero((named >= begin) & (named < end))
            if not len(here):
                continue
            wanted = named[here]
            at = np.minimum(np.searchsorted(part.lsns, wanted), len(part.lsns) - 1)
            good = (part.lsns[at] == wanted) & (part.of[at] == of[here])
            kinds = part.kinds[at]
            good &= np.logical_or.reduce([kinds == kind for kind in allowed])
            if queues is not None:
                good &= part.queues[at] == queues[here]
            is_found[here] = good
        is_found &= named < lsns
        if not is_found.all():
            self._tell(lsns[~is_found], named[~is_found], what)

    def _tell(self, lsns: Numbers, named: Numbers, what: str) -> None:
        slots, which = np.unique(named // np.uint64(self._container_bytes), return_inverse=True)
        is_there = np.array([self._holds(slot) for slot in slots.tolist()])[which]
        for lsn, name in zip(lsns[is_there].tolist(), named[is_there].tolist(), strict=True):
            self.wrong_count += 1
            if len(self.wrong) < _LISTED:
                self.wrong.append(WrongReference(lsn, name, what))


def reference_verdicts(
    references: References, slots: Container[int], gaps: Sequence[Damage], reader: CheckedReader
) -> list[Verdict]:
    """A verdict for each wrong reference within *slots*, the first of many; those into *gaps* are no fault."""
    size = reader.container_bytes
    wrong = [
        one for one in references.wrong
        if one.named // size in slots and one.lsn // size in slots
        and not any(gap.first_lsn <= one.named < gap.end_lsn for gap in gaps)
    ]  # fmt: skip
    found = []
    for one in wrong[:_NAMED]:
        what = f"the record at LSN {one.lsn} names LSN {one.named} as {one.what}, where no such record stands"
        place = reader.file_name_of(one.lsn)
        found.append(Verdict("corrupt", place, what, "", SALVAGE, one.lsn, one.lsn + HEAD_BYTES))
    if len(wrong) > _NAMED:
        more = references.wrong_count - _NAMED
        what = f"references to missing records in at most {counted(more, 'more record')}"
        found.append(Verdict("corrupt", "the log", what))
    return found
