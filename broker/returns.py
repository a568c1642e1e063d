"""What becomes of a message that nobody accepted: back to its queue, now or later, or away to another address.

A message that is moved is taken off its queue and put where it goes in one transaction: after a crash it is in one of
the two places. It then says in its annotations where it came from and why: `x-opt-deaths` is a list of maps, the oldest
first, with `queue`, `reason`, `count`, `first-time` and `last-time`; `x-opt-first-death-queue` and -`reason`, and
`x-opt-last-death-queue` and -`reason`, save looking there. What times it had are `times`' to say. Core only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..amqp import header, sections
from ..amqp.codec import Malformed
from ..amqp.values import Timestamp
from ..base.errors import CairnError
from ..store.why import Why
from .cluster import Kept
from .entry import Entry
from .exchange import queues_through
from .line import Shown
from .places import ExchangePlace, Place
from .policy import EXPIRY, REJECTION, TOO_OFTEN
from .queue import Queue
from .recording import entries_of
from .times import DELIVERY_DELAY, DELIVERY_TIME, ENQUEUED, carried

if TYPE_CHECKING:
    from .broker import Broker

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""What can't be moved away now is tried again so much later."""
MOST_COUNTED = 1 << 31
"""What a message says of its deaths may be its sender's invention."""
WHY = {REJECTION: Why.REJECTED, TOO_OFTEN: Why.DELIVERY_LIMIT, EXPIRY: Why.EXPIRED, "": Why.MOVED}
"""What the journal says of each reason for which a message is moved away."""
Found = tuple[list[Queue], bytes]
"""Where a message goes, and its content there."""
Then = Callable[[int], None]
"""Gets the LSN to wait for before anyone is told that the message is away."""


