"""Encodes the calls of the broker to its cluster as events, and multicasts them (D39).

Nothing has to be suppressed while a message is routed: one member decides the effect of a queue's policy on other
messages, and multicasts it like any other event (D77: the member that rejects a message also moves it). Contents are
passed on unchanged (D81). Core only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..amqp.ports import TerminalEnd
from ..base.callbacks import ignore
from ..broker.contents.ports import QueueState
from ..broker.federation.upstream_link import ReplicaPosition
from ..broker.messages.entry import ARRIVAL_MASK, Entry
from ..broker.nodes.replication_port import Gathered, Kept, Report, Then, Work
from ..broker.queues.ends import SourceQueue, TargetQueue
from ..broker.queues.queue import Queue
from ..store.contract.dequeue_reason import DequeueReason
from .kernel import events
from .kernel.events import DequeueEvent, EnqueueEvent, Message, MoveEvent, TransactionEvent
from .kernel.local_messages import NOTHING, LocalEvent
from .member import ClusterMember
from .nodes.cluster_nodes import is_replicated
from .replication.replica import Replica

_ENQUEUE, _DEQUEUE, _TRANSACTION = (bytes([kind]) for kind in (events.ENQUEUE, events.DEQUEUE, events.TRANSACTION))
"""The frames in a cluster of one member: only their kind, since no member receives or decodes them."""
EVENT_BYTES = 60 << 10
"""The approximate size of an event of several messages."""


class ReplicatedOrder:
    """The order of one queue: a change is applied when it comes back in the order of all members."""

    finds_by_position = True
    counts_failures = False
    remembers_together = True
    limits_events = True

    __slots__ = ("_member", "_queue")

    def __init__(self, queue: SourceQueue, member: ClusterMember) -> None:
        self._queue = queue
        self._member = member

    def take(self, entries: Sequence[Entry], reason: DequeueReason, then: Callable[..., None], *args: Any) -> None:
        if entries:
            self.drop(entries, reason, partial(then, *args))
        else:
            self.answer(then, *args)

    def drop(self, entries: Sequence[Entry], reason: DequeueReason, then: Then) -> None:
        queue, member = self._queue, self._member
        event = DequeueEvent(reason, queue.name, tuple([entry.position & ARRIVAL_MASK for entry in entries]))
        local = LocalEvent(then, queue=queue, entries=entries, event=event)
        member.broadcaster.send(_DEQUEUE if member.state.is_alone else events.dequeue(*event), local)

    def drop_free(self, entries: Sequence[Entry], reason: DequeueReason, take_out: Callable[[Entry], bool]) -> None:
        out = [entry for entry in entries if not entry.is_dequeued and take_out(entry)]
        if out:
            self.drop(out, reason, ignore)

    def drop_returned(self, entry: Entry, reason: DequeueReason) -> bool:
        return False

    def dead_letter(self, entry: Entry, reason: DequeueReason, then: Callable[[int], None]) -> None:
        self._queue.contents.delayed[entry] = None
        self.drop([entry], reason, lambda: then(0))

    def still_has(self, entry: Entry) -> bool:
        return True  # purged messages are marked as gone

    def answer(self, then: Callable[..., None], *args: Any) -> None:
        self._member.flow.when_answered(partial(then, *args))

    def requeue(self, entry: Entry, failed: bool, then: Then) -> bool:
        entry.failures -= failed  # it is counted when that is ordered
        self._member.returns.add(self._queue, entry, failed, then)
        return False

    def rewrite(self, entry: Entry, content: bytes) -> int:
        self._member.returns.rewrite(entry, content)
        return 0

    def release(self, entry: Entry, failed: bool) -> None:
        self.requeue(entry, failed, ignore)

    def release_all(self) -> None:
        self._member.returns.order()

    def _is_removed(self) -> bool:
        replica = self._member.owners.replicas.get(self._queue.name)
        return replica is None or replica.queue is not self._queue

    def consuming(self) -> None:
        if not self._is_removed():
            self._member.owners.consuming(self._queue.name)

    def not_consuming(self) -> None:
        if not self._is_removed():
            self._member.owners.not_consuming(self._queue.name)

    def has_other_consumers(self) -> bool:
        replica = self._member.owners.replicas.get(self._queue.name)
        return replica is not None and not replica.interested <= {self._member.state.me}

    def deletes(self) -> bool:
        is_there = self._queue.name in self._member.owners.replicas
        return is_there and self._queue.is_owner and not self.has_other_consumers()

    def purge(self, done: Callable[[int | Exception], None], user: str) -> None:
        self._member.purges.ask(self._queue.name, done)

    def deleted(self) -> None:
        self._member.owners.removed(self._queue.name)
        self._member.feeds.removed(self._queue.name)


class BrokerHandler:
    """The port of a broker to its cluster (`broker.broker.BrokerMembers`)."""

    shares_queues = True
    replicates = staticmethod(is_replicated)

    def __init__(self, member: ClusterMember) -> None:
        self.member = member
        self.is_alone = member.state.is_alone
        self.nodes, self.build, self.attach = member.make_nodes, member.build, member.attach
        self.durable, self.step = member.durable, member.step
        self.not_serving_reason = member.service.not_serving_reason

    def made(self, queue: Queue) -> None:
        queue.replicated = True
        queue.order = ReplicatedOrder(queue, self.member)
        self.member.owners.made(Replica(queue))

    def follow(self, queue: QueueState, said: ReplicaPosition, terminal: TerminalEnd) -> None:
        self.member.feeds.open(queue, said, terminal)

    def enqueue(self, queues: Sequence[TargetQueue], kept: Kept, then: Then, refused: Then) -> None:
        names = [queue.name for queue in queues]
        batches = [kept.messages] if self.is_alone else _split(kept.messages)
        for number, batch in enumerate(batches, 1):
            is_last = number == len(batches)
            local = LocalEvent(
                then if is_last else NOTHING.then, refused if is_last else None, Kept(batch, kept.timed), names,
                received=_count_arrivals(queues, batch),
            )  # fmt: skip
            if self.is_alone:
                self.member.broadcaster.send(_ENQUEUE, local)
            else:
                self.member.flow.multicast(local, sum([len(content) for content, _ in batch]))

    def move(
        self, queue: SourceQueue, entry: Entry, targets: Sequence[TargetQueue], content: bytes, reason: DequeueReason,
        then: Then,
        refused: Then,
    ) -> None:  # fmt: skip
        names = [target.name for target in targets]
        event = MoveEvent(reason, queue.name, entry.position & ARRIVAL_MASK, names, (content, entry.message_id > 0))
        self.member.broadcaster.send(
            events.move(*event), LocalEvent(then, refused, queue=queue, entries=(entry,), event=event)
        )

    def transact(self, work: Work, received: Then, then: Then, refused: Then) -> None:
        parts: list[EnqueueEvent | DequeueEvent | MoveEvent] = []
        locals_: list[LocalEvent] = []
        for queues, kept in work.puts:
            parts.append(EnqueueEvent([queue.name for queue in queues], kept.messages, kept.timed))
            locals_.append(NOTHING)
        for queue, entries, reason in work.takes:
            parts.append(DequeueEvent(reason, queue.name, tuple([entry.position & ARRIVAL_MASK for entry in entries])))
            locals_.append(LocalEvent(NOTHING.then, queue=queue, entries=entries))
        for queue, entry, targets, message, reason in work.moves:
            names = [target.name for target in targets]
            parts.append(MoveEvent(reason, queue.name, entry.position & ARRIVAL_MASK, names, message))
            locals_.append(LocalEvent(NOTHING.then, queue=queue, entries=(entry,)))
        local = LocalEvent(then, refused, event=TransactionEvent(parts), parts=locals_, received=received)
        if self.is_alone:
            self.member.broadcaster.send(_TRANSACTION, local)
            return
        event = events.transaction(parts)
        if work.puts:
            self.member.flow.multicast(local, len(event), event)
        else:
            self.member.broadcaster.send(event, local)

    def when_answered(self, action: Then) -> None:
        self.member.flow.when_answered(action)

    @property
    def holds(self) -> bool:
        return self.member.flow.holds

    def held_up(self, then: Then) -> bool:
        return self.member.flow.held_up(then)

    def reports_by(self, reporter: Callable[[Report], Report]) -> None:
        self.member.queries.reporter = reporter

    def gather(self, asked: Report, limit_s: float, done: Callable[[Gathered], None]) -> None:
        self.member.queries.gather(asked, limit_s, done)


def _split(messages: Sequence[Message]) -> list[Sequence[Message]]:
    """Splits *messages* into batches, each for one event."""
    size = sum([len(content) for content, _ in messages])
    if size + 4 * len(messages) <= EVENT_BYTES:
        return [messages]
    batches: list[Sequence[Message]] = []
    batch: list[Message] = []
    size = 0
    for message in messages:
        if batch and size + len(message[0]) + 4 > EVENT_BYTES:
            batches.append(batch)
            batch, size = [], 0
        batch.append(message)
        size += len(message[0]) + 4
    return [*batches, batch]


def _count_arrivals(queues: Sequence[TargetQueue], messages: Sequence[Message]) -> Callable[[], None] | None:
    """Counts *messages* against the limits of *queues* until the action that it returns is called.

    Returns None if no queue has limits.
    """
    all_limits = [queue.limits for queue in queues if queue.limits is not None]
    if not all_limits:
        return None
    size = sum([len(content) for content, _ in messages])
    for limits in all_limits:
        limits.comes(len(messages), size)

    def received() -> None:
        for limits in all_limits:
            limits.came(len(messages), size)

    return received
