"""The link endpoints that wait for their clients to resume: creates, finds and drops them (G12). Core only.

`resumable_producer` keeps the state of links on which clients send, `resumable_consumer` that of all others.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping

from ...amqp.links.resume_state import UNKNOWN
from ...amqp.ports import KeptLink, Open, TerminalEnd
from ...base.callbacks import ignore
from ...base.errors import CairnError, StoreError
from ..links.context import LinkContext
from ..links.enqueue import Enqueuer, Queues
from ..links.producer import Route
from ..nodes.stored_nodes import ignored
from ..queues.queue import Queue
from ..selector.compiler import Selector
from .endpoint import LINK, LinkEndpoint, ResumableDriver
from .resumable_consumer import FilteredResumableConsumer, ReceiverEndpoint, ResumableConsumer
from .resumable_producer import ResumableProducer, SenderEndpoint

PREFIX = "$link:"
DEFAULT_S = 300
"""Seconds for which an endpoint is kept if its client requests no time."""
MOST_PER_USER = 1000
"""Endpoints that one user may have."""

_Found = Callable[[LinkEndpoint | Exception], None]
FROM = "from"
"""The field of `LINK` with the wiring's ID of the queue that the client receives from."""


class LinkEndpoints:
    """The link endpoints of one broker, by name."""

    def __init__(self, links: LinkContext) -> None:
        self._links = links
        self._core = links.core
        self._nodes = links.nodes
        self._by_name: dict[str, LinkEndpoint] = {}
        self._of_users: Counter[str] = Counter()

    def recover(self) -> None:
        """Restore the endpoints of the last run; messages that clients had of a queue are assigned to them again."""
        by_id = {queue.queue_id: queue for queue in self._nodes.queues.values() if queue.queue_id}
        wanted: dict[Queue, dict[int, ReceiverEndpoint]] = {}
        for name, queue in self._nodes.queues.items():
            if not name.startswith(PREFIX):
                continue
            if not _is_link(queue.arguments.get(LINK)):
                ignored(f"the resumable link of {name!r}", StoreError(f"queue {name!r}", f"{LINK} is incomplete"))
                continue
            source_id = queue.arguments[LINK].get(FROM, 0)
            if source_id and source_id not in by_id:
                self._core.post(self._nodes.delete_queue, queue, ignore, "its queue was deleted")
                continue
            end = self._add(queue, by_id.get(source_id))
            end.wait()
            if isinstance(end, ReceiverEndpoint):
                ids = queue.contents.backlog.page(0, queue.contents.backlog.count).ids
                wanted.setdefault(end.source, {}).update(dict.fromkeys(ids, end))
        for source, ends in wanted.items():
            for entry in source.contents.take_stored(ends):
                ends.pop(entry.message_id).has(entry)
            for message_id, end in ends.items():  # the outcome was stored, but this record was not removed yet
                self._core.post(end.dequeue, message_id)

    def open_from(self, enqueuer: Enqueuer, make_route: Callable[[], Route], queues: Queues, credit: int) -> None:
        """Open a link on which a client sends, and may resume; its sender gets *credit* for *queues* to begin."""
        terminal = enqueuer.terminal

        def made(end: LinkEndpoint) -> ResumableProducer:
            assert isinstance(end, SenderEndpoint)
            return ResumableProducer(enqueuer, make_route(), end)

        def ready(driver: ResumableDriver, kept: KeptLink) -> None:
            terminal.opened(driver, None, enqueuer.credit(queues, credit), kept=kept)

        self._open(enqueuer.attach, terminal, None, made, ready)

    def open_to(
        self, attach: Open, terminal: TerminalEnd, queue: Queue, filters: bytes, selector: Selector | None = None
    ) -> None:
        """Open a channel on which a client receives, and may resume; it gets messages for which *selector* is true."""

        def made(end: LinkEndpoint) -> ResumableConsumer:
            driver: ResumableConsumer
            if selector is None:
                driver = ResumableConsumer(self._links, terminal, queue, presettled=False)
            else:
                driver = FilteredResumableConsumer(
                    self._links, terminal, queue, presettled=False, selector=selector, user=attach.user
                )
            assert isinstance(end, ReceiverEndpoint)
            driver.attach_to(end)
            return driver

        def ready(driver: ResumableDriver, kept: KeptLink) -> None:
            terminal.opened(driver, None, 0, filters=filters, kept=kept)
            assert isinstance(driver, ResumableConsumer)
            driver.begin()

        self._open(attach, terminal, queue, made, ready)

    def _open(
        self,
        attach: Open,
        terminal: TerminalEnd,
        source: Queue | None,
        make: Callable[[LinkEndpoint], ResumableDriver],
        then: Callable[[ResumableDriver, KeptLink], None],
    ) -> None:
        def found(end: LinkEndpoint) -> None:
            driver = make(end)

            def ready(kept: KeptLink | None) -> None:
                if kept is None:
                    driver.close((), True, False)
                else:
                    then(driver, kept)

            end.attach(driver, attach.claims or UNKNOWN, ready)

        self._find(attach, source, self._links.resolver.or_refuse(terminal, found))

    def _find(self, attach: Open, source: Queue | None, then: _Found) -> None:
        """Find or create the endpoint of the link that a client opens, for *then*; *source*: the queue it reads."""
        name = PREFIX + _digest(attach)
        found = self._by_name.get(name)
        if isinstance(found, ReceiverEndpoint) and found.source is not source:  # the client has another queue now
            found.steal()
            self.drop(found)
            found = None
        if found is not None and not found.queue.is_deleting:
            then(found)
            return
        if found is not None:  # its queue was deleted by a client
            self._remove(found)
        if self._of_users[attach.user] >= MOST_PER_USER:
            reason = f"a user may have {MOST_PER_USER} links that resume"
            then(CairnError(f"link {attach.link_name!r}", reason, "close one of them without resuming it"))
            return
        terminus = attach.terminus
        about = {
            "user": attach.user,
            "container": attach.container,
            "name": attach.link_name,
            "expires-s": terminus.timeout_s or (0 if terminus.expiry == "never" else DEFAULT_S),
            **({} if source is None else {FROM: source.queue_id}),
        }
        self._nodes.create_queue(name, {LINK: about}, lambda made: self._made(made, attach, source, then))

    def _made(self, made: Queue | Exception, attach: Open, source: Queue | None, then: _Found) -> None:
        if isinstance(made, Exception):
            then(made)
        elif made.name in self._by_name:  # it has attached twice at once, perhaps to another queue each time
            self._find(attach, source, then)
        else:
            then(self._add(made, source))

    def give_up(self, attach: Open) -> None:
        """Delete the kept state of a link name, since a client attaches such a link without resuming it."""
        found = self._by_name.get(PREFIX + _digest(attach)) if self._by_name else None
        if found is not None:
            found.give_up()

    def _add(self, queue: Queue, source: Queue | None) -> LinkEndpoint:
        end = (
            SenderEndpoint(self._core, self.drop, queue)
            if source is None
            else ReceiverEndpoint(self._links, self.drop, queue, source)
        )
        self._by_name[queue.name] = end
        self._of_users[end.about["user"]] += 1
        return end

    def drop(self, end: LinkEndpoint) -> None:
        """Delete an endpoint and its deliveries."""
        if self._by_name.get(end.queue.name) is not end:
            return
        self._nodes.drop_queue(end.queue.name, ignore, "its link was closed")
        self._remove(end)
        end.ended()

    def _remove(self, end: LinkEndpoint) -> None:
        del self._by_name[end.queue.name]
        user = end.about["user"]
        self._of_users[user] -= 1
        if not self._of_users[user]:
            del self._of_users[user]


def _is_link(about: object) -> bool:
    """Return whether *about* describes a link, as `_find` writes it."""
    kinds = {"user": str, "container": str, "name": str, "expires-s": int}
    if not isinstance(about, Mapping) or not isinstance(about.get(FROM, 0), int):
        return False
    return all(type(about.get(key)) is kind for key, kind in kinds.items()) and about["expires-s"] >= 0


def _digest(attach: Open) -> str:
    direction = "to" if attach.to_client else "from"
    whose = json.dumps([attach.user, attach.container, attach.link_name, direction])
    return hashlib.sha256(whose.encode()).hexdigest()
