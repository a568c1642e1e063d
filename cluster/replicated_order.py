"""The order of changes to queues that all members of a cluster have. Core only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..base.callbacks import ignore
from ..broker.messages.entry import ARRIVAL_MASK, Entry
from ..broker.nodes.replication_port import Then
from ..broker.queues.ends import SourceQueue
from ..store.contract.dequeue_reason import DequeueReason
from .kernel import events
from .kernel.events import DequeueEvent
from .kernel.local_messages import LocalEvent
from .member import ClusterMember

_DEQUEUE = bytes([events.DEQUEUE])
"""The frame in a cluster of one member: only its kind, since no member receives or decodes it."""


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
