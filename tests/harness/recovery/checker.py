"""A checker of recovered stores against the invariants of `reliability.md`.

The checker has the operations of a workload (`History`) and the LSN up to which they were confirmed as durable. It
compares them with what a recovered store shows, and names the invariant that is broken.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from typing import Literal, NamedTuple, NoReturn

from cairnmq.base.errors import CairnError
from cairnmq.recovery.report import RecoveryReport
from cairnmq.store.contract.transaction import Dequeue, Put, StoreTransaction, TxState
from cairnmq.store.journaled.store import JournalStore


class Broken(AssertionError):
    """A violation of an invariant."""

    def __init__(self, invariant: str, reason: str) -> None:
        super().__init__(invariant, reason)  # so that it can be pickled between processes
        self.invariant = invariant
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.invariant}: {self.reason}"


class Operation(NamedTuple):
    """An enqueue or dequeue of a message on a queue, confirmed once the durable LSN has passed *lsn*."""

    lsn: int
    kind: Literal["enqueue", "dequeue"]
    message_id: int
    queue_id: int


Shown = dict[int, list[int]]
"""Queue ID to the IDs of the messages on it, in order."""
IN_DOUBT = 0
"""The pseudo queue that holds the numbers of prepared and decided transactions."""
Intention = tuple[str, int, int]
"""Kind of operation (enqueue or dequeue), message, queue."""


def number_of(xid: bytes) -> int:
    return int.from_bytes(xid, "big")


def xid_of(number: int) -> bytes:
    return number.to_bytes(2, "big")


class History:
    """All operations in LSN order, and the content of every message that was ever begun."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.contents: dict[int, bytes] = {}
        self.queues: frozenset[int] = frozenset()
        self.intended: dict[int, frozenset[Intention]] = {}
        """The intended operations of each transaction that was ever prepared."""

    def did(self, lsn: int, kind: Literal["enqueue", "dequeue"], message_id: int, queue_id: int) -> None:
        self.operations.append(Operation(lsn, kind, message_id, queue_id))

    def until(self, end_lsn: int) -> History:
        """Return the history that a recovery has made final by ending the log at *end_lsn*: operations below it."""
        decided = History()
        decided.operations = self.operations[: self._count_below(end_lsn)]
        decided.contents = dict(self.contents)
        decided.queues, decided.intended = self.queues, dict(self.intended)
        return decided

    def as_of(self, count: int, queues: frozenset[int]) -> History:
        """Return the history after its first *count* operations, with *queues*."""
        past = History()
        past.operations, past.contents, past.queues = self.operations[:count], self.contents, queues
        past.intended = self.intended
        return past

    def shown(self, end_lsn: int) -> Shown:
        """Return the queues after exactly the operations below *end_lsn*."""
        queues: Shown = {}
        for _, kind, message_id, queue_id in self.operations[: self._count_below(end_lsn)]:
            if kind == "enqueue":
                queues.setdefault(queue_id, []).append(message_id)
            else:
                queues[queue_id].remove(message_id)
        return {queue_id: ids for queue_id, ids in queues.items() if ids}

    def _count_below(self, lsn: int) -> int:
        return bisect_left(self.operations, lsn, key=lambda done: done.lsn)


def shown_by(store: JournalStore) -> Shown:
    """Return the messages on all queues of *store*, even on those unknown to SQL, and the transactions in doubt."""
    shown = {queue_id: list(on) for queue_id, on in store.messages().items()}
    if in_doubt := store.transactions.in_doubt():
        shown[IN_DOUBT] = sorted(number_of(transaction.xid) for transaction in in_doubt)
    return shown


def messages_in(shown: Shown) -> set[int]:
    """Return the messages on all queues of *shown*."""
    return {message_id for queue_id, on in shown.items() if queue_id != IN_DOUBT for message_id in on}


def intentions(transaction: StoreTransaction) -> frozenset[Intention]:
    """Return the enqueues and dequeues that a prepared transaction will make when it commits."""
    return frozenset(
        ("dequeue" if isinstance(operation, Dequeue) else "enqueue", operation.message_id, operation.queue_id)
        for operation in transaction.operations
        if not isinstance(operation, Put)
    )


def content_of(store: JournalStore, message_id: int) -> bytes:
    count = store.piece_count(message_id)
    if count == 1:
        return store.load_piece(message_id, 0)
    return b"".join([store.load_piece(message_id, number) for number in range(count)])


def check(history: History, confirmed_lsn: int, store: JournalStore, report: RecoveryReport) -> Shown:
    """Raise `Broken` if *store*, just recovered, is not what *history* permits; otherwise return what it shows."""
    return Expectation(history, confirmed_lsn).check(store, report)


