"""The collaborators of the drivers of links. Core only."""

from __future__ import annotations

from dataclasses import dataclass

from ...amqp.ports import DriverEnd, TerminalEnd
from ...base.callbacks import ignore
from ..kernel.context import CoreContext
from ..nodes.registry import NodeRegistry
from ..nodes.replication_port import Members
from ..nodes.resolver import Resolver
from ..nodes.subscriptions import Subscriptions
from ..queues.queue import Queue
from ..scheduling.throttle import Throttle
from ..transactions.dead_letters import Returns
from ..transactions.registry import Transactions


class SenderCredit:
    """The credit of senders to durable queues, withheld while the store or the cluster has no room. Core only."""

    def __init__(self, core: CoreContext, members: Members) -> None:
        self._store = core.store
        self._members = members
        self._withheld = Throttle(core.users.throttles)

    def take(self, terminal: TerminalEnd, wanted: int, *, replicated: bool = False) -> int:
        """Grants credit to senders; withheld credit is granted when there is room again."""
        held = replicated and self._members.holds
        if not wanted or not (held or self._store.full()):
            return wanted
        return self.withhold(terminal, wanted)

    def withhold(self, terminal: TerminalEnd, credit: int) -> int:
        """Withhold *credit* until there is room again; return 0, the credit that the sender gets now."""
        self._withheld.withhold(terminal, credit)
        return 0

    def grant_withheld(self) -> None:
        """Grant the credit that was withheld, if the store and the cluster have room again."""
        if not (self._store.full() or self._members.holds):
            self._withheld.release()


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
