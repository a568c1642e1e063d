"""Encodes the calls of the broker to its cluster as events, and multicasts them (D39).

Nothing has to be suppressed while a message is routed: one member decides the effect of a queue's policy on other
messages, and multicasts it like any other event (D77: the member that rejects a message also moves it). Contents are
passed on unchanged (D81). Core only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..amqp.ports import TerminalEnd
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
from .replicated_order import ReplicatedOrder
from .replication.replica import Replica

_ENQUEUE, _TRANSACTION = bytes([events.ENQUEUE]), bytes([events.TRANSACTION])
"""The frames in a cluster of one member: only their kind, since no member receives or decodes them."""
EVENT_BYTES = 60 << 10
"""The approximate size of an event of several messages."""


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