class Expectation:
    """The permitted results of a recovery after *history*, which was confirmed below *confirmed_lsn*.

    One instance serves all states in which a crash at a moment may leave the store.
    """

    def __init__(self, history: History, confirmed_lsn: int) -> None:
        self.history = history
        self.confirmed_lsn = confirmed_lsn
        self._shown: dict[int, Shown] = {}

    def shown(self, end_lsn: int) -> Shown:
        found = self._shown.get(end_lsn)
        if found is None:
            found = self._shown[end_lsn] = self.history.shown(end_lsn)
        return found

    def permits(self, shown: Shown, end_lsn: int, next_lsn: int) -> bool:
        """Return whether *shown* is permitted if the log ended at *end_lsn* and continues at *next_lsn*."""
        confirmed_lsn = self.confirmed_lsn
        return (
            next_lsn >= confirmed_lsn
            and shown == self.shown(end_lsn)
            and (end_lsn >= confirmed_lsn or shown == self.shown(confirmed_lsn))
        )

    def check(self, store: JournalStore, report: RecoveryReport) -> Shown:
        """Raise `Broken` if *store*, just recovered, shows anything else; otherwise return what it shows."""
        shown = shown_by(store)
        if not self.permits(shown, report.log.end_lsn, store.journal.next_lsn):
            self._explain(shown, report.log.end_lsn, store.journal.next_lsn)
        contents = self.history.contents
        ids = messages_in(shown) | self._check_intentions(store)
        for message_id in ids:
            try:
                content = content_of(store, message_id)
            except CairnError as error:
                raise Broken("I3", f"message {message_id} can't be read: {error}") from error
            if content != contents[message_id]:
                stale = any(content == other for other in contents.values())
                raise Broken("I13" if stale else "I3", f"message {message_id} has another content")
        if report.messages != len(ids):
            raise Broken("I7", f"{report.messages} messages are there, {len(ids)} of them on a queue")
        if {row.id for row in store.queues()} != self.history.queues:
            raise Broken("I7", f"the queues are {store.queues()}")
        if store.durable_lsn < self.confirmed_lsn:
            raise Broken("I8", f"{store.durable_lsn} is taken for durable, {self.confirmed_lsn} was confirmed")
        _check_base_below(store, ids)
        return shown

    def _check_intentions(self, store: JournalStore) -> set[int]:
        """Check the operations of the prepared transactions; return the messages that they will enqueue."""
        added: set[int] = set()
        for transaction in store.transactions.in_doubt():
            if transaction.state is TxState.PREPARED:
                found, expected = intentions(transaction), self.history.intended[number_of(transaction.xid)]
                if found != expected:
                    raise Broken("I5", f"{transaction.name} is to do {found}, it was prepared to do {expected}")
                added.update(message_id for kind, message_id, _ in found if kind == "enqueue")
        return added

    def _explain(self, shown: Shown, end_lsn: int, next_lsn: int) -> NoReturn:
        """Raise `Broken` for a result that is not permitted, with the invariant and the reason."""
        last: dict[tuple[int, int], str] = {}  # the last confirmed operation for a message on a queue
        undecided = set()  # messages on queues with later, unconfirmed operations
        position = {}
        for lsn, kind, message_id, queue_id in self.history.operations:
            if lsn < self.confirmed_lsn:
                last[message_id, queue_id] = kind
            else:
                undecided.add((message_id, queue_id))
            if kind == "enqueue" and (lsn < end_lsn or (message_id, queue_id) not in position):
                position[message_id, queue_id] = lsn
        for (message_id, queue_id), what in last.items():
            if what == "enqueue" and (message_id, queue_id) not in undecided:
                count = shown.get(queue_id, []).count(message_id)
                if count != 1:
                    raise Broken(
                        "I1", f"message {message_id} was confirmed on queue {queue_id}, and is there {count} times"
                    )
        for queue_id, ids in shown.items():
            for message_id in ids:
                place = message_id, queue_id
                if last.get(place) == "dequeue" and place not in undecided:
                    raise Broken("I2", f"message {message_id} is back on queue {queue_id}")
                if place not in position or queue_id not in {*self.history.queues, IN_DOUBT}:
                    raise Broken("I7", f"message {message_id} was never put on queue {queue_id}")
            positions = [position[message_id, queue_id] for message_id in ids]
            if positions != sorted(positions):
                raise Broken("I6", f"queue {queue_id} has another order: {ids}")
        if shown != self.shown(end_lsn):
            raise Broken("I4", f"{shown} is not what was done below LSN {end_lsn}: {self.shown(end_lsn)}")
        if next_lsn < self.confirmed_lsn:
            raise Broken("I8", f"LSNs go on at {next_lsn}, {self.confirmed_lsn} was confirmed")
        raise Broken("I4", f"the log ends at {end_lsn}, below {self.confirmed_lsn}")


def check_base(store: JournalStore, staged: Collection[int] = ()) -> None:
    """Check I12: no message of *store*, not even a *staged* one, is below the base or in a free container."""
    ids = {message_id for on in store.messages().values() for message_id in on}
    _check_base_below(store, ids.union(staged))


def _check_base_below(store: JournalStore, ids: Collection[int]) -> None:
    """Check that each record of the messages *ids* is in a slot of the log, and not below the base.

    A copy that is not durable yet is read at its original, so the container of the original must be held, too. The
    records of transaction outcomes are checked likewise.
    """
    journal, state = store.journal, store.state
    held = journal.pool.slots()
    for message_id in ids:
        detailed = state.detailed.get(message_id)
        records = [state.place_of(message_id)] if detailed is None else [lsn for lsn, _ in detailed.records()]
        for lsn in records:
            _check_in_log(store, lsn, f"message {message_id}")
            read_lsn = state.readable(lsn)
            if read_lsn < journal.writer.durable_lsn and read_lsn // journal.container_bytes not in held:
                raise Broken("I12", f"the container of LSN {read_lsn} was given away, message {message_id} lives")
    for lsn, _ in state.outcomes.records():
        _check_in_log(store, lsn, "a transaction")


def _check_in_log(store: JournalStore, lsn: int, what: str) -> None:
    journal = store.journal
    if lsn < journal.extent.base_lsn:
        raise Broken("I12", f"the base is {journal.extent.base_lsn}, {what} has a record at {lsn}")
    if lsn // journal.container_bytes not in journal.extent.slots:
        raise Broken("I12", f"LSN {lsn} left the log, {what} lives")
