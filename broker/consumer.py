"""Consumers: drivers of channels on which a client takes messages off a queue."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..amqp.proton import ACCEPTED, MODIFIED, REJECTED
from ..base.errors import CairnError
from ..channel.words import NOT_ACQUIRED, Delivery, Forward, Fragment, Outcome, TerminalEnd
from ..store.why import Why
from .entry import Entry
from .policy import REJECTION, TOO_OFTEN
from .queue import Queue

if TYPE_CHECKING:
    from .broker import Broker
    from .transaction import Transaction

TAKE_AT_ONCE = 256
"""Messages, and pieces of long ones, taken for good in one go: stored content is held in memory for that."""


class Receiving:
    """What consumers and browsers have in common: the client's credit. Core only."""

    def __init__(self, broker: Broker, terminal: TerminalEnd, queue: Queue) -> None:
        self.terminal = terminal
        self._broker = broker
        self._queue = queue
        self._limit = 0
        self._forwarded = 0

    def room(self) -> int:
        return self._limit - self._forwarded

    def post(self, fragments: Sequence[Fragment]) -> None:
        """A client that receives sends nothing."""

    def post_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        """The same."""

    def _spend(self, limit: int) -> int:
        """The credit up to *limit* that no message was found for is gone; how much that is."""
        spent = max(0, limit - self._forwarded)
        self._forwarded += spent
        return spent

    def _forward(self, messages: list[Forward]) -> None:
        self._forwarded += len(messages)
        self.terminal.forward(messages)


