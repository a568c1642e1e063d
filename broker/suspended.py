"""Link endpoints that outlast their links: what is unsettled on them waits for the client to resume (G12). Core only.

An end has a durable queue of its own, `$link:` and a digest of whose it is: user, container, link name and
direction. The messages on it are the tags of deliveries that the broker has taken, and whose sender may not know that.
It goes when the client closes the link, or does not come back in time.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..amqp.proton import ACCEPTED
from ..amqp.resuming import UNKNOWN
from ..base.errors import CairnError, StoreError
from ..channel.words import Claims, DriverEnd, Kept, Open, ResumingEnd, TerminalEnd
from .queue import Queue

if TYPE_CHECKING:
    from .broker import Broker

log = logging.getLogger(__name__)

PREFIX = "$link:"
LINK = "x-link"
"""The argument of an end's queue: whose it is, and how long it is kept."""
DEFAULT_S = 300
"""How long an end is kept whose client names no time."""
MOST_PER_USER = 1000
"""LinkEnds that one user may have."""


_Key = TypeVar("_Key")


class Keeper(DriverEnd, ResumingEnd, Protocol):
    """A driver whose link resumes."""

    terminal: TerminalEnd
    end: LinkEnd
    is_stolen: bool


Ready = Callable[[Kept | None], None]


class LinkEnd:
    """One of them, whether its link is there or not."""

    def __init__(self, broker: Broker, ends: LinkEnds, queue: Queue) -> None:
        self.queue = queue
        self.queue_id = queue.queue_id
        self.about: dict[str, Any] = queue.arguments[LINK]
        self.tags: dict[bytes, int] = {}
        """Of the deliveries that were taken; the ids of the messages that keep them, 0 for none."""
        self.driver: Keeper | None = None
        self._broker = broker
        self._ends = ends
        self._unread = queue.messages > 0
        """What was kept when the broker started has not been read yet."""
        self._absences = 0
        self.expires_s: int = self.about["expires-s"]
        """How long it is kept without a link; 0 for ever."""

    def forget(self, tag: bytes) -> None:
        """The client has settled that delivery."""
        message_id = self.tags.pop(tag, 0)
        if message_id and not self.queue.going:
            with suppress(StoreError):  # somebody has emptied that queue
                self._broker.store.dequeue(message_id, self.queue_id, self._broker.clock.wall_us())

    def attach(self, driver: Keeper, claims: Claims, ready: Ready) -> None:
        """The client is there (again); *ready* gets what is kept, or None if it has attached anew meanwhile."""
        if self.driver is not None:
            self.driver.is_stolen = True
            self.driver.terminal.failure("amqp:link:stolen", "the client attached that link anew")
        self.driver = driver
        self._absences += 1
        if self._unread:
            ids = [one for one in self.queue.backlog.page(0, self.queue.backlog.count).ids if one]
            self._broker.reader.load_whole(ids, partial(self._read, ids, driver, claims, ready))
        else:  # all that was taken before is durable when the client is told
            self._broker.line.when_durable(0, self._answer, driver, claims, ready)

    def _read(
        self, ids: list[int], driver: Keeper, claims: Claims, ready: Ready, tags: list[bytes | CairnError]
    ) -> None:
        if self._unread:
            self._unread = False
            for message_id, tag in zip(ids, tags, strict=True):
                if isinstance(tag, CairnError):
                    log.error("link %s: a delivery tag can't be read: %s", self.about["name"], tag)
                else:
                    self.tags[tag] = message_id
        self._answer(driver, claims, ready)

    def _answer(self, driver: Keeper, claims: Claims, ready: Ready) -> None:
        if self.driver is not driver:
            ready(None)
            return
        if claims.complete:  # what it does not name it has settled
            for tag in [tag for tag in self.tags if tag not in claims.states]:
                self.forget(tag)
        ready(Kept(dict.fromkeys(self.tags, ACCEPTED), self.expires_s, driver))

    def left(self, driver: Keeper, *, for_good: bool) -> None:
        """Its link has gone."""
        if self.driver is not driver:
            return
        self.driver = None
        if for_good:
            self._ends.drop(self)
        else:
            self.wait()

    def wait(self) -> None:
        """Keep it for its time, unless the client comes back."""
        if self.expires_s:
            self._broker.timers.after(self.expires_s, self._expire, self._absences)

    def _expire(self, absence: int) -> None:
        if self.driver is None and absence == self._absences:
            self._ends.drop(self)


