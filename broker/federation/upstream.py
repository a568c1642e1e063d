"""The upstream side of federation: `$stream/NAME` is an address that a downstream broker receives from. Core only.

Queues of a cluster are followed by the events of the cluster. Other queues are read from the log (`upstream_feed`), so
that their clients neither wait nor pay: downstreams are fed after a flush. The log behind the position of a downstream
is kept by a bookmark (`store/journaled/retention_leases.py`), up to `MOST_BYTES`. Then it is dropped, and a warning is
logged. A downstream that returns later has to resynchronize.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from functools import partial

from ...amqp.codec import decode
from ...amqp.codec.primitives import Malformed
from ...amqp.ports import Open, TerminalEnd
from ...base.errors import CairnError
from ...store.journaled.queue_changes import HistoryReclaimed, QueueDeleted
from ...store.journaled.retention_leases import Bookmark
from ...store.journaled.store import JournalStore
from ..contents.ports import QueueState
from ..links.context import LinkContext
from ..nodes.access_control import BROWSE
from .upstream_feed import Fed, Feed
from .upstream_link import AFTER, FOLLOWER, LINE, PLACE, DownstreamLink, ReplicaPosition
from .upstream_states import UpstreamEvent, UpstreamState
from .wire_format import ALL

log = logging.getLogger(__name__)

STREAM = "$stream/"
"""The prefix of the queue's name in the address."""
MOST_BYTES = 1 << 30
"""Bytes by which the log may run ahead of a downstream's position."""
MARK_BYTES = 256 << 10
"""The step size of the bookmark's moves, in bytes of the log."""
_MOST_NAME = 48


Follow = Callable[[QueueState, ReplicaPosition, TerminalEnd], None]
"""Opens the link of a downstream to a replicated queue, or refuses it."""


class Upstreams:
    """The links of downstream brokers to this broker's queues."""

    def __init__(self, links: LinkContext, follow: Follow) -> None:
        self.feeders: dict[DownstreamLink, None] = {}
        self._links = links
        self._core = links.core
        self._follow = follow

    def add(self, feeder: DownstreamLink) -> None:
        """Feed another downstream."""
        self.feeders[feeder] = None
        self._core.events.durable.append(feeder.go_on)

    def remove(self, feeder: DownstreamLink) -> None:
        """Stop feeding a downstream, if it is still fed."""
        if feeder in self.feeders:
            del self.feeders[feeder]
            self._core.events.durable.remove(feeder.go_on)

    def open(self, attach: Open, terminal: TerminalEnd) -> None:
        """Open the link of a downstream."""
        store = self._core.store
        name = (attach.terminus.address or "").removeprefix(STREAM)
        queue = self._links.nodes.queues.get(name)
        is_shared = queue is not None and queue.replicated and not self._links.members.is_alone
        if reason := self._links.resolver.denial_reason(attach.user, BROWSE, name):
            terminal.failure("amqp:unauthorized-access", reason)
        elif not attach.to_client or attach.attach is None:
            terminal.failure("amqp:not-allowed", f"{STREAM}{name} is for brokers that replicate the queue")
        elif queue is None or queue.is_deleting:
            terminal.failure("amqp:not-found", f"there is no queue {name!r}; create it, or correct the source")
        elif not is_shared and not (queue.queue_id and isinstance(store, JournalStore)):
            reason = "is not durable" if not queue.queue_id else "is in a store without a journal"
            terminal.failure("amqp:not-implemented", f"the queue {name!r} can't be followed: it {reason}")
        else:
            try:
                said = _said(attach.attach.properties, attach.user)
                if is_shared:
                    self._follow(queue, said, terminal)
                elif isinstance(store, JournalStore):
                    self._begin(store, queue, said, terminal)
            except HistoryReclaimed as error:
                terminal.failure("amqp:not-found", f"unsent records were reclaimed: {error}")
            except CairnError as error:
                terminal.failure("amqp:invalid-field", str(error))

    def _begin(self, store: JournalStore, queue: QueueState, said: ReplicaPosition, terminal: TerminalEnd) -> None:
        line, place, after, follower = said
        ours = f"{store.journal.pool.log_uuid}/{queue.queue_id}"
        if line and (line != ours or place > store.journal.cut_lsn):
            raise HistoryReclaimed(f"queue {queue.name!r}", "it is not the queue that was replicated", "resynchronize")
        cut_lsn = store.journal.cut_lsn
        place, after = (place, after) if line else (cut_lsn, 0)
        mark = Bookmark(f"follow-{queue.queue_id}-{follower}", place, MOST_BYTES)
        make = partial(Feed, store, queue.queue_id, "" if line else ours, place, after, self._core.clock.wall_us)
        feeder = LogFeeder(self._links, self.remove, store, terminal, queue, mark)
        self.add(feeder)
        self._core.loader.ask(partial(_prepared, store, mark, make), feeder.prepared)


