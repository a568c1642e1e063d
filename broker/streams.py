"""Queues that are followed from another site: `$stream/NAME` is an address that a follower receives from. Core only.

Queues of a cluster are followed by what its events say (`Cluster.follow`). Of others what a follower gets is read from
the log (`feeding`), so nobody who uses the queue waits for it or pays for it: once per flush it is asked whether there
are followers at all. What lies behind the place that a follower has come to is kept in the log by a bookmark
(`store/bookmarks.py`), up to `MOST_BYTES`; then it is dropped, and the broker says so. A follower that comes back and
finds that what it wants is gone has to begin anew.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from ..amqp import decode
from ..amqp.codec import Malformed
from ..base.errors import CairnError
from ..channel.words import Open, TerminalEnd
from ..store.bookmarks import Bookmark
from ..store.journal_store import JournalStore
from ..store.queue_history import HistoryGone, QueueGone
from .access import BROWSE
from .feeding import Fed, Feed
from .follower_link import FollowerLink, Said
from .following_words import ALL
from .queue import Queue

if TYPE_CHECKING:
    from .broker import Broker

log = logging.getLogger(__name__)

STREAM = "$stream/"
"""What comes before the queue's name in the address."""
LINE, PLACE, AFTER, FOLLOWER = "cairnmq:line", "cairnmq:place", "cairnmq:after", "cairnmq:follower"
"""What the follower's attach says, in its properties: up to where it has the queue, and what it is called itself."""
MOST_BYTES = 1 << 30
"""The log may go on by so much behind what a follower has."""
MARK_BYTES = 256 << 10
"""Its bookmark moves in such steps."""
_MOST_NAME = 48


class Streams:
    """All followers of one broker's queues."""

    def __init__(self, broker: Broker) -> None:
        self.feeders: dict[FollowerLink, None] = {}
        self._broker = broker

    def open(self, wish: Open, terminal: TerminalEnd) -> None:
        """A follower's link."""
        broker, store = self._broker, self._broker.store
        name = (wish.terminus.address or "").removeprefix(STREAM)
        queue = broker.nodes.queues.get(name)
        cluster = None if broker.cluster is None or broker.cluster.is_alone else broker.cluster
        is_shared = queue is not None and queue.replicated and cluster is not None
        if why := broker.why_not(wish.user, BROWSE, name):
            terminal.failure("amqp:unauthorized-access", why)
        elif not wish.to_client or wish.attach is None:
            terminal.failure("amqp:not-allowed", f"{STREAM}{name} is there to be followed by brokers")
        elif queue is None or queue.going:
            terminal.failure("amqp:not-found", f"there is no queue {name!r}")
        elif not is_shared and not (queue.queue_id and isinstance(store, JournalStore)):
            why = "is not durable" if not queue.queue_id else "is in a store without a journal"
            terminal.failure("amqp:not-implemented", f"the queue {name!r} can't be followed: it {why}")
        else:
            try:
                said = _said(wish.attach.properties)
                if is_shared and cluster is not None:
                    cluster.follow(queue, said, terminal)
                elif isinstance(store, JournalStore):
                    self._begin(store, queue, said, terminal)
            except HistoryGone as error:
                terminal.failure("amqp:not-found", f"what the follower has not got yet is gone: {error}")
            except CairnError as error:
                terminal.failure("amqp:invalid-field", str(error))

    def _begin(self, store: JournalStore, queue: Queue, said: Said, terminal: TerminalEnd) -> None:
        line, place, after, follower = said
        ours = f"{store.journal.pool.log_uuid}/{queue.queue_id}"
        if line and (line != ours or place > store.journal.cut_lsn):
            raise HistoryGone(f"queue {queue.name!r}", "it is another one than was followed", "begin anew")
        cut_lsn = store.journal.cut_lsn
        place, after = (place, after) if line else (cut_lsn, 0)
        mark = Bookmark(f"follow-{queue.queue_id}-{follower}", place, MOST_BYTES)
        make = partial(
            Feed, store, queue.queue_id, "" if line else ours, place, after, self._broker.clock.wall_us
        )
        feeder = Feeder(self._broker, store, terminal, queue, mark)
        self.feeders[feeder] = None
        self._broker.reader.ask(partial(_prepared, store, mark, make), feeder.prepared)

    def look(self) -> None:
        """More of the log is durable."""
        for feeder in [*self.feeders]:
            feeder.go_on()


