"""Records of transactions in the log, and the parts of the log that they need.

record          undo_prev  extra             payload
dtx-start                                    the xid
tx-start
operations      as otherwise                 before a tx-prepare with `Flag.PREPARED`
tx-prepare      T          their number
tx-commit       T          its tx-prepare    of a copy: LSNs of operations, see below
tx-rollback     T          its tx-prepare
tx-end          T          1 if committed    the xid
tx-delete       T          its tx-end

All of them have T, the LSN of the first, as txn_id (checklist E33 to E37). A commit is written contiguously: tx-start
(or nothing, after a prepare), the operations as without a transaction, but with its ID, and then tx-commit. Recovery
applies them when it reads the tx-commit, never without it (E39). In a log that is read from its beginning this is the
correct order: operations, their commit, later records.

The operations of a *prepared* transaction are intentions: they have no effect, and recovery takes locks according to
them. The commit repeats them.

While a slot with operations of a committed transaction is in the log, and one of these still counts, its tx-commit must
be in the log, too (E40); and any outcome while its tx-prepare is. Compaction then copies it. A copied tx-commit lists
the operations that still count by their LSNs, plus 1 for a Start record whose message is no longer on its queue. The
records that ended the other operations are before the copy. If the list exceeds one record, several copies are written.
A missing outcome was never made, or has no effect any more (E41).

tx-end is a decision that was made without the coordinator; it is kept until tx-delete.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...base.errors import JournalError
from ...journal.format.record import HEAD_BYTES, Flag, RecordHead, RecordType
from ..contract.dequeue_reason import REASON_BITS
from .pins import Pins

DTX_START, TX_START, TX_END = int(RecordType.DTX_START), int(RecordType.TX_START), int(RecordType.TX_END)
TX_PREPARE, TX_COMMIT = int(RecordType.TX_PREPARE), int(RecordType.TX_COMMIT)
TX_ROLLBACK, TX_DELETE = int(RecordType.TX_ROLLBACK), int(RecordType.TX_DELETE)
DEQUEUE = int(RecordType.DEQUEUE)
FLAG_MOVED, FLAG_PREPARED = int(Flag.MOVED), int(Flag.PREPARED)
UNPLACED = 1
"""The offset of an LSN in a copied tx-commit whose message is no longer on that queue."""


@dataclass(eq=False, slots=True)
class Prepared:
    """A transaction that is prepared."""

    xid: bytes = b""
    start_lsn: int = 0
    prepare_lsn: int = 0
    """0 in recovery until its tx-prepare was read."""
    count: int = 0
    """The number of intentions, according to its tx-prepare."""
    intentions: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """Record type, message id and queue id, each to the record's LSN."""
    reasons: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """The dequeue reasons of the intentions that have one, as in the flags of a Dequeue record."""

    def records(self) -> Iterator[tuple[int, int]]:
        """The LSN and the size of every record that it needs, the head included."""
        yield self.start_lsn, HEAD_BYTES + len(self.xid)
        yield self.prepare_lsn, HEAD_BYTES
        for lsn in self.intentions.values():
            yield lsn, HEAD_BYTES


class Decided(NamedTuple):
    """A decision that is remembered."""

    xid: bytes
    committed: bool
    lsn: int


class Outcome(NamedTuple):
    """A tx-commit or tx-rollback that other slots need."""

    txn_id: int
    prepare_lsn: int
    """0 if there was none."""
    steps: frozenset[int]
    """LSNs of operations in other slots than its own."""


