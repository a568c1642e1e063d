"""The order of changes to queues that all members of a cluster have. Core only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..base.callbacks import ignore
from ..broker.messages.entry import Entry
from ..broker.nodes.replication_port import Cluster
from ..broker.queues.ends import SourceQueue
from ..store.contract.dequeue_reason import DequeueReason


class ReplicatedReturns:
    """Messages that are returned to replicated queues in one step: one event for each queue."""

    def __init__(self, post: Callable[..., None], cluster: Cluster) -> None:
        """*post*: runs an action on the core, after the actions that wait there."""
        self.cluster = cluster
        self._post = post
        self._back: dict[SourceQueue, list[tuple[Entry, bool, Callable[[], None]]]] = {}
        """The entries to return, each with whether its delivery failed."""

    def add(self, queue: SourceQueue, entry: Entry, failed: bool, then: Callable[[], None]) -> None:
        """Return *entry* at the end of the step, at the latest; do *then* when that is safe."""
        if not self._back:
            self._post(self.order)
        self._back.setdefault(queue, []).append((entry, failed, then))

    def order(self) -> None:
        """Return all of them now."""
        back, self._back = self._back, {}
        for queue, those in back.items():
            entries = [(entry, failed) for entry, failed, _ in those]
            self.cluster.give_back(queue, entries, partial(_do_all, [then for _, _, then in those]))


class ReplicatedOrder:
    """The order of one queue: a change is applied when it comes back in the order of all members."""

    finds_by_position = True
    counts_failures = False
    remembers_together = True
    limits_events = True

    __slots__ = ("_cluster", "_queue", "_returns")

    def __init__(self, queue: SourceQueue, returns: ReplicatedReturns) -> None:
        self._queue = queue
        self._returns = returns
        self._cluster = returns.cluster

    def take(self, entries: Sequence[Entry], reason: DequeueReason, then: Callable[..., None], *args: Any) -> None:
        if entries:
            self._cluster.take(self._queue, entries, reason, partial(then, *args))
        else:
            self._cluster.when_answered(partial(then, *args))

    def drop(self, entries: Sequence[Entry], reason: DequeueReason, then: Callable[[], None]) -> None:
        self._cluster.take(self._queue, entries, reason, then)

    def drop_free(self, entries: Sequence[Entry], reason: DequeueReason, take_out: Callable[[Entry], bool]) -> None:
        out = [entry for entry in entries if not entry.is_dequeued and take_out(entry)]
        if out:
            self._cluster.take(self._queue, out, reason, ignore)

    def drop_returned(self, entry: Entry, reason: DequeueReason) -> bool:
        return False

    def dead_letter(self, entry: Entry, reason: DequeueReason, then: Callable[[int], None]) -> None:
        self._queue.contents.delayed[entry] = None
        self._cluster.take(self._queue, [entry], reason, lambda: then(0))

    def still_has(self, entry: Entry) -> bool:
        return True  # purged messages are marked as gone

    def answer(self, then: Callable[..., None], *args: Any) -> None:
        self._cluster.when_answered(partial(then, *args))

    def requeue(self, entry: Entry, failed: bool, then: Callable[[], None]) -> bool:
        entry.failures -= failed  # it is counted when that is ordered
        self._returns.add(self._queue, entry, failed, then)
        return False

    def release(self, entry: Entry, failed: bool) -> None:
        self.requeue(entry, failed, ignore)

    def release_all(self) -> None:
        self._returns.order()

    def consuming(self) -> None:
        self._cluster.consuming(self._queue)

    def not_consuming(self) -> None:
        self._cluster.not_consuming(self._queue)

    def has_other_consumers(self) -> bool:
        return self._cluster.is_taken(self._queue)

    def deletes(self) -> bool:
        return self._cluster.deletes(self._queue)

    def purge(self, done: Callable[[int | Exception], None], user: str) -> None:
        self._cluster.purge(self._queue, done)

    def deleted(self) -> None:
        self._cluster.removed(self._queue)


def _do_all(actions: Sequence[Callable[[], None]]) -> None:
    for action in actions:
        action()