def _said(properties: bytes, user: str) -> ReplicaPosition:
    """Return the position in a downstream's attach. Its name is scoped to *user*, separate from other users'."""
    try:
        found = decode.complete(properties) if properties else {}
    except Malformed as error:
        raise CairnError("the downstream's attach", f"its properties can't be read: {error}") from error
    said = {str(key): one for key, one in found.items()} if isinstance(found, dict) else {}
    line, follower = said.get(LINE, ""), said.get(FOLLOWER, "")
    place, after = said.get(PLACE, 0), said.get(AFTER, 0)
    if not (isinstance(line, str) and isinstance(follower, str) and isinstance(place, int) and isinstance(after, int)):
        raise CairnError("the downstream's attach", "it has no valid position")
    if not follower.isalnum() or not follower.isascii() or len(follower) > _MOST_NAME:
        raise CairnError("the downstream's attach", "it has no valid name of the downstream broker")
    if user:  # the underscore separates it from all names of anonymous downstreams
        follower = "_" + hashlib.sha256(f"{user}\0{follower}".encode()).hexdigest()[:32]
    return ReplicaPosition(line, max(0, int(place)), min(max(0, int(after)), ALL), follower)


def _prepared(store: JournalStore, mark: Bookmark, make: partial[Feed]) -> Feed | CairnError:
    """Retain the log from the place on, and open the feed. On the reader's thread."""
    try:
        if store.bookmarks is not None:
            store.bookmarks.add(mark)
        return make()
    except CairnError as error:
        return error


class LogFeeder(DownstreamLink):
    """The driver of a link to a downstream of a queue that only this broker has: it reads the log."""

    def __init__(
        self,
        links: LinkContext,
        ended: Callable[[DownstreamLink], None],
        store: JournalStore,
        terminal: TerminalEnd,
        queue: QueueState,
        mark: Bookmark,
    ) -> None:
        super().__init__(links.core.scheduler, ended, terminal, queue, mark.name, mark.lsn)
        self._loader = links.core.loader
        self._mark = mark
        self._store = store
        self._feed: Feed | None = None
        self._cut_lsn = mark.lsn
        """The LSN whose durability allows to read anything."""
        self._seen_lsn = 0
        """The LSN up to which the log was durable at the last check."""

    def prepared(self, found: Feed | CairnError) -> None:
        if self._phase is UpstreamState.OVER:
            return
        if isinstance(found, CairnError):
            self._fail(found)
            return
        self._feed = found
        self._handle(UpstreamEvent.PREPARED)
        about = {"event": "federation.downstream-up", "queue": self.queue.name}
        log.info("queue %s: copied from LSN %d (%s)", self.queue.name, self.place, self._mark.name, extra=about)
        self._begin()

    @property
    def behind_bytes(self) -> int:
        return max(0, self._store.durable_lsn - self.place)

    def go_on(self) -> None:
        feed, durable_lsn = self._feed, self._store.durable_lsn
        room = self.room()
        if feed is None or room <= 0 or durable_lsn < self._cut_lsn:
            return
        if durable_lsn > self._seen_lsn:
            self._handle(UpstreamEvent.MORE_DURABLE)
        if self._phase is not UpstreamState.READY:
            return
        self._handle(UpstreamEvent.READ)
        self._seen_lsn = durable_lsn
        cut_lsn = self._store.journal.cut_lsn
        self._loader.ask(lambda: feed.take(room, durable_lsn, cut_lsn), self._fed)

    def _fed(self, fed: Fed) -> None:
        if self._phase is UpstreamState.OVER:
            return
        self._handle(UpstreamEvent.ALL_READ if fed.is_idle else UpstreamEvent.PART_READ)
        self._forward([(one.place, one.content) for one in fed.messages])
        if fed.error is not None:
            self._fail(fed.error)
        else:
            self.go_on()

    def _idle_message(self) -> bytes | None:
        return self._feed.tick() if self._feed is not None and self._phase is UpstreamState.IDLE else None

    def _fail(self, error: CairnError) -> None:
        self._end()
        if isinstance(error, HistoryReclaimed):
            self._forget()
            self.terminal.failure("amqp:not-found", f"unsent records were reclaimed: {error}")
        elif isinstance(error, QueueDeleted):
            self.terminal.failure("amqp:resource-deleted", str(error))
        else:
            self.terminal.failure("amqp:internal-error", str(error))
        about = {"event": "federation.downstream-down", "queue": self.queue.name}
        log.warning("queue %s: no longer copied to %s: %s", self.queue.name, self._mark.name, error, extra=about)

    def _moved(self) -> None:
        if self.place >= self._mark.lsn + MARK_BYTES and self._store.bookmarks is not None:
            self._mark = self._mark._replace(lsn=self.place)
            self._loader.ask(partial(self._store.bookmarks.move, self._mark), _marked)

    def _forget(self) -> None:
        if self._store.bookmarks is not None:
            self._loader.ask(partial(self._store.bookmarks.remove, self._mark.name), _marked)


def _marked(error: CairnError | None) -> None:
    if error is not None:
        log.warning("the position of a federated queue can't be stored: %s", error, extra={"event": "bookmark.failed"})