class Consumer(Receiving):
    """Takes messages off a queue: for good with the outcome accepted or rejected, back on it otherwise."""

    def __init__(self, broker: Broker, terminal: TerminalEnd, queue: Queue, *, presettled: bool) -> None:
        super().__init__(broker, terminal, queue)
        self._presettled = presettled
        self.acquires: Transaction | None = None
        """What it is handed is acquired in that one."""
        self._is_refused = False
        """Its link is being closed, because such a one can't be had."""
        self._draining = False
        self._closed = False
        self._is_cut_off = False
        self._taking = False
        """Messages are on their way off the queue for good; more are taken when these have gone out."""
        self.unsettled: dict[Entry, None] = {}
        """What the client has and has not settled (router guide C34)."""
        self._join()

    def _join(self) -> None:
        self._queue.consumers.append(self)

    def _leave(self) -> None:
        self._queue.draining.pop(self, None)
        if self in self._queue.consumers:
            self._queue.consumers.remove(self)

    def request(self, limit: int, drain: bool) -> None:
        self._limit = limit
        self._draining = drain
        if drain:
            self._drain()
        else:
            self._queue.draining.pop(self, None)
            self._broker.touch(self._queue)

    def acquire_in(self, connection: object, txn_id: bytes, limit: int, drain: bool) -> None:
        """As `channel.words.AcquiringEnd` says."""
        if self._closed:
            return
        if self.acquires is not None:
            self.acquires.acquirers.pop(self, None)
            self.acquires = None
        if txn_id:
            transaction = self._broker.transactions.find(connection, txn_id)
            error = NOT_ACQUIRED if self._presettled else transaction.failure  # what is settled can't be taken back
            if error is not None:
                self._is_refused = True
                self.terminal.failure(*error)
                return
            self.acquires = transaction
            transaction.acquirers[self] = None
        self.request(limit, drain)

    def wants_more(self) -> None:
        """It may have messages that it was not given before."""
        self._broker.touch(self._queue)

    @property
    def queue(self) -> Queue:
        return self._queue

    def _drain(self) -> None:
        """Hand out what there is; when that has gone out, give back the rest of the credit."""
        self._queue.draining[self] = None
        self._queue.dispatch()

    def handed_out(self) -> None:
        if self._taking or self._queue.is_reading_for(self):
            return
        del self._queue.draining[self]
        self._draining = False
        self.terminal.drained(self._spend(self._limit))

    def take(self, entries: list[Entry]) -> None:
        if self._presettled:
            self._take_for_good(entries)
            return
        store = self._broker.store
        self.unsettled.update(dict.fromkeys(entries))
        self._note(entries)
        messages: list[Forward] = [
            (entry, entry.content if entry.content is not None and not entry.acquired else entry.outgoing(store))
            for entry in entries
        ]
        if self.acquires is None:
            self._forward(messages)
        else:
            self._forwarded += len(messages)
            self.acquires.acquire(self, entries)
            self.terminal.forward_in(self.acquires.id, messages)

    def _note(self, entries: Sequence[Entry]) -> None:
        """These were handed out here."""
        if self._broker.acquisitions is not None:
            self._broker.acquisitions.took(self._queue.queue_id, self.terminal, entries)

    def room(self) -> int:
        if self._taking or self._is_refused or (self.acquires is not None and self.acquires.failure is not None):
            return 0
        room = super().room()
        return min(room, TAKE_AT_ONCE) if self._presettled else room

    def _take_for_good(self, entries: list[Entry]) -> None:
        """At most once: they are off the queue, durably, before they are sent."""
        self._taking = True
        long: list[int] = []
        pieces = 0
        for number, entry in enumerate(entries):
            if entry.content is None:  # its records may be reclaimed before it is sent
                pieces += self._broker.store.piece_count(entry.message_id)
                if long and pieces > TAKE_AT_ONCE:
                    for other in entries[number:]:
                        self._queue.give_back(other)
                    del entries[number:]
                    break
                long.append(entry.message_id)
        self._forwarded += len(entries)
        self.unsettled.update(dict.fromkeys(entries))
        self._note(entries)
        if long:
            self._broker.reader.load_whole(long, lambda contents: self._loaded(entries, contents))
        else:
            self._send_for_good([(entry, entry.outgoing(self._broker.store)) for entry in entries])

    def _loaded(self, entries: list[Entry], contents: list[bytes | CairnError]) -> None:
        """The long ones among *entries* were read."""
        if self._is_cut_off:
            return
        if self._closed:
            self._let_go()
            for entry in entries:
                if not entry.gone:
                    self._queue.give_back(entry)
            self._broker.touch(self._queue)
            return
        whole = iter(contents)
        messages: list[Forward] = []
        for entry in entries:
            content = next(whole) if entry.content is None else entry.content
            if isinstance(content, CairnError):
                self._forwarded -= 1
                if not entry.gone:
                    self._queue.put_aside(entry, content)
            else:
                messages.append((entry, entry.marked(content)))
        self._send_for_good(messages)

    def _send_for_good(self, messages: list[Forward]) -> None:
        broker, queue = self._broker, self._queue
        if self._is_cut_off:
            return
        messages = [message for message in messages if not message[0].gone]  # the queue may have gone meanwhile
        entries = [entry for entry, _ in messages]
        self._let_go()
        if queue.replicated:
            assert broker.cluster is not None
            broker.cluster.take(queue, entries, Why.ACCEPTED, partial(self._taken, messages))
            return
        stored = [entry.message_id for entry in entries if entry.message_id]
        lsns = broker.store.dequeue_all(stored, queue.queue_id, broker.clock.wall_us(), Why.ACCEPTED)
        queue.took(entries)
        broker.line.when_durable(lsns[-1] if lsns else 0, self._taken, messages)

    def _taken(self, messages: list[Forward]) -> None:
        self._taking = False
        self.terminal.forward(messages)
        if self._draining:
            self._drain()
        else:
            self._broker.touch(self._queue)  # for the next ones

    def outcomes_in(self, connection: object, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        self._broker.transactions.take(connection, self, self._queue, provisional)

    def _let_go(self) -> None:
        self.unsettled.clear()
        self._queue.leavers.pop(self, None)

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        if self._is_cut_off:
            return
        if self._broker.transactions.taken:
            outcomes = self._broker.transactions.outside(self, outcomes)
        queue, unsettled = self._queue, self.unsettled
        settle: list[tuple[Delivery, int]] = []
        done: list[Entry] = []
        back: list[Outcome] = []
        for outcome in outcomes:
            delivery, entry, state = outcome[0], outcome[1], outcome[2]  # a slice takes twice as long
            unsettled.pop(entry, None)
            if entry.gone:  # with its queue
                pass
            elif state == ACCEPTED:
                done.append(entry)
            else:
                back.append(outcome)
                continue
            if delivery is not None:
                settle.append((delivery, state))
        if queue.replicated:
            self._order(done, settle)
            self.take_back(back)
            return
        stored = [entry.message_id for entry in done if entry.message_id]
        lsns = self._broker.store.dequeue_all(stored, queue.queue_id, self._broker.clock.wall_us(), Why.ACCEPTED)
        queue.took(done)
        if back:
            settle += self.take_back(back)
        if settle:
            self._broker.line.when_durable(lsns[-1] if lsns else 0, self.terminal.settle, settle)

    def _order(self, done: list[Entry], settle: list[tuple[Delivery, int]]) -> None:
        """The cluster is to take these off the queue; then they are settled."""
        cluster = self._broker.cluster
        assert cluster is not None
        if done:
            cluster.take(self._queue, done, Why.ACCEPTED, partial(self.terminal.settle, settle))
        elif settle:
            cluster.when_answered(partial(self.terminal.settle, settle))

    def cut_off(self) -> list[Entry]:
        """The client's connection is being closed, and what it has is not its own any more: all of that."""
        held = [entry for entry in self.unsettled if not entry.gone]
        taken = self._broker.transactions.taken
        for entry in held:
            if entry in taken:
                taken[entry].forget(entry)
        self._closed = self._is_cut_off = True
        self._let_go()
        self._leave()
        return held

    def take_back(self, outcomes: Sequence[Outcome]) -> list[tuple[Delivery, int]]:
        """What the client did not accept goes back, or away from here; what can be settled as soon as that is told."""
        queue = self._queue
        settle: list[tuple[Delivery, int]] = []
        for delivery, entry, state, failed, undeliverable, *_ in outcomes:
            has_failed = state == MODIFIED and failed
            is_over = has_failed and queue.failed(entry)
            if state == MODIFIED and undeliverable:
                entry.excluded = (entry.excluded or set()) | {self}
            entry.acquired = True
            if state == REJECTED:
                self._bury(entry, REJECTION, delivery, state)
            elif is_over:
                self._bury(entry, TOO_OFTEN, delivery, state)
            elif queue.replicated:
                entry.failures -= has_failed  # it is counted when that is ordered
                told = () if delivery is None else ((delivery, state),)
                self._broker.order_back(queue, entry, has_failed, partial(self._settle_told, told))
            else:
                self._broker.returns.give_back(queue, entry, failed=has_failed)
                if delivery is not None:
                    settle.append((delivery, state))
        self._broker.touch(queue)
        return settle

    def _settle_told(self, told: Sequence[tuple[Delivery, int]]) -> None:
        if told:
            self.terminal.settle(told)

    def over(self, entry: Entry) -> None:
        """What becomes of a message that was taken in a transaction is done."""

    def _buried(self, entry: Entry) -> None:
        """It was moved away, or can't be."""

    def _bury(self, entry: Entry, reason: str, delivery: Delivery | None, state: int) -> None:
        def buried(lsn: int) -> None:
            self._buried(entry)
            if delivery is not None:
                self._broker.line.when_durable(lsn, self.terminal.settle, [(delivery, state)])

        self._broker.returns.bury(self._queue, entry, reason, buried)

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        self._closed = True
        self._leave()
        if self.acquires is not None:
            self.acquires.acquirers.pop(self, None)
            self.acquires = None
        if self._is_cut_off:
            self._broker.driver_closed(self, self._queue, for_good=for_good)
            return
        queue = self._queue
        taken = self._broker.transactions.taken
        lost = lost and not self._broker.spares(queue)
        for entry in returned:
            self.unsettled.pop(entry, None)
            if entry.gone:
                continue
            if entry in taken and taken[entry].lose(entry, lost=lost):
                continue
            entry.acquired = True
            if lost and queue.failed(entry):
                self._bury(entry, TOO_OFTEN, None, 0)
            elif queue.replicated:
                entry.failures -= lost
                self._broker.order_back(queue, entry, lost, _nothing)
            else:
                queue.give_back(entry)
        if self.unsettled:
            queue.leavers[self] = None
        else:
            queue.leavers.pop(self, None)
        self._broker.touch(queue)
        self._broker.driver_closed(self, queue, for_good=for_good)


def _nothing() -> None:
    """For what nobody waits for."""
