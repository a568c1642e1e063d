"""Moves of messages from queues that a cluster has, or to them. Core only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...base.errors import CairnError
from ..kernel.commit_queue import Shown
from ..kernel.context import CoreContext
from ..nodes.replication_port import Cluster, Kept
from ..queues.ends import TargetQueue, own, shared
from .moves import REASONS, LocalMoves, Move, placed, shown, take_off


class ReplicatedMoves:
    """Moves by way of the cluster, where it has the queue or a target."""

    def __init__(self, core: CoreContext, cluster: Cluster) -> None:
        self._core = core
        self._cluster = cluster
        self._local = LocalMoves(core)

    def move(self, move: Move, then: Callable[[], None], refused: Callable[[], None]) -> int | None:
        if not shared([move.queue]) and not shared(move.targets):
            return self._local.move(move, then, refused)
        self._order(move, then, refused)
        return None

    def _order(self, move: Move, then: Callable[[], None], refused: Callable[[], None]) -> None:
        queue, entry, reason, targets, content = move
        cluster = self._cluster
        ordered, others = shared(targets), own(targets)
        content = shown(queue, entry.failures, reason, targets, content, self._core.clock.wall_us())
        queue.contents.delayed[entry] = None
        if shared([queue]):
            lsn, kept_here = self._keep_here(others, content, entry.message_id > 0)
            queue.locked[entry] = None  # it belongs to this member, even if another member leads the queue meanwhile

            def kept() -> None:
                queue.locked.pop(entry, None)
                cluster.move(queue, entry, ordered, content, REASONS[reason], then, refused)

            self._core.commits.show(lsn, kept_here, kept)
            return

        def there() -> None:
            queue.contents.delayed.pop(entry, None)
            lsn = take_off(self._core, queue, entry, reason)
            self._core.commits.when_durable(lsn, then)

        def nowhere() -> None:
            if reason or others:
                there()
                return
            queue.contents.delayed.pop(entry, None)
            if not entry.is_dequeued:
                queue.contents.give_back(entry)
                self._core.schedule_dispatch(queue)
            refused()

        cluster.enqueue(ordered, Kept([(content, bool(entry.message_id))], True), there, nowhere)

    def _keep_here(self, targets: Sequence[TargetQueue], content: bytes, lasts: bool) -> tuple[int, Shown]:
        """Put a message on queues that only this member has, before it is off one that all have."""
        now_us = self._core.clock.wall_us()
        lasting = [target for target in targets if lasts and target.queue_id]
        transaction = self._core.store.transactions.begin(now_us)
        try:
            for target in lasting:
                transaction.put(target.queue_id, content, now_us)
            lsn = transaction.commit(now_us)
        except CairnError:
            transaction.rollback(now_us)
            raise
        ids = {target: message_id for target, (message_id, _) in zip(lasting, transaction.stored(), strict=True)}
        return lsn, placed(targets, ids, content)
