"""What the broker tells the cluster, as events: each call is encoded here and multicast (D39).

Nothing has to be suppressed while a message is routed: what a queue's policy does to other messages is decided by one
member and said by it like anything else (D77: who rejects, moves). Contents go as they came (D81). Core only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..base.errors import StoreError
from ..broker.broker import Broker
from ..broker.cluster import Gathered, Kept, Report, Then, Work
from ..broker.entry import ARRIVAL_MASK, Entry
from ..broker.follower_link import Said
from ..broker.gate import Gate
from ..broker.nodes import Gone, MakeQueue
from ..broker.policy import Policy
from ..broker.queue import Queue
from ..channel.words import TerminalEnd
from ..store.why import Why
from . import events
from .cluster_nodes import Answered, ClusterNodes
from .core import Core
from .events import Dequeue, Enqueue, Message, Move, Release, Transaction
from .local_messages import NOTHING, Local
from .replica import Replica

_ENQUEUE, _DEQUEUE, _TRANSACTION = (bytes([kind]) for kind in (events.ENQUEUE, events.DEQUEUE, events.TRANSACTION))
"""What a cluster of one says: nobody else hears it, and its own events nobody decodes."""
MOST_REMEMBERED = 1 << 16
EVENT_BYTES = 60 << 10
"""Messages are said in events of about that size."""


class BrokerHandler:
    """A `broker.cluster.Cluster`."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def attach(self, broker: Broker) -> None:
        self.core.attach(broker)

    def nodes(self, broker: Broker, make_queue: MakeQueue, gone: Gone) -> ClusterNodes:
        self.core.begin(broker)
        return ClusterNodes(self, broker.store, broker.post, make_queue, gone)

    # ---- queues ---------------------------------------------------------------------------------------------------

    def replicates(self, name: str, policy: Policy) -> bool:
        if name.startswith("$") or not policy.replicated:
            return False
        if policy.duplicate_window > MOST_REMEMBERED:
            raise StoreError(
                f"queue {name!r}",
                f"in a cluster a queue remembers up to {MOST_REMEMBERED} message-ids: newcomers get them in one piece",
                "make `duplicate-window` smaller, or give the queue `replicated` false",
            )
        return True

    def change(self, about: dict[str, Any], done: Answered) -> None:
        self.core.wiring.change(about, done)

    def made(self, queue: Queue) -> None:
        queue.replicated = True
        self.core.owners.made(Replica(queue))

    def gone(self, queue: Queue) -> None:
        self.core.owners.gone(queue.name)
        self.core.streaming.gone(queue.name)

    @property
    def is_alone(self) -> bool:
        return self.core.alone

    def follow(self, queue: Queue, said: Said, terminal: TerminalEnd) -> None:
        self.core.streaming.open(queue, said, terminal)

    def consuming(self, queue: Queue) -> None:
        replica = self.core.owners.replicas.get(queue.name)
        if replica is not None and replica.queue is queue:
            self.core.owners.consuming(queue.name)

    def not_consuming(self, queue: Queue) -> None:
        replica = self.core.owners.replicas.get(queue.name)
        if replica is not None and replica.queue is queue:
            self.core.owners.not_consuming(queue.name)

    def deletes(self, queue: Queue) -> bool:
        replica = self.core.owners.replicas.get(queue.name)
        return replica is not None and queue.decides and replica.interested <= {self.core.me}

    def is_taken(self, queue: Queue) -> bool:
        replica = self.core.owners.replicas.get(queue.name)
        return replica is not None and not replica.interested <= {self.core.me}

    def why_not_serving(self) -> str:
        return self.core.why_not_serving()

    # ---- messages -------------------------------------------------------------------------------------------------

    def put(self, queues: Sequence[Queue], kept: Kept, then: Then, refused: Then) -> None:
        names = [queue.name for queue in queues]
        gates = [queue.gate for queue in queues if queue.gate is not None]
        batches = [kept.messages] if self.core.alone else _batches(kept.messages)
        for number, batch in enumerate(batches, 1):
            is_last = number == len(batches)
            local = Local(
                then if is_last else _nothing, refused if is_last else None, Kept(batch, kept.timed), names,
                heard=_counted(gates, batch) if gates else None,
            )  # fmt: skip
            if self.core.alone:
                self.core.say(_ENQUEUE, local)
            else:
                self.core.flow.put(local, sum([len(content) for content, _ in batch]))

    def take(self, queue: Queue, entries: Sequence[Entry], why: Why, then: Then) -> None:
        event = Dequeue(why, queue.name, tuple([entry.position & ARRIVAL_MASK for entry in entries]))
        local = Local(then, queue=queue, entries=entries, event=event)
        self.core.say(_DEQUEUE if self.core.alone else events.dequeue(*event), local)

    def give_back(self, queue: Queue, entries: Sequence[tuple[Entry, bool]], then: Then) -> None:
        positions = tuple([entry.position & ARRIVAL_MASK for entry, _ in entries])
        failed = bytes([bad for _, bad in entries])
        event = Release(queue.name, positions, failed)
        local = Local(then, queue=queue, entries=[entry for entry, _ in entries], event=event)
        self.core.say(events.release(queue.name, positions, [*map(bool, failed)]), local)

    def move(
        self, queue: Queue, entry: Entry, targets: Sequence[Queue], content: bytes, why: Why, then: Then, refused: Then
    ) -> None:
        names = [target.name for target in targets]
        event = Move(why, queue.name, entry.position & ARRIVAL_MASK, names, (content, entry.message_id > 0))
        self.core.say(events.move(*event), Local(then, refused, queue=queue, entries=(entry,), event=event))

    def transact(self, work: Work, heard: Then, then: Then, refused: Then) -> None:
        parts: list[Enqueue | Dequeue | Move] = []
        locals_: list[Local] = []
        for queues, kept in work.puts:
            parts.append(Enqueue([queue.name for queue in queues], kept.messages, kept.timed))
            locals_.append(NOTHING)
        for queue, entries, why in work.takes:
            parts.append(Dequeue(why, queue.name, tuple([entry.position & ARRIVAL_MASK for entry in entries])))
            locals_.append(Local(_nothing, queue=queue, entries=entries))
        for queue, entry, targets, message, why in work.moves:
            names = [target.name for target in targets]
            parts.append(Move(why, queue.name, entry.position & ARRIVAL_MASK, names, message))
            locals_.append(Local(_nothing, queue=queue, entries=(entry,)))
        local = Local(then, refused, event=Transaction(parts), parts=locals_, heard=heard)
        if self.core.alone:
            self.core.say(_TRANSACTION, local)
            return
        event = events.transaction(parts)
        if work.puts:
            self.core.flow.put(local, len(event), event)
        else:
            self.core.say(event, local)

    def purge(self, queue: Queue, done: Callable[[int | Exception], None]) -> None:
        self.core.purging.ask(queue.name, done)

    # ---- steps ----------------------------------------------------------------------------------------------------

    def when_answered(self, action: Then) -> None:
        core = self.core
        if not len(core.locals) and not core.completion.backlog and not core.flow.held_bytes:
            action()
        else:
            behind = Local(action, always=True)
            if not core.flow.put_behind(behind):
                core.say(events.told("nothing"), behind)

    @property
    def holds(self) -> bool:
        return self.core.flow.holds

    def held_up(self, then: Then) -> bool:
        return self.core.flow.held_up(then)

    def reports_by(self, reporter: Callable[[Report], Report]) -> None:
        self.core.reports.reporter = reporter

    def gather(self, asked: Report, limit_s: float, done: Callable[[Gathered], None]) -> None:
        self.core.reports.gather(asked, limit_s, done)

    def durable(self) -> None:
        self.core.durable()

    def step(self) -> bool:
        return self.core.step()


def _batches(messages: Sequence[Message]) -> list[Sequence[Message]]:
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


def _counted(gates: Sequence[Gate], messages: Sequence[Message]) -> Then:
    """They count at the gates of their queues from now on until that is called."""
    size = sum([len(content) for content, _ in messages])
    for gate in gates:
        gate.comes(len(messages), size)

    def heard() -> None:
        for gate in gates:
            gate.came(len(messages), size)

    return heard


def _nothing() -> None:
    """The last batch tells."""


