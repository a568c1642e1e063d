"""Totals of deleted nodes, so that the totals of the broker never go down. Written on the core, read by any thread."""

from __future__ import annotations

from dataclasses import dataclass

from ..queues.views import QueueTotals
from .exchanges import Exchange


@dataclass
class RetiredTotals:
    """Sums over all nodes that were deleted since the broker started."""

    enqueued: int = 0
    taken: int = 0
    dead_lettered: int = 0
    expired: int = 0
    routed: int = 0
    unrouted: int = 0

    def take_over(self, node: QueueTotals | Exchange) -> None:
        if isinstance(node, Exchange):
            self.routed += node.routed
            self.unrouted += node.unrouted
        else:
            self.enqueued += node.enqueued
            self.taken += node.taken
            self.dead_lettered += node.dead_lettered
            self.expired += node.expired
