"""Makes queues, with the services that they call and the order that fits them. Core only."""

from __future__ import annotations

from functools import partial

from .contents.arrival_order import ArrivalOrder
from .contents.policy import policy_of
from .contents.sorted_order import SortedOrder
from .links.context import LinkContext
from .links.late_selection import LateSelection
from .nodes import lifetimes
from .nodes.registry import Arguments
from .nodes.subscriptions import selector_of
from .queues.purges import QueuePurges
from .queues.queue import Queue, QueueServices
from .transactions.local_order import LocalOrder


class QueueFactory:
    """Creates the queues of one broker. Call `connect` before the first one."""

    _links: LinkContext
    _services: QueueServices

    def __init__(self, purges: QueuePurges) -> None:
        self._purges = purges

    def connect(self, links: LinkContext) -> None:
        """Set the parts that queues use, which are built after the factory."""
        self._links = links
        make_order = partial(LocalOrder, links.core, links.returns, self._purges)
        check_lifetime = partial(lifetimes.check, links.nodes)
        self._services = QueueServices(links.nodes, links.returns.dead_letter, make_order, check_lifetime)

    def make(self, name: str, queue_id: int, arguments: Arguments) -> Queue:
        """Make a queue, empty. Raise `StoreError` if *arguments* are not valid."""
        core, members = self._links.core, self._links.members
        policy = policy_of(name, arguments)
        make_order = partial(SortedOrder, core) if policy.is_sorted else ArrivalOrder
        queue = Queue(core, self._services, make_order, name, queue_id, arguments)
        if queue_id and members.replicates(name, policy):
            members.made(queue)
        queue.keep_counts()
        text = selector_of(queue)
        if text is not None:
            queue.late_selector = LateSelection(core, queue, text)
        core.users.queue_came(queue)
        return queue