class Returns:
    """The ways back and away, for all queues of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def give_back(
        self, queue: Queue, entry: Entry, *, failed: bool, back: Callable[[Entry], None] | None = None
    ) -> None:
        """Back to its place on the queue; a delivery that failed waits first, if the policy says so.

        *back*: puts it there, if it is not the queue itself that knows its place.
        """
        back = back or queue.give_back
        delay_ms = queue.policy.retry_delay_ms if failed else 0
        if not delay_ms or queue.gone:
            back(entry)
            return
        delay_ms = min(delay_ms << min(entry.failures - 1, 32), max(queue.policy.max_retry_delay_ms, delay_ms))
        queue.away[entry] = None
        self._broker.timers.after(delay_ms / 1000, self._come_back, queue, entry, back)

    def _come_back(self, queue: Queue, entry: Entry, back: Callable[[Entry], None]) -> None:
        if entry in queue.away:
            del queue.away[entry]
            if queue.stands(entry):  # it has expired, and was left among the others
                queue.watch(entry)
            else:
                back(entry)
            self._broker.touch(queue)

    def bury(self, queue: Queue, entry: Entry, reason: str, then: Then) -> None:
        """Off the queue: to the address that its policy names for such messages, or nowhere."""
        policy = queue.policy
        address = policy.expiry_address if reason is EXPIRY else policy.dead_letter_address
        if not address or queue.gone:
            _count(queue, reason)
            self._let_go(queue, entry, reason, then)
            return
        queue.away[entry] = None
        if entry.content is not None:
            self._find(queue, entry, reason, then, address, entry.whole())
        else:
            self._broker.reader.load_whole(
                [entry.message_id], lambda contents: self._find(queue, entry, reason, then, address, contents[0])
            )

    def look_up(
        self, queue: Queue, entry: Entry, reason: str, failures: int, then: Callable[[Found | CairnError], None]
    ) -> None:
        """Where *entry* is to be moved for that reason, with that count of failures; nothing is done yet."""
        address = queue.policy.dead_letter_address
        now_us = self._broker.clock.wall_us()

        def loaded(contents: Sequence[bytes | CairnError]) -> None:
            content = contents[0]
            if isinstance(content, CairnError):
                then(content)
            else:
                self._broker.find_for_itself(address, lambda found: placed(found, content))

        def placed(found: Place | Exception, content: bytes) -> None:
            if isinstance(found, CairnError):
                then(found)
            else:
                targets = self._targets(queue, found, content)
                then((targets, _shown(queue, failures, reason, targets, content, now_us)))

        if not address:
            then(([], b""))
        elif entry.content is not None:
            loaded([entry.whole()])
        else:
            self._broker.reader.load_whole([entry.message_id], loaded)

    def _let_go(self, queue: Queue, entry: Entry, reason: str, then: Then) -> None:
        cluster = self._broker.cluster
        if cluster is None or not queue.replicated or entry.gone or queue.gone:
            then(self._take_off(queue, entry, reason))
        else:
            queue.away[entry] = None
            cluster.take(queue, [entry], WHY[reason], lambda: then(0))

    def _take_off(self, queue: Queue, entry: Entry, reason: str) -> int:
        """For good; the LSN to wait for."""
        if entry.gone or queue.gone:
            return 0
        queue.took([entry])
        if not entry.message_id:
            return 0
        now_us = self._broker.clock.wall_us()
        return self._broker.store.dequeue(entry.message_id, queue.queue_id, now_us, WHY[reason])

    def _find(
        self, queue: Queue, entry: Entry, reason: str, then: Then, address: str, content: bytes | CairnError
    ) -> None:
        if isinstance(content, CairnError):
            queue.away.pop(entry, None)
            queue.put_aside(entry, content)
            then(0)
        else:
            self._broker.find_for_itself(address, lambda found: self._found(queue, entry, reason, then, found, content))

    def _found(
        self, queue: Queue, entry: Entry, reason: str, then: Then, found: Place | Exception, content: bytes
    ) -> None:
        queue.away.pop(entry, None)
        if entry.gone:
            then(0)
            return
        try:
            if isinstance(found, CairnError):
                raise found
            targets = self._targets(queue, found, content)
            if queue.replicated or any(target.replicated for target in targets):
                self._order_move(queue, entry, reason, targets, content, lambda: then(0), _nothing)
                _count(queue, reason)
                return
            lsn = self._move(queue, entry, reason, targets, content)
            _count(queue, reason)
        except CairnError as error:  # the disk is full, or SQL away: nobody is to lose a message for that
            about = {"queue": queue.name}
            told = queue.name, entry.message_id, reason, error
            log.warning("queue %s: message %d (%s) can't be moved: %s", *told, extra=about)
            queue.away[entry] = None
            self._broker.timers.after(RETRY_S, self._come_back, queue, entry, queue.give_back)
            lsn = 0
        then(lsn)

    def move(
        self, queue: Queue, entry: Entry, found: Place, content: bytes, refused: Callable[[], None]
    ) -> int | None:
        """*entry*, whose content that is, off the queue and to *found*, as it is; the LSN to wait for.

        None, and nothing is done, if nobody wants it there; *refused* is called, and it is back on its queue, if that
        turns out in a cluster only later. Raises `CairnError`, with nothing done.
        """
        targets = self._targets(queue, found, content)
        if not targets:
            return None
        if queue.replicated or any(target.replicated for target in targets):
            self._order_move(queue, entry, "", targets, content, _nothing, refused)
            return 0
        return self._move(queue, entry, "", targets, content)

    def _order_move(
        self,
        queue: Queue,
        entry: Entry,
        reason: str,
        targets: list[Queue],
        content: bytes,
        then: Callable[[], None],
        refused: Callable[[], None],
    ) -> None:
        """The same by way of the cluster, for a queue that is replicated, or to one.

        *refused*: only without *reason*; with one it goes, be there a place for it or not.
        """
        cluster = self._broker.cluster
        assert cluster is not None
        ordered = [target for target in targets if target.replicated]
        others = [target for target in targets if not target.replicated]
        shown = _shown(queue, entry.failures, reason, targets, content, self._broker.clock.wall_us())
        queue.away[entry] = None
        if queue.replicated:
            lsn, placed = self._keep_here(others, shown, entry.message_id > 0)
            queue.locked[entry] = None  # it is this member's, should the queue become another one's meanwhile

            def kept() -> None:
                queue.locked.pop(entry, None)
                cluster.move(queue, entry, ordered, shown, WHY[reason], then, refused)

            self._broker.line.show(lsn, placed, kept)
            return

        def there() -> None:
            queue.away.pop(entry, None)
            lsn = self._take_off(queue, entry, reason)
            self._broker.line.when_durable(lsn, then)

        def nowhere() -> None:
            if reason or others:
                there()
                return
            queue.away.pop(entry, None)
            if not entry.gone:
                queue.give_back(entry)
                self._broker.touch(queue)
            refused()

        cluster.put(ordered, Kept([(shown, bool(entry.message_id))], True), there, nowhere)

    def _keep_here(self, targets: Sequence[Queue], content: bytes, lasts: bool) -> tuple[int, Shown]:
        """Put a message on queues that only this member has, before it is off one that all have."""
        now_us = self._broker.clock.wall_us()
        lasting = [target for target in targets if lasts and target.queue_id]
        transaction = self._broker.store.transactions.begin(now_us)
        try:
            for target in lasting:
                transaction.put(target.queue_id, content, now_us)
            lsn = transaction.commit(now_us)
        except CairnError:
            transaction.rollback(now_us)
            raise
        ids = {target: message_id for target, (message_id, _) in zip(lasting, transaction.stored(), strict=True)}
        return lsn, _placed(targets, ids, content)

    def _targets(self, queue: Queue, found: Place | Exception, content: bytes) -> list[Queue]:
        if isinstance(found, Queue):
            targets = [] if found.going else [found]
        elif isinstance(found, ExchangePlace):
            exchanges = self._broker.nodes.exchanges
            targets = list(queues_through(exchanges, found.exchange, found.key or queue.name, content))
        else:
            about = {"queue": queue.name}
            log.warning("queue %s: a message is dropped, as it can't be moved away: %s", queue.name, found, extra=about)
            targets = []
        return targets

    def _move(self, queue: Queue, entry: Entry, reason: str, targets: list[Queue], content: bytes) -> int:
        if not targets:
            return self._take_off(queue, entry, reason)
        broker = self._broker
        now_us = broker.clock.wall_us()
        content = _shown(queue, entry.failures, reason, targets, content, now_us)
        lasting = [target for target in targets if entry.message_id and target.queue_id]
        lsn = 0
        ids: list[int] = []
        if entry.message_id:
            transaction = broker.store.transactions.begin(now_us)
            try:
                transaction.dequeue(entry.message_id, queue.queue_id, now_us, WHY[reason])
                for target in lasting:
                    transaction.put(target.queue_id, content, now_us)
                lsn = transaction.commit(now_us)
            except CairnError:
                transaction.rollback(now_us)
                raise
            ids = transaction.message_ids
        queue.took([entry])
        broker.line.show(lsn, _placed(targets, dict(zip(lasting, ids, strict=True)), content), _nothing)
        return lsn


def _placed(targets: Sequence[Queue], ids: Mapping[Queue, int], content: bytes) -> Shown:
    """The message on each of its new queues; *ids*: where it is stored."""
    return [
        (target, entries_of(target, [(content, target in ids)], [ids[target]] if target in ids else (), True))
        for target in targets
    ]


def _shown(
    queue: Queue, failures: int, reason: str, targets: Sequence[Queue], content: bytes, now_us: int
) -> bytes:
    """What is on *targets* of a message that leaves *queue* for that reason, or by an operator's hand."""
    if not targets:
        return content
    try:
        if reason:
            content = _with_obituary(queue, failures, reason, content, now_us // 1000)
        return carried(content, now_us, always=any(target.policy.message_ttl_ms for target in targets))
    except Malformed:  # whatever its sender meant by it, it is passed on
        return content


def _with_obituary(queue: Queue, failures: int, reason: str, content: bytes, now_ms: int) -> bytes:
    head = header.parse(content)
    content = (
        sections.header_section(head._replace(delivery_count=head.delivery_count + failures, ttl_ms=None))
        + content[head.size_bytes :]
    )
    before = sections.annotations_of(content, sections.find(content, sections.MESSAGE_ANNOTATIONS))
    times = (ENQUEUED, DELIVERY_TIME, DELIVERY_DELAY)
    return sections.annotated(content, _obituary(before, queue.name, reason, now_ms), without=times)


def _obituary(before: dict[Any, Any], queue: str, reason: str, now_ms: int) -> dict[str, Any]:
    """The annotations of a message that dies on *queue*, from those that it had."""
    told = before.get("x-opt-deaths")
    deaths = [dict(death) for death in told if isinstance(death, dict)] if isinstance(told, list) else []
    again = next((death for death in deaths if (death.get("queue"), death.get("reason")) == (queue, reason)), None)
    if again is None:
        again = {"queue": queue, "reason": reason, "count": 0, "first-time": Timestamp(now_ms)}
        deaths.append(again)
    count = again.get("count")
    again["count"] = min(max(count, 0), MOST_COUNTED) + 1 if isinstance(count, int) else 1
    again["last-time"] = Timestamp(now_ms)
    first = deaths[0]
    return {
        "x-opt-deaths": deaths,
        "x-opt-first-death-queue": str(first.get("queue", "")),
        "x-opt-first-death-reason": str(first.get("reason", "")),
        "x-opt-last-death-queue": queue,
        "x-opt-last-death-reason": reason,
    }


def _count(queue: Queue, reason: str) -> None:
    if reason is EXPIRY:
        queue.expired += 1
    else:
        queue.dead_lettered += 1


def _nothing() -> None:
    """For moves that nobody waits for."""
