"""Encodes the calls of the broker to its cluster as events, and multicasts them (D39).

Nothing has to be suppressed while a message is routed: one member decides the effect of a queue's policy on other
messages, and multicasts it like any other event (D77: the member that rejects a message also moves it). Contents are
passed on unchanged (D81). Core only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..amqp.ports import TerminalEnd
from ..base.errors import StoreError
from ..broker.contents.policy import Policy
from ..broker.contents.ports import QueueState
from ..broker.federation.upstream_link import ReplicaPosition
from ..broker.messages.entry import ARRIVAL_MASK, Entry
from ..broker.nodes.replication_port import Gathered, Kept, Report, Then, Work
from ..broker.queues.ends import SourceQueue, TargetQueue
from ..broker.queues.queue import Queue
from ..store.contract.dequeue_reason import DequeueReason
from .kernel import events
from .kernel.events import DequeueEvent, EnqueueEvent, MoveEvent, ReleaseEvent, TransactionEvent
from .kernel.local_messages import NOTHING, LocalEvent
from .member import ClusterMember
from .replicated_order import ReplicatedOrder, ReplicatedReturns
from .replication.enqueue_batches import count_arrivals, split
from .replication.replica import Replica

_ENQUEUE, _DEQUEUE, _TRANSACTION = (bytes([kind]) for kind in (events.ENQUEUE, events.DEQUEUE, events.TRANSACTION))
"""The frames of a cluster of one member: only their kind, since no member receives or decodes them."""
MOST_REMEMBERED = 1 << 16


class BrokerHandler:
    """The port of a broker to its cluster (`broker.nodes.replication_port.Cluster`)."""

    returns: ReplicatedReturns
    """The returns of messages to replicated queues; set when the parts of the member are built."""

    def __init__(self, member: ClusterMember) -> None:
        self.member = member

    def replicates(self, name: str, policy: Policy) -> bool:
        if name.startswith("$") or not policy.replicated:
            return False
        if policy.duplicate_window > MOST_REMEMBERED:
            raise StoreError(
                f"queue {name!r}",
                f"`duplicate-window` exceeds the limit of {MOST_REMEMBERED} message-ids for a replicated queue",
                "reduce `duplicate-window`, or set `replicated` to false",
            )
        return True

    def change(self, about: dict[str, Any], done: Callable[[object], None]) -> None:
        self.member.wiring_changes.change(about, done)

    def made(self, queue: Queue) -> None:
        queue.replicated = True
        queue.order = ReplicatedOrder(queue, self.returns)
        self.member.owners.made(Replica(queue))

    def removed(self, queue: SourceQueue) -> None:
        self.member.owners.removed(queue.name)
        self.member.feeds.removed(queue.name)

    @property
    def shares_queues(self) -> bool:
        return True

    @property
    def is_alone(self) -> bool:
        return self.member.state.is_alone

    def follow(self, queue: QueueState, said: ReplicaPosition, terminal: TerminalEnd) -> None:
        self.member.feeds.open(queue, said, terminal)

    def _has(self, queue: SourceQueue) -> bool:
        replica = self.member.owners.replicas.get(queue.name)
        return replica is not None and replica.queue is queue

    def consuming(self, queue: SourceQueue) -> None:
        if self._has(queue):
            self.member.owners.consuming(queue.name)

    def not_consuming(self, queue: SourceQueue) -> None:
        if self._has(queue):
            self.member.owners.not_consuming(queue.name)

    def deletes(self, queue: SourceQueue) -> bool:
        replica = self.member.owners.replicas.get(queue.name)
        return replica is not None and queue.is_owner and replica.interested <= {self.member.state.me}

    def is_taken(self, queue: SourceQueue) -> bool:
        replica = self.member.owners.replicas.get(queue.name)
        return replica is not None and not replica.interested <= {self.member.state.me}

    def not_serving_reason(self) -> str:
        return self.member.service.not_serving_reason()

    def enqueue(self, queues: Sequence[TargetQueue], kept: Kept, then: Then, refused: Then) -> None:
        names = [queue.name for queue in queues]
        batches = [kept.messages] if self.member.state.is_alone else split(kept.messages)
        for number, batch in enumerate(batches, 1):
            is_last = number == len(batches)
            local = LocalEvent(
                then if is_last else NOTHING.then, refused if is_last else None, Kept(batch, kept.timed), names,
                received=count_arrivals(queues, batch),
            )  # fmt: skip
            if self.member.state.is_alone:
                self.member.broadcaster.send(_ENQUEUE, local)
            else:
                self.member.flow.multicast(local, sum([len(content) for content, _ in batch]))

    def take(self, queue: SourceQueue, entries: Sequence[Entry], reason: DequeueReason, then: Then) -> None:
        event = DequeueEvent(reason, queue.name, tuple([entry.position & ARRIVAL_MASK for entry in entries]))
        local = LocalEvent(then, queue=queue, entries=entries, event=event)
        self.member.broadcaster.send(_DEQUEUE if self.member.state.is_alone else events.dequeue(*event), local)

    def give_back(self, queue: SourceQueue, entries: Sequence[tuple[Entry, bool]], then: Then) -> None:
        positions = tuple([entry.position & ARRIVAL_MASK for entry, _ in entries])
        failed = bytes([bad for _, bad in entries])
        event = ReleaseEvent(queue.name, positions, failed)
        local = LocalEvent(then, queue=queue, entries=[entry for entry, _ in entries], event=event)
        self.member.broadcaster.send(events.release(queue.name, positions, [*map(bool, failed)]), local)

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
        if self.member.state.is_alone:
            self.member.broadcaster.send(_TRANSACTION, local)
            return
        event = events.transaction(parts)
        if work.puts:
            self.member.flow.multicast(local, len(event), event)
        else:
            self.member.broadcaster.send(event, local)

    def purge(self, queue: SourceQueue, done: Callable[[int | Exception], None]) -> None:
        self.member.purges.ask(queue.name, done)

    def when_answered(self, action: Then) -> None:
        member = self.member
        if not len(member.locals) and not member.commits.backlog and not member.flow.held_bytes:
            action()
        else:
            behind = LocalEvent(action, always=True)
            if not member.flow.multicast_behind(behind):
                member.broadcaster.send(events.control("nothing"), behind)

    @property
    def holds(self) -> bool:
        return self.member.flow.holds

    def held_up(self, then: Then) -> bool:
        return self.member.flow.held_up(then)

    def reports_by(self, reporter: Callable[[Report], Report]) -> None:
        self.member.queries.reporter = reporter

    def gather(self, asked: Report, limit_s: float, done: Callable[[Gathered], None]) -> None:
        self.member.queries.gather(asked, limit_s, done)

    def durable(self) -> None:
        self.member.durable()

    def step(self) -> bool:
        return self.member.step()