class LinkEnds:
    """All of a broker's."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._by_name: dict[str, LinkEnd] = {}
        self._of_containers: Counter[tuple[str, str]] = Counter()
        self._of_users: Counter[str] = Counter()
        for name, queue in broker.nodes.queues.items():
            if name.startswith(PREFIX):
                self._add(queue).wait()

    def resumes(self, user: str, container: str) -> bool:
        """Whether there is one for links of that container. Any thread."""
        return (user, container) in self._of_containers

    def open(
        self, wish: Open, terminal: TerminalEnd, make: Callable[[], Keeper], credit: Callable[[], int]
    ) -> None:
        """Open a channel on which a client sends, and may resume; *make* its driver, which gets *credit* to begin."""

        def found(end: LinkEnd | Exception) -> None:
            if isinstance(end, Exception):
                terminal.failure(*self._broker.why_not_made(end))
                return
            driver = make()
            driver.end = end
            end.attach(driver, wish.claims or UNKNOWN, lambda kept: ready(driver, kept))

        def ready(driver: Keeper, kept: Kept | None) -> None:
            if kept is None:
                driver.close((), True, False)
            else:
                terminal.opened(driver, None, credit(), kept=kept)

        self._find(wish, found)

    def _find(self, wish: Open, then: Callable[[LinkEnd | Exception], None]) -> None:
        """The end of the link that a client wants to open, made if need be."""
        name = PREFIX + _digest(wish)
        found = self._by_name.get(name)
        if found is not None and not found.queue.going:
            then(found)
            return
        if found is not None:  # somebody has deleted its queue
            self._remove(found)
        if self._of_users[wish.user] >= MOST_PER_USER:
            then(CairnError(f"link {wish.link_name!r}", f"a user may have {MOST_PER_USER} links that resume"))
            return
        terminus = wish.terminus
        about = {
            "user": wish.user,
            "container": wish.container,
            "name": wish.link_name,
            "expires-s": terminus.timeout_s or (0 if terminus.expiry == "never" else DEFAULT_S),
        }
        self._broker.nodes.create_queue(name, {LINK: about}, lambda made: self._made(made, then))

    def _made(self, made: Queue | Exception, then: Callable[[LinkEnd | Exception], None]) -> None:
        if isinstance(made, Queue):
            then(self._by_name.get(made.name) or self._add(made))
        else:
            then(made)

    def _add(self, queue: Queue) -> LinkEnd:
        end = self._by_name[queue.name] = LinkEnd(self._broker, self, queue)
        about = end.about
        self._of_containers[about["user"], about["container"]] += 1
        self._of_users[about["user"]] += 1
        return end

    def drop(self, end: LinkEnd) -> None:
        """It is given up, and what is unsettled on it."""
        if self._by_name.get(end.queue.name) is not end:
            return
        self._broker.nodes.delete_queue(end.queue, _ignore, "its link was closed")
        self._remove(end)

    def _remove(self, end: LinkEnd) -> None:
        del self._by_name[end.queue.name]
        about = end.about
        _count_down(self._of_containers, (about["user"], about["container"]))
        _count_down(self._of_users, about["user"])


def _count_down(counter: Counter[_Key], key: _Key) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


def _digest(wish: Open) -> str:
    direction = "to" if wish.to_client else "from"
    whose = json.dumps([wish.user, wish.container, wish.link_name, direction])
    return hashlib.sha256(whose.encode()).hexdigest()


def _ignore(result: object) -> None:
    """Nobody waits to hear how that went; the log tells what went wrong."""
