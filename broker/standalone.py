"""A broker without a cluster. Core only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .contents.policy import Policy
from .kernel.context import CoreContext
from .nodes.registry import MakeQueue, NodeDeleted, NodeRegistry


class Standalone:
    """No other members: `BrokerMembers` of a broker that shares no queue."""

    is_alone = True
    holds = False
    shares_queues = False

    def _needs_members(self, *_: Any, **__: Any) -> None:
        """Fail: only replicated queues need this, and a standalone broker has none."""
        raise AssertionError("no queue has other members")

    enqueue = made = transact = move = follow = gather = _needs_members

    def _do_nothing(self, *_: Any, **__: Any) -> None:
        """Do nothing: a standalone broker is no member of a cluster."""

    durable = reports_by = build = attach = _do_nothing

    def replicates(self, name: str, policy: Policy) -> bool:
        return False

    def not_serving_reason(self) -> str:
        return ""

    def when_answered(self, action: Callable[[], None]) -> None:
        action()

    def held_up(self, then: Callable[[], None]) -> bool:
        return False

    def step(self) -> bool:
        return False

    def nodes(self, core: CoreContext, make_queue: MakeQueue, removed: NodeDeleted) -> NodeRegistry:
        return NodeRegistry(core.store, core.post, make_queue, removed)
