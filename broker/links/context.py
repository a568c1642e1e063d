"""The collaborators of the drivers of links. Core only."""

from __future__ import annotations

from dataclasses import dataclass

from ...amqp.ports import DriverEnd
from ...base.callbacks import ignore
from ..kernel.context import CoreContext
from ..nodes.registry import NodeRegistry
from ..nodes.replication_port import Members
from ..nodes.resolver import Resolver
from ..nodes.subscriptions import Subscriptions
from ..queues.queue import Queue
from ..transactions.dead_letters import Returns
from ..transactions.registry import Transactions
from .sender_credit import SenderCredit


@dataclass(frozen=True, slots=True)
class LinkContext:
    """The services of the core, and the parts of the broker that drivers of links use."""

    core: CoreContext
    nodes: NodeRegistry
    resolver: Resolver
    subscriptions: Subscriptions
    transactions: Transactions
    returns: Returns
    members: Members
    credit: SenderCredit
    vouches: bool
    """True if the user-id of a message must be its sender."""

    def sender_closed(self, driver: DriverEnd, queue: Queue) -> bool:
        """End the lifetime of a queue that depends on a link that is closed; return whether it may."""
        if queue.maker is driver and not queue.is_deleted:
            self.nodes.delete_queue(queue, ignore, "its link was closed")
            return True
        if queue.policy.auto_delete:
            self.core.schedule_dispatch(queue)
            return True
        return False

    def receiver_closed(self, driver: DriverEnd, queue: Queue, *, for_good: bool) -> None:
        """End the lifetime of a queue, or of a subscription, that depends on a receiver that is closed."""
        queue.order.not_consuming()
        if not self.sender_closed(driver, queue):
            self.subscriptions.channel_closed(driver, queue, for_good=for_good)
