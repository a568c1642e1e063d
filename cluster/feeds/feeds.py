"""The feeds to downstreams of replicated queues that this member serves. Core only."""

from __future__ import annotations

from functools import partial
from itertools import count

from ...amqp.ports import TerminalEnd
from ...broker.contents.ports import QueueState
from ...broker.federation.upstream import Upstreams
from ...broker.federation.upstream_link import ReplicaPosition
from ..kernel.context import MemberContext
from ..kernel.control_messages import ControlMessage
from ..replication.ownership_handler import QueueOwnerHandler
from .replicated_feed import ReplicatedFeed


class ReplicatedFeeds:
    """The feeds of replicated queues that one member serves."""

    def __init__(self, upstreams: Upstreams, context: MemberContext, owners: QueueOwnerHandler) -> None:
        self.feeders: dict[int, ReplicatedFeed] = {}
        self._upstreams = upstreams
        self._context = context
        self._owners = owners
        self._numbers = count(1)

    def open(self, queue: QueueState, said: ReplicaPosition, terminal: TerminalEnd) -> None:
        """Opens the link of a downstream; this member serves clients."""
        replica = self._owners.replicas.get(queue.name)
        if replica is None:
            terminal.failure("amqp:not-found", f"there is no queue {queue.name!r}")
            return
        number = next(self._numbers)
        feeder = self.feeders[number] = ReplicatedFeed(
            self._upstreams.remove,
            self._context,
            self._owners.replicas,
            replica,
            said,
            terminal,
            partial(self.feeders.pop, number, None),
            number,
        )
        self._upstreams.add(feeder)
        feeder.begin()

    def received(self, message: ControlMessage) -> None:
        """Handles the first event of a feed on any member, which gives the queue's history its ID, once."""
        sender, position, about = message
        replica = self._owners.replicas.get(about["queue"])
        if replica is not None and not replica.line:
            replica.line = about["line"]
        if sender == self._context.state.me and about["number"] in self.feeders:
            self.feeders[about["number"]].cut(position)

    def removed(self, name: str) -> None:
        """Ends the feeds of a queue that was deleted."""
        for feeder in [*self.feeders.values()]:
            if feeder.queue.name == name:
                feeder.fail("amqp:resource-deleted", f"queue {name!r}: it was deleted")

    def lost(self, reason: str) -> None:
        """Ends all feeds, since the group was left: another member has to serve them."""
        for feeder in [*self.feeders.values()]:
            feeder.fail("amqp:link:detach-forced", f"the queue can no longer be followed here: {reason}")