def _said(properties: bytes) -> Said:
    try:
        found = decode.whole(properties) if properties else {}
    except Malformed as error:
        raise CairnError("the follower's attach", f"its properties can't be read: {error}") from error
    said = {str(key): one for key, one in found.items()} if isinstance(found, dict) else {}
    line, follower = said.get(LINE, ""), said.get(FOLLOWER, "")
    place, after = said.get(PLACE, 0), said.get(AFTER, 0)
    if not (isinstance(line, str) and isinstance(follower, str) and isinstance(place, int) and isinstance(after, int)):
        raise CairnError("the follower's attach", "it does not say where it has come to")
    if not follower.isalnum() or not follower.isascii() or len(follower) > _MOST_NAME:
        raise CairnError("the follower's attach", "it does not say what the follower is called")
    return Said(line, max(0, int(place)), min(max(0, int(after)), ALL), follower)


def _prepared(store: JournalStore, mark: Bookmark, make: partial[Feed]) -> Feed | CairnError:
    """On the reader's thread: have the log kept from the place on, then look at it."""
    try:
        if store.bookmarks is not None:
            store.bookmarks.put(mark)
        return make()
    except CairnError as error:
        return error


class Feeder(FollowerLink):
    """Of a queue that this broker alone has: from its log."""

    def __init__(
        self, broker: Broker, store: JournalStore, terminal: TerminalEnd, queue: Queue, mark: Bookmark
    ) -> None:
        super().__init__(broker, terminal, queue, mark.name, mark.lsn)
        self._mark = mark
        self._store = store
        self._feed: Feed | None = None
        self._cut_lsn = mark.lsn
        """Not before that is durable is there anything to be read."""
        self._is_busy = False
        self._is_idle = False
        self._seen_lsn = 0
        """Up to where the log was durable when it was asked last."""

    def prepared(self, found: Feed | CairnError) -> None:
        if self._is_over:
            return
        if isinstance(found, CairnError):
            self._fail(found)
            return
        self._feed = found
        log.info("queue %s: followed from LSN %d on (%s)", self.queue.name, self.place, self._mark.name)
        self._begin()

    @property
    def behind_bytes(self) -> int:
        return max(0, self._store.durable_lsn - self.place)

    @property
    def behind_messages(self) -> int:
        return 0

    def go_on(self) -> None:
        feed, durable_lsn = self._feed, self._store.durable_lsn
        room = self._limit - self._forwarded
        if feed is None or self._is_busy or self._is_over or room <= 0 or durable_lsn < self._cut_lsn:
            return
        if self._is_idle and durable_lsn <= self._seen_lsn:
            return
        self._is_busy, self._seen_lsn = True, durable_lsn
        cut_lsn = self._store.journal.cut_lsn
        self._broker.reader.ask(lambda: feed.take(room, durable_lsn, cut_lsn), self._fed)

    def _fed(self, fed: Fed) -> None:
        self._is_busy, self._is_idle = False, fed.is_idle
        if self._is_over:
            return
        self._forward([(one.place, one.content) for one in fed.messages])
        if fed.error is not None:
            self._fail(fed.error)
        else:
            self.go_on()

    def _idle_message(self) -> bytes | None:
        return self._feed.tick() if self._feed is not None and not self._is_busy and self._is_idle else None

    def _fail(self, error: CairnError) -> None:
        self._end()
        if isinstance(error, HistoryGone):
            self._forget()
            self.terminal.failure("amqp:not-found", f"what the follower has not got yet is gone: {error}")
        elif isinstance(error, QueueGone):
            self.terminal.failure("amqp:resource-deleted", str(error))
        else:
            self.terminal.failure("amqp:internal-error", str(error))
        log.warning("queue %s: it is not followed any more by %s: %s", self.queue.name, self._mark.name, error)

    def _moved(self) -> None:
        if self.place >= self._mark.lsn + MARK_BYTES and self._store.bookmarks is not None:
            self._mark = self._mark._replace(lsn=self.place)
            self._broker.reader.ask(partial(self._store.bookmarks.move, self._mark), _marked)

    def _forget(self) -> None:
        if self._store.bookmarks is not None:
            self._broker.reader.ask(partial(self._store.bookmarks.remove, self._mark.name), _marked)


def _marked(error: CairnError | None) -> None:
    if error is not None:
        log.warning("the place of a follower can't be written down: %s", error)
