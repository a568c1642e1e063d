"""The link endpoints that wait for their clients to come back and resume: made, found again, given up (G12). Core only.

On links on which clients send, `remembering` says what is kept; on those on which they receive, `retaining`.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ..amqp.resuming import UNKNOWN
from ..base.errors import CairnError
from ..channel.words import Kept, Open, TerminalEnd
from .link_end import LINK, Keeper, LinkEnd
from .queue import Queue
from .remembering import Remembering, TagsEnd
from .retaining import RetainedEnd, Retaining, SelectingRetaining
from .selector import Selector

if TYPE_CHECKING:
    from .broker import Broker

PREFIX = "$link:"
DEFAULT_S = 300
"""How long an end is kept whose client names no time."""
MOST_PER_USER = 1000
"""LinkEnds that one user may have."""


_Key = TypeVar("_Key")
FROM = "from"
"""In `LINK`, of a link on which the client receives: the wiring's id of the queue it receives from."""


class LinkEnds:
    """All of a broker's."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._by_name: dict[str, LinkEnd] = {}
        self._of_containers: Counter[tuple[str, str]] = Counter()
        self._of_users: Counter[str] = Counter()
        self._recover()

    def _recover(self) -> None:
        """What there was when the broker started; what clients had of a queue is theirs again."""
        by_id = {queue.queue_id: queue for queue in self._broker.nodes.queues.values() if queue.queue_id}
        wanted: dict[Queue, dict[int, RetainedEnd]] = {}
        for name, queue in self._broker.nodes.queues.items():
            if not name.startswith(PREFIX):
                continue
            source_id = queue.arguments[LINK].get(FROM, 0)
            if source_id and source_id not in by_id:
                self._broker.later(self._broker.nodes.delete_queue, queue, _ignore, "the queue it is about is gone")
                continue
            end = self._add(queue, by_id.get(source_id))
            end.wait()
            if isinstance(end, RetainedEnd):
                ids = queue.backlog.page(0, queue.backlog.count).ids
                wanted.setdefault(end.source, {}).update(dict.fromkeys(ids, end))
        for source, ends in wanted.items():
            for entry in source.take_stored(ends):
                ends.pop(entry.message_id).has(entry)
            for message_id, end in ends.items():  # the outcome was stored, and this is not taken down yet
                self._broker.later(end.let_go, message_id)

    def resumes(self, user: str, container: str) -> bool:
        """Whether there is one for links of that container. Any thread."""
        return (user, container) in self._of_containers

    def open_from(
        self, wish: Open, terminal: TerminalEnd, make: Callable[[], Remembering], credit: Callable[[], int]
    ) -> None:
        """Open a channel on which a client sends, and may resume; *make* its driver, which gets *credit* to begin."""

        def made(end: LinkEnd) -> Remembering:
            driver = make()
            assert isinstance(end, TagsEnd)
            driver.end = end
            return driver

        def ready(driver: Keeper, kept: Kept) -> None:
            terminal.opened(driver, None, credit(), kept=kept)

        self._find(wish, None, lambda end: self._attach(end, wish, terminal, made, ready))

    def open_to(
        self, wish: Open, terminal: TerminalEnd, queue: Queue, filters: bytes, selector: Selector | None = None
    ) -> None:
        """Open a channel on which a client receives, and may resume; it gets what *selector* is true for."""

        def made(end: LinkEnd) -> Retaining:
            driver: Retaining
            if selector is None:
                driver = Retaining(self._broker, terminal, queue, presettled=False)
            else:
                driver = SelectingRetaining(self._broker, terminal, queue, presettled=False, selector=selector)
            assert isinstance(end, RetainedEnd)
            driver.attach_to(end)
            return driver

        def ready(driver: Keeper, kept: Kept) -> None:
            terminal.opened(driver, None, 0, filters=filters, kept=kept)
            assert isinstance(driver, Retaining)
            driver.begin()

        self._find(wish, queue, lambda end: self._attach(end, wish, terminal, made, ready))

    def _attach(
        self,
        end: LinkEnd | Exception,
        wish: Open,
        terminal: TerminalEnd,
        make: Callable[[LinkEnd], Keeper],
        then: Callable[[Keeper, Kept], None],
    ) -> None:
        if isinstance(end, Exception):
            terminal.failure(*self._broker.why_not_made(end))
            return
        driver = make(end)

        def ready(kept: Kept | None) -> None:
            if kept is None:
                driver.close((), True, False)
            else:
                then(driver, kept)

        end.attach(driver, wish.claims or UNKNOWN, ready)

    def _find(self, wish: Open, source: Queue | None, then: Callable[[LinkEnd | Exception], None]) -> None:
        """The end of the link that a client wants to open, made if need be; *source* is what it receives from."""
        name = PREFIX + _digest(wish)
        found = self._by_name.get(name)
        if isinstance(found, RetainedEnd) and found.source is not source:  # the client takes the name for another queue
            found.steal()
            self.drop(found)
            found = None
        if found is not None and not found.queue.going:
            then(found)
            return
        if found is not None:  # somebody has deleted its queue
            self._remove(found)
        if self._of_users[wish.user] >= MOST_PER_USER:
            then(CairnError(f"link {wish.link_name!r}", f"a user may have {MOST_PER_USER} links that resume"))
            return
        terminus = wish.terminus
        about: dict[str, Any] = {
            "user": wish.user,
            "container": wish.container,
            "name": wish.link_name,
            "expires-s": terminus.timeout_s or (0 if terminus.expiry == "never" else DEFAULT_S),
        }
        if source is not None:
            about[FROM] = source.queue_id
        self._broker.nodes.create_queue(name, {LINK: about}, lambda made: self._made(made, wish, source, then))

    def _made(
        self, made: Queue | Exception, wish: Open, source: Queue | None, then: Callable[[LinkEnd | Exception], None]
    ) -> None:
        if isinstance(made, Exception):
            then(made)
        elif made.name in self._by_name:  # it has attached twice at once, perhaps to another queue each time
            self._find(wish, source, then)
        else:
            then(self._add(made, source))

    def give_up(self, wish: Open) -> None:
        """A client attaches a link without asking to resume it: what was kept for one of that name is given up."""
        found = self._by_name.get(PREFIX + _digest(wish)) if self.resumes(wish.user, wish.container) else None
        if found is not None:
            found.give_up()

    def _add(self, queue: Queue, source: Queue | None) -> LinkEnd:
        broker = self._broker
        end = TagsEnd(broker, self, queue) if source is None else RetainedEnd(broker, self, queue, source)
        self._by_name[queue.name] = end
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
        end.ended()

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
