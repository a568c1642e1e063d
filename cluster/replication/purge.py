"""Purges: the decider of a queue determines the removed messages, since it knows those with consumers.

Any member forwards a purge request to all, and repeats it if it can no longer succeed: the decider left before it sent
the purge, or was no longer the decider when the purge was delivered. All messages on the queue at the position of the
purge are removed, except those that it names, and those of consumers of former owners. Core only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...base.errors import StoreError
from ..group.group_events import Configuration
from ..kernel.context import MemberContext
from ..kernel.control_messages import About, ControlMessage
from .message_handler import MessageHandler
from .ownership_handler import QueueOwnerHandler
from .replica import Replica

Done = Callable[[int | Exception], None]
OnPurged = Callable[[Replica], None]


class _Request(NamedTuple):
    name: str
    done: Done


class Purges:
    """The purges that were requested here, and the application of all purges."""

    def __init__(
        self, context: MemberContext, owners: QueueOwnerHandler, messages: MessageHandler, on_purged: OnPurged
    ) -> None:
        """*on_purged*: is called after a purge of a queue."""
        self._context = context
        self._owners = owners
        self._messages = messages
        self._on_purged = on_purged
        self._requests: dict[int, _Request] = {}
        self._number = 0

    def ask(self, name: str, done: Done) -> None:
        """*done* gets the number of removed messages, when the purge is safe."""
        self._number += 1
        self._requests[self._number] = _Request(name, done)
        self._say(self._number)

    def _say(self, number: int) -> None:
        me, name = self._context.state.me, self._requests[number].name
        self._context.broadcaster.send_control("purge-wish", queue=name, by=me or (), number=number)

    def members_changed(self, config: Configuration) -> None:
        """Asks again if a member left: it may have been the one to answer."""
        if config.left:
            for number in self._requests:
                self._say(number)

    def lost(self) -> None:
        self._requests.clear()

    def wished(self, message: ControlMessage) -> None:
        """Purges a queue that this member decides about."""
        _, position, about = message
        replica = self._owners.replicas.get(about["queue"])
        if replica is None:
            self._answer(position, about, StoreError(f"queue {about['queue']!r}", "it was deleted"))
        elif self._owners.decider(replica) == self._context.state.me:
            self._context.release_all()
            attach = {"queue": replica.name, "by": about["by"], "number": about["number"]}
            self._context.broadcaster.send_control("purge", **attach, keep=replica.unavailable())

    def received(self, message: ControlMessage) -> None:
        """Applies the purge of a queue."""
        sender, position, about = message
        replica = self._owners.replicas.get(about["queue"])
        if replica is None:
            self._answer(position, about, StoreError(f"queue {about['queue']!r}", "it was deleted"))
        elif self._owners.decider(replica) == sender:
            unheard = self._context.locals.unheard().get(replica.queue, ())
            purged = self._messages.purge(replica, about["keep"], unheard)
            self._on_purged(replica)
            self._answer(position, about, purged)
        elif self._is_ours(about):
            self._say(about["number"])

    def _is_ours(self, about: About) -> bool:
        me = self._context.state.me
        return me is not None and tuple(about["by"]) == me and about["number"] in self._requests

    def _answer(self, position: int, about: About, result: int | Exception) -> None:
        if self._is_ours(about):
            done = self._requests.pop(about["number"]).done
            self._context.commits.when_safe(position, lambda: done(result))
