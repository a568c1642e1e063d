"""The removal of nodes: handles their messages and links when they are deleted or replaced. Core only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..queues.purges import QueuePurges
from ..queues.queue import Queue
from .exchanges import Exchange
from .subscriptions import subscribers


@dataclass
class RetiredTotals:
    """Sums over all nodes that were deleted since the broker started, so that the totals of the broker never go down.

    Written on the core, read by any thread.
    """

    enqueued: int = 0
    taken: int = 0
    dead_lettered: int = 0
    expired: int = 0
    routed: int = 0
    unrouted: int = 0

    def take_over(self, node: Queue | Exchange) -> None:
        if isinstance(node, Exchange):
            self.routed += node.routed
            self.unrouted += node.unrouted
        else:
            self.enqueued += node.enqueued
            self.taken += node.taken
            self.dead_lettered += node.dead_lettered
            self.expired += node.expired


class NodeRemoval:
    """Ends removed nodes, closes their links with the reason, and informs the parts that subscribe."""

    def __init__(self, purges: QueuePurges) -> None:
        self.queue_removed: list[Callable[[Queue], None]] = []
        """Callbacks for queues that are deleted or replaced, before their messages are purged."""
        self.exchange_removed: list[Callable[[Exchange], None]] = []
        """Callbacks for deleted exchanges."""
        self._purges = purges

    def deleted(self, node: Queue | Exchange, reason: str) -> None:
        """Handle a deleted node: purge its messages, and close its links with the reason."""
        if isinstance(node, Queue):
            drivers = self._end_order(node)
            node.end()
            if node.limits is not None:
                node.limits.end()
            if node.delivery_counts is not None:
                node.delivery_counts.end()
            if node.queue_id:
                self._purges.purge_deleted(node.queue_id)
            text = f"the queue {node.name!r} was deleted: {reason}"
        else:
            drivers = [*node.producers, *subscribers(node)]
            for exchange_removed in self.exchange_removed:
                exchange_removed(node)
            text = f"the exchange {node.name!r} was deleted: {reason}"
        _close(drivers, "amqp:resource-deleted", text)

    def replaced(self, queue: Queue) -> None:
        """Handle a queue that an empty one replaces; the store keeps the queue's messages."""
        drivers = self._end_order(queue)
        queue.end()
        _close(drivers, "amqp:connection:forced", f"the queue {queue.name!r} is resynchronized")

    def _end_order(self, queue: Queue) -> list[Any]:
        """End the order of *queue*; return the drivers of all links on it."""
        for queue_removed in self.queue_removed:
            queue_removed(queue)
        queue.order.deleted()
        return [*queue.consumers, *queue.browsers, *queue.producers]


def _close(drivers: list[Any], condition: str, reason: str) -> None:
    for driver in drivers:
        driver.terminal.failure(condition, reason)
