"""Followers of replicated queues at other sites, as far as this member feeds them. Core only."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from ..broker.follower_link import Said
from ..broker.queue import Queue
from ..channel.words import TerminalEnd
from .feeder import GroupFeeder
from .group import MemberId

if TYPE_CHECKING:
    from .core import Core


class Streaming:
    """Of one member."""

    def __init__(self, core: Core) -> None:
        self.feeders: dict[int, GroupFeeder] = {}
        self._core = core
        self._numbers = count(1)

    def open(self, queue: Queue, said: Said, terminal: TerminalEnd) -> None:
        """A follower's link, to a member that serves clients."""
        core = self._core
        replica = core.owners.replicas.get(queue.name)
        if replica is None:
            terminal.failure("amqp:not-found", f"there is no queue {queue.name!r}")
            return
        number = next(self._numbers)
        feeder = self.feeders[number] = GroupFeeder(core, replica, said, terminal, number)
        core.broker.streams.feeders[feeder] = None
        feeder.begin()

    def heard(self, sender: MemberId, position: int, about: dict[str, Any]) -> None:
        """Some member begins to feed a follower: from the first time on the queue's history has a name."""
        replica = self._core.owners.replicas.get(about["queue"])
        if replica is not None and not replica.line:
            replica.line = about["line"]
        if sender == self._core.me and about["number"] in self.feeders:
            self.feeders[about["number"]].cut(position)

    def gone(self, name: str) -> None:
        """The queue was deleted."""
        for feeder in [*self.feeders.values()]:
            if feeder.queue.name == name:
                feeder.fail("amqp:resource-deleted", f"queue {name!r}: it was deleted")

    def lost(self, why: str) -> None:
        """The group was left: another member has to feed them."""
        for feeder in [*self.feeders.values()]:
            feeder.fail("amqp:link:detach-forced", f"the queue can't be followed here any more: {why}")