class TransactionLog:
    """The transaction map (checklist E51), as far as the log is concerned. One thread at a time."""

    def __init__(self, container_bytes: int, pins: Pins) -> None:
        self.prepared: dict[int, Prepared] = {}
        """Prepared transactions by ID; in recovery also those that are not prepared yet."""
        self.decided: dict[int, Decided] = {}
        """Decided transactions by ID."""
        self.needed: dict[int, dict[int, Outcome]] = {}
        """Slot to the LSNs of outcomes in it that other slots need."""
        self.changed = False
        """True if outcomes changed since the last checkpoint."""
        self.pins = pins
        self._container_bytes = container_bytes
        self._steps: dict[int, list[tuple[int, RecordHead]]] = {}  # in recovery: LSNs and heads without a commit yet

    # ---- as records are appended ----------------------------------------------------------------------------------

    def was_prepared(
        self, txn_id: int, xid: bytes, prepare_lsn: int, intentions: dict[tuple[int, int, int], int],
        reasons: dict[tuple[int, int, int], int],
    ) -> None:  # fmt: skip
        """All records of a transaction up to its tx-prepare are written."""
        prepared = Prepared(xid, txn_id, prepare_lsn, len(intentions), intentions, reasons)
        for lsn, size_bytes in prepared.records():
            self.pins.hold(lsn, size_bytes)
        self.prepared[txn_id] = prepared
        self.changed = True

    def ended(self, lsn: int, txn_id: int, prepare_lsn: int, steps: Iterable[int] = ()) -> None:
        """Apply a tx-commit or tx-rollback at *lsn*; *steps* are the positions of the operations that it commits.

        *prepare_lsn*: the tx-prepare of the transaction, 0 without one.
        """
        prepared = self.prepared.pop(txn_id, None)
        if prepared is not None:
            self.changed = True
            for at, size_bytes in prepared.records():
                if at:
                    self.pins.release(at, size_bytes)
        self.need(lsn, txn_id, prepare_lsn, steps)

    def need(self, lsn: int, txn_id: int, prepare_lsn: int, steps: Iterable[int]) -> None:
        """The outcome at *lsn* is needed by what it speaks of in other slots."""
        size = self._container_bytes
        slot = lsn // size
        elsewhere = frozenset([step for step in steps if step // size != slot])
        slots = {step // size for step in elsewhere} | ({prepare_lsn // size} if prepare_lsn else set())
        slots.discard(slot)
        if not slots:
            return
        for other in slots:
            self.pins.end(lsn, other * size)
        here = self.needed.setdefault(slot, {})
        if lsn in here:  # a checkpoint knows of operations that are not read again
            elsewhere |= here[lsn].steps
        here[lsn] = Outcome(txn_id, prepare_lsn, elsewhere)
        self.changed = True

    def was_decided(self, lsn: int, txn_id: int, xid: bytes, committed: bool) -> None:
        """A tx-end, at *lsn*."""
        self.pins.hold(lsn, HEAD_BYTES + len(xid))
        self.decided[txn_id] = Decided(xid, committed, lsn)
        self.changed = True

    def forgotten(self, lsn: int, txn_id: int, end_lsn: int) -> None:
        """A tx-delete, at *lsn*, of the tx-end at *end_lsn*."""
        self.pins.end(lsn, end_lsn)
        decided = self.decided.pop(txn_id, None)
        if decided is not None:
            self.pins.release(decided.lsn, HEAD_BYTES + len(decided.xid))
            self.changed = True

    def retired(self, slots: Iterable[int]) -> None:
        """*slots* are no longer part of the log."""
        for slot in slots:
            self.changed |= self.needed.pop(slot, None) is not None
        for slot in [slot for slot in self.needed if slot not in self.pins.tombstones]:
            del self.needed[slot]
            self.changed = True

    # ---- relocation -----------------------------------------------------------------------------------------------

    def counts(self, lsn: int, head: RecordHead) -> bool:
        """Return whether the record at *lsn* is one that its transaction needs."""
        if head.type == TX_END:
            decided = self.decided.get(head.txn_id)
            return decided is not None and decided.lsn == lsn
        prepared = self.prepared.get(head.txn_id)
        if prepared is None:
            return False
        if head.type in (DTX_START, TX_PREPARE):
            return lsn == (prepared.start_lsn if head.type == DTX_START else prepared.prepare_lsn)
        return prepared.intentions.get((head.type, head.message_id, head.queue_id)) == lsn

    def moved(self, lsn: int, head: RecordHead, source_lsn: int) -> None:
        """Note that the needed record at *source_lsn* was copied to *lsn*; see `counts`."""
        self.pins.hold(lsn, HEAD_BYTES + head.size)
        self.pins.supersede(lsn, source_lsn)
        self.pins.release(source_lsn, HEAD_BYTES + head.size)
        self._set(lsn, head)
        self.changed = True

    def _set(self, lsn: int, head: RecordHead) -> None:
        if head.type == TX_END:
            self.decided[head.txn_id] = self.decided[head.txn_id]._replace(lsn=lsn)
            return
        prepared = self.prepared.setdefault(head.txn_id, Prepared())
        if head.type == DTX_START:
            prepared.start_lsn = lsn
        elif head.type == TX_PREPARE:
            prepared.prepare_lsn, prepared.count = lsn, head.extra
        else:
            intention = head.type, head.message_id, head.queue_id
            prepared.intentions[intention] = lsn
            if head.type == DEQUEUE and head.flags & REASON_BITS:
                prepared.reasons[intention] = head.flags & REASON_BITS

    # ---- recovery -------------------------------------------------------------------------------------------------

    def knows(self, txn_ids: set[int]) -> bool:
        """Return whether a part of any of these transactions was read."""
        return not (txn_ids.isdisjoint(self._steps) and txn_ids.isdisjoint(self.prepared))

    def gather(self, lsn: int, head: RecordHead) -> None:
        """An operation of a transaction was read."""
        if head.flags & FLAG_PREPARED:
            self._set(lsn, head)
        else:
            self._steps.setdefault(head.txn_id, []).append((lsn, head))

    def apply(
        self, lsn: int, head: RecordHead, payload: Callable[[], memoryview], do: Callable[[int, RecordHead, bool], None]
    ) -> None:
        """A record of the transaction itself was read.

        A commit has its operations done by *do*: LSN and head, and whether a Start record still puts its message on a
        queue.
        """
        kind, txn_id = head.type, head.txn_id
        self.changed = True
        if kind == DTX_START:
            self._set(lsn, head)
            self.prepared[txn_id].xid = bytes(payload())
        elif kind == TX_PREPARE:
            self._set(lsn, head)
        elif kind in (TX_COMMIT, TX_ROLLBACK):
            steps = self._steps.pop(txn_id, [])
            unplaced: set[int] = set()
            places = {at for at, _ in steps}
            if head.flags & FLAG_MOVED:
                listed = array("Q", bytes(payload()))
                unplaced = {at & ~UNPLACED for at in listed if at & UNPLACED}
                places = {at & ~UNPLACED for at in listed}  # also those that a checkpoint knows were done
                if rest := [step for step in steps if step[0] not in places]:
                    self._steps[txn_id] = rest  # another copy may list some of them
            if kind == TX_COMMIT:
                for at, step in steps:
                    if at in places:
                        do(at, step, at not in unplaced)
            self.prepared.pop(txn_id, None)
            self.need(lsn, txn_id, head.extra, places)
        elif kind == TX_END:
            self.decided[txn_id] = Decided(bytes(payload()), bool(head.extra), lsn)
        elif kind == TX_DELETE:
            self.pins.end(lsn, head.extra)
            self.decided.pop(txn_id, None)

    def finish(self, slots: Iterable[int]) -> None:
        """End recovery of the log with the slots *slots*: transactions that were not prepared are rolled back (E39)."""
        here = set(slots)
        self._steps.clear()
        size = self._container_bytes
        for txn_id, prepared in [*self.prepared.items()]:
            if not prepared.prepare_lsn or prepared.prepare_lsn // size not in here:
                del self.prepared[txn_id]
            elif not prepared.start_lsn or len(prepared.intentions) != prepared.count:
                raise JournalError(
                    f"transaction {txn_id}",
                    f"it is prepared, and {len(prepared.intentions)} of its {prepared.count} operations are there",
                    "`cairnmq salvage` recovers what is whole",
                )
        self.decided = {
            txn_id: decided
            for txn_id, decided in self.decided.items()
            if decided.lsn // size in here and txn_id not in self.prepared
        }
        self.needed = {slot: outcomes for slot, outcomes in self.needed.items() if slot in here}

    def records(self) -> Iterator[tuple[int, int]]:
        """The LSN and the size of every record that transactions need."""
        for prepared in self.prepared.values():
            yield from prepared.records()
        for decided in self.decided.values():
            yield decided.lsn, HEAD_BYTES + len(decided.xid)

    def adds(self) -> set[int]:
        """The messages that prepared transactions are going to put on a queue."""
        return {
            message_id
            for prepared in self.prepared.values()
            for kind, message_id, _ in prepared.intentions
            if kind == RecordType.ENQUEUE
        }

    # ---- the checkpoint -------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """All of it, for a checkpoint."""
        return json.dumps(
            {
                "prepared": [
                    [txn_id, one.xid.hex(), one.start_lsn, one.prepare_lsn, one.count, [*_flat(one)]]
                    for txn_id, one in self.prepared.items()
                ],
                "decided": [[txn_id, one.xid.hex(), one.committed, one.lsn] for txn_id, one in self.decided.items()],
                "needed": [
                    [slot, lsn, one.txn_id, one.prepare_lsn, [*one.steps]]
                    for slot, outcomes in self.needed.items()
                    for lsn, one in outcomes.items()
                ],
            }
        ).encode()

    def decode(self, body: bytes) -> None:
        """Restore the result of `encode` in an empty map; its pins are restored separately."""
        fields: dict[str, Any] = json.loads(body)
        for txn_id, xid, start_lsn, prepare_lsn, count, intentions in fields["prepared"]:
            one = self.prepared[txn_id] = Prepared(bytes.fromhex(xid), start_lsn, prepare_lsn, count)
            for kind_and_reason, message_id, queue_id, lsn in intentions:
                intention = kind_and_reason & ~REASON_BITS, message_id, queue_id
                one.intentions[intention] = lsn
                if kind_and_reason & REASON_BITS:
                    one.reasons[intention] = kind_and_reason & REASON_BITS
        for txn_id, xid, committed, lsn in fields["decided"]:
            self.decided[txn_id] = Decided(bytes.fromhex(xid), committed, lsn)
        for slot, lsn, txn_id, prepare_lsn, steps in fields["needed"]:
            outcome = Outcome(txn_id, prepare_lsn, frozenset(steps))
            self.needed.setdefault(slot, {})[lsn] = outcome


def _flat(prepared: Prepared) -> Iterator[tuple[int, int, int, int]]:
    """Yield the intentions; the record type, a small number, is combined with the bits of the dequeue reason."""
    for intention, lsn in prepared.intentions.items():
        kind, message_id, queue_id = intention
        yield kind | prepared.reasons.get(intention, 0), message_id, queue_id, lsn
