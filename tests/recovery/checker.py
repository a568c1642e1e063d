"""What must be true of a recovered store, as the invariants of `reliability.md` say it.

The checker knows what a workload did (`History`) and up to which LSN it was told that it is durable. It compares that
with what a recovered store shows, and names the invariant that is broken.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Literal, NamedTuple

from cairnmq.base.errors import CairnError
from cairnmq.recovery.report import RecoveryReport
from cairnmq.store.journal_store import JournalStore


class Broken(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, why: str) -> None:
        super().__init__(f"{invariant}: {why}")
        self.invariant = invariant


class Operation(NamedTuple):
    """What was done to a message on a queue. It is confirmed once the durable LSN has passed *lsn*."""

    lsn: int
    kind: Literal["enqueue", "dequeue"]
    message_id: int
    queue_id: int


Shown = dict[int, list[int]]
"""Queue id to the ids of the messages on it, in order."""


class History:
    """All that was done, in the order of LSNs; and the content of every message ever begun."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.contents: dict[int, bytes] = {}
        self.queues: frozenset[int] = frozenset()

    def did(self, lsn: int, kind: Literal["enqueue", "dequeue"], message_id: int, queue_id: int) -> None:
        self.operations.append(Operation(lsn, kind, message_id, queue_id))

    def until(self, end_lsn: int) -> History:
        """What a recovery that ended the log at *end_lsn* has decided to be true; nothing else ever happened."""
        decided = History()
        decided.operations = self.operations[: self._count_below(end_lsn)]
        decided.contents = dict(self.contents)
        decided.queues = self.queues
        return decided

    def as_of(self, count: int, queues: frozenset[int]) -> History:
        """As it was when *count* operations had been done, and there were *queues*."""
        past = History()
        past.operations, past.contents, past.queues = self.operations[:count], self.contents, queues
        return past

    def shown(self, end_lsn: int) -> Shown:
        """The queues after every operation below *end_lsn*, and no other."""
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
    """What *store* has on its queues, those that SQL does not know included."""
    queues: set[int] = set()
    for on in store.state.messages.values():
        queues.update((on,) if isinstance(on, int) else on)
    messages = store.messages()
    return {queue_id: list(messages.get(queue_id, ())) for queue_id in queues}


def content_of(store: JournalStore, message_id: int) -> bytes:
    return b"".join(store.load_piece(message_id, number) for number in range(store.piece_count(message_id)))


def check(history: History, confirmed_lsn: int, store: JournalStore, report: RecoveryReport) -> Shown:
    """Raise `Broken` if *store*, just recovered, is not what *history* allows; what it shows otherwise."""
    shown = shown_by(store)
    end_lsn = report.log.end_lsn
    last: dict[tuple[int, int], str] = {}  # what was confirmed last, for a message on a queue
    undecided = set()  # and where something was attempted since
    position = {}
    for lsn, kind, message_id, queue_id in history.operations:
        if lsn < confirmed_lsn:
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
            if place not in position or queue_id not in history.queues:
                raise Broken("I7", f"message {message_id} was never put on queue {queue_id}")
            try:
                content = content_of(store, message_id)
            except CairnError as error:
                raise Broken("I3", f"message {message_id} can't be read: {error}") from error
            if content != history.contents[message_id]:
                stale = any(content == other for other in history.contents.values())
                raise Broken("I13" if stale else "I3", f"message {message_id} has another content")
        positions = [position[message_id, queue_id] for message_id in ids]
        if positions != sorted(positions):
            raise Broken("I6", f"queue {queue_id} has another order: {ids}")
    if shown != history.shown(end_lsn):
        raise Broken("I4", f"{shown} is not what was done below LSN {end_lsn}: {history.shown(end_lsn)}")
    if () in store.state.messages.values() or store.state.growing:
        raise Broken("I7", "a message that never reached a queue is still there")
    if {row.id for row in store.queues()} != history.queues:
        raise Broken("I7", f"the queues are {store.queues()}")
    if store.journal.next_lsn < confirmed_lsn or store.durable_lsn < confirmed_lsn:
        raise Broken("I8", f"LSNs go on at {store.journal.next_lsn}, {confirmed_lsn} was confirmed")
    check_base(store)
    if end_lsn < confirmed_lsn and shown != history.shown(confirmed_lsn):
        raise Broken("I4", f"the log ends at {end_lsn}, below {confirmed_lsn}")
    return shown


def check_base(store: JournalStore) -> None:
    """The base passes no message of *store*, and no container that holds one is free."""
    if not store.state.messages:
        return
    oldest = min(store.state.messages)
    if store.journal.base_lsn > oldest:
        raise Broken("I12", f"the base is {store.journal.base_lsn}, message {oldest} lives")
    for message_id in store.state.messages:
        if message_id < store.journal.durable_lsn and message_id // store.journal.container_bytes not in (
            store.journal.pool.slots()
        ):
            raise Broken("I12", f"the container of message {message_id} was given away")
