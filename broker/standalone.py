"""A broker without a cluster. Core only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..amqp.ports import TerminalEnd
from .contents.policy import Policy
from .contents.ports import QueueState
from .federation.upstream_link import ReplicaPosition
from .kernel.context import CoreContext
from .nodes.registry import MakeQueue, NodeDeleted, NodeRegistry, RenewQueue
from .nodes.replication_port import Gathered, Kept, Report, Then, Work
from .transactions.moves import LocalMoves, Moves


class Standalone:
    """No other members: `BrokerMembers` of a broker that shares no queue."""

    is_alone = True
    holds = False
    shares_queues = False

    def enqueue(self, queues: Sequence[QueueState], kept: Kept, then: Then, refused: Then) -> None:
        raise AssertionError("no queue has other members")

    def follow(self, queue: QueueState, said: ReplicaPosition, terminal: TerminalEnd) -> None:
        raise AssertionError("no queue has other members")

    def replicates(self, name: str, policy: Policy) -> bool:
        return False

    def made(self, queue: QueueState) -> None:
        raise AssertionError(f"queue {queue.name!r} is this broker's alone")

    def transact(self, work: Work, received: Then, then: Then, refused: Then) -> None:
        raise AssertionError("no queue has other members")

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

    def reports_by(self, reporter: Callable[[Report], Report]) -> None:
        """Do nothing: there is no other broker that requests reports."""

    def gather(self, asked: Report, limit_s: float, done: Callable[[Gathered], None]) -> None:
        raise AssertionError("there are no other members to ask")

    def nodes(self, core: CoreContext, make_queue: MakeQueue, removed: NodeDeleted) -> NodeRegistry:
        return NodeRegistry(core.store, core.post, make_queue, removed)

    def moves(self, core: CoreContext) -> Moves:
        return LocalMoves(core)

    def build(self, links: object, connections: object, upstreams: object, renew: RenewQueue) -> None:
        """Do nothing: a standalone broker has no parts of a member to build."""

    def attach(self, in_doubt: object) -> None:
        """Do nothing: a standalone broker joins no cluster."""
