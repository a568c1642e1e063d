"""A broker without a cluster. Core only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .contents.policy import Policy
from .kernel.context import CoreContext
from .nodes.registry import MakeQueue, NodeDeleted, NodeRegistry, RenewQueue


class Standalone:
    """No other members: `BrokerMembers` of a broker that shares no queue."""

    is_alone = True
    holds = False
    shares_queues = False

    def _needs_members(self, *_: Any, **__: Any) -> None:
        """Fail: only replicated queues need this, and a standalone broker has none."""
        raise AssertionError("no queue has other members")

    enqueue = made = transact = move = follow = gather = _needs_members

    def replicates(self, name: str, policy: Policy) -> bool:
        return False

    def not_serving_reason(self) -> str:
        return ""

    def when_answered(self, action: Callable[[], None]) -> None:
        action()

    def held_up(self, then: Callable[[], None]) -> bool:
        return False

    def durable(self) -> None:
        """Do nothing: no other member waits for this broker's disk."""

    def step(self) -> bool:
        return False

    def reports_by(self, reporter: object) -> None:
        """Do nothing: there is no other broker that requests reports."""

    def nodes(self, core: CoreContext, make_queue: MakeQueue, removed: NodeDeleted) -> NodeRegistry:
        return NodeRegistry(core.store, core.post, make_queue, removed)

    def build(self, links: object, connections: object, upstreams: object, renew: RenewQueue) -> None:
        """Do nothing: a standalone broker has no parts of a member to build."""

    def attach(self, in_doubt: object) -> None:
        """Do nothing: a standalone broker joins no cluster."""
