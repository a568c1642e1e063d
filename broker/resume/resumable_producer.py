"""Producers with memory of accepted deliveries: a client whose connection broke learns the stored ones, and sends once.

The tag of a delivery is recorded in one transaction with its message, so that after a crash both exist or neither, and
is deleted when the client has settled. Refused deliveries are not remembered: repeating one does no harm. Core only.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...amqp.native.proton_ffi import ACCEPTED
from ...amqp.ports import ABORTED, MORE, SETTLED, Arrival, Claims, Fragment, KeptLink
from ...base.errors import CairnError
from ...store.contract.transaction import Put, StoreTransaction
from ..kernel.commit_queue import Shown
from ..kernel.context import CoreContext
from ..links.enqueue import Enqueuer, Queues
from ..links.partial_message import PartialMessage
from ..links.producer import Producer, Route
from ..transactions.staging import DeliveryTag
from ..transactions.transaction import ClientTransaction
from .endpoint import LinkEndpoint, LinkQueue, Ready, ResumableDriver

log = logging.getLogger(__name__)


class SenderEndpoint(LinkEndpoint):
    """The endpoint of a link on which a client sends; messages on its queue are tags of accepted deliveries."""

    def __init__(self, core: CoreContext, drop: Callable[[LinkEndpoint], None], queue: LinkQueue) -> None:
        super().__init__(core, drop, queue)
        self.tags: dict[bytes, int] = {}
        """Tags of accepted deliveries, and the IDs of the messages that keep them; 0 for none."""
        self.doubtful: dict[bytes, DeliveryTag] = {}
        """Deliveries in open transactions that the client has not settled, by their tags."""
        self._unread = queue.messages > 0
        """True if tags that were kept when the broker started are still to be read."""

    def forget(self, tag: bytes) -> None:
        """Remove the tag of a delivery that the client has settled."""
        doubtful = self.doubtful.pop(tag, None)
        if doubtful is not None:
            doubtful.is_settled = True
        self.dequeue(self.tags.pop(tag, 0))

    def remember_in(self, transaction: ClientTransaction, tag: bytes) -> None:
        """Remember the delivery *tag* if *transaction* is committed."""
        self.doubtful[tag] = doubtful = DeliveryTag(self.queue, tag, self._transaction_ended)
        transaction.staging.remember(doubtful)

    def _transaction_ended(self, doubtful: DeliveryTag, message_id: int) -> None:
        if self.doubtful.get(doubtful.tag) is doubtful:
            del self.doubtful[doubtful.tag]
        if doubtful.is_settled:
            self.dequeue(message_id)
        elif message_id:
            self.tags[doubtful.tag] = message_id

    def _attached(self, driver: ResumableDriver, claims: Claims, ready: Ready) -> None:
        if self._unread:
            ids = [one for one in self.queue.contents.backlog.page(0, self.queue.contents.backlog.count).ids if one]
            self._core.loader.load_notes(ids, partial(self._read, ids, driver, claims, ready))
        else:  # all earlier deliveries are durable when the client gets the answer
            self._core.commits.when_durable(0, self._answer, driver, claims, ready)

    def _read(
        self, ids: list[int], driver: ResumableDriver, claims: Claims, ready: Ready, tags: list[bytes | CairnError]
    ) -> None:
        if self._unread:
            self._unread = False
            for message_id, tag in zip(ids, tags, strict=True):
                if isinstance(tag, CairnError):
                    event = {"event": "link.tag-unreadable"}
                    log.error("link %s: a delivery tag can't be read: %s", self.about["name"], tag, extra=event)
                else:
                    self.tags[tag] = message_id
        self._answer(driver, claims, ready)

    def _answer(self, driver: ResumableDriver, claims: Claims, ready: Ready) -> None:
        if self.driver is not driver:
            ready(None)
            return
        if claims.complete:  # it has settled those that it does not name
            for tag in [tag for tag in self.tags if tag not in claims.states]:
                self.forget(tag)
        claims.states.clear()
        ready(KeptLink(dict.fromkeys(self.tags, ACCEPTED), self.expires_s))


class TagWriter:
    """Stores the messages of one delivery in a transaction with its tag."""

    def __init__(self, core: CoreContext, endpoint: SenderEndpoint, tag: bytes) -> None:
        self._store = core.store
        self._endpoint = endpoint
        self._tag = tag

    def write(self, queues: Queues, contents: Sequence[bytes], now_us: int) -> tuple[Sequence[int], int]:
        transaction = self._store.transactions.begin(now_us)
        for content in contents:
            if len(queues) == 1:
                transaction.put(queues[0].queue_id, content, now_us)
            else:
                transaction.put_on([queue.queue_id for queue in queues], content, now_us)
        lsn = self._commit(transaction, now_us)
        return list(dict.fromkeys(_ids(transaction)[:-1])), lsn

    def finish(self, partial: PartialMessage, now_us: int) -> tuple[int, Shown]:
        transaction = self._store.transactions.begin(now_us)

        def enqueue(message_id: int, queue_id: int, time_us: int) -> int:
            transaction.enqueue(message_id, queue_id, time_us)
            return 1

        lsn, shown = partial.finish(enqueue, now_us)
        if lsn:
            lsn = self._commit(transaction, now_us)
        else:
            transaction.rollback(now_us)
            if shown:
                self._endpoint.tags[self._tag] = 0
        return lsn, shown

    def _commit(self, transaction: StoreTransaction, now_us: int) -> int:
        """Commit the transaction together with the tag."""
        transaction.put(self._endpoint.queue_id, self._tag, now_us)
        lsn = transaction.commit(now_us)
        self._endpoint.tags[self._tag] = _ids(transaction)[-1]
        return lsn


class ResumableProducer(Producer):
    """A producer on a resumable link."""

    is_stolen = False
    """True after the client has attached elsewhere: messages that still arrive here are ignored without an outcome."""

    def __init__(self, enqueuer: Enqueuer, route: Route, end: SenderEndpoint) -> None:
        super().__init__(enqueuer, route)
        self.end = end
        self._held: deque[tuple[ClientTransaction | None, Arrival]] = deque()
        """Arrivals, and their transactions, that wait here while the route is behind: it would lose their tags."""

    def receive_resuming(self, arrivals: Sequence[Arrival]) -> None:
        self._receive_arrivals(None, arrivals)

    def receive_resuming_in(self, connection: object, txn_id: bytes, arrivals: Sequence[Arrival]) -> None:
        self._receive_arrivals(self._transactions.find(connection, txn_id), arrivals)

    def _receive_arrivals(self, transaction: ClientTransaction | None, arrivals: Sequence[Arrival]) -> None:
        for number, arrival in enumerate(arrivals):
            if self._held or self._route.is_behind():
                self._hold(transaction, arrivals[number:])
                return
            self._receive_arrival(transaction, *arrival)

    def _hold(self, transaction: ClientTransaction | None, arrivals: Sequence[Arrival]) -> None:
        """Have *arrivals* wait for a later step."""
        if not self._held:
            self.terminal.hold(for_routing=True)
            self._core.background.put_off(self._receive_held, self._user)
        self._held.extend([(transaction, arrival) for arrival in arrivals])
        if transaction is not None:
            transaction.pending += len(arrivals)

    def _receive_held(self) -> None:
        """Take the arrivals that were held, as far as the route takes them."""
        while self._held and not self._route.is_behind():
            self._receive_held_one(*self._held.popleft())
        if self._held:
            self._core.background.put_off(self._receive_held, self._user)
        else:
            self.terminal.go_on(for_routing=True)

    def _receive_held_one(self, transaction: ClientTransaction | None, arrival: Arrival) -> None:
        if transaction is None:
            self._receive_arrival(None, *arrival)
            return
        if self.is_stolen:
            transaction.fail("a link of the transaction was attached again before all its messages were enqueued")
        else:
            self._receive_arrival(transaction, *arrival)
        transaction.end_pending()

    def _close_held(self, *, for_good: bool) -> None:
        """Take the arrivals that were held, but for deliveries that the client sends again when it resumes."""
        pieces: list[tuple[ClientTransaction | None, Arrival]] = []
        while self._held:
            pieces.append(self._held.popleft())
            transaction, (fragment, _, _) = pieces[-1]
            if fragment[2] & MORE and not fragment[2] & ABORTED:
                continue
            if for_good or transaction is not None or fragment[2] & SETTLED:
                for piece in pieces:
                    self._receive_held_one(*piece)
            else:
                self._drop_partial()
            pieces = []
        for transaction, _ in pieces:  # the end of the message did not arrive
            if transaction is not None:
                transaction.end_pending()

    def _receive_arrival(
        self, transaction: ClientTransaction | None, fragment: Fragment, tag: bytes, resumed: bool
    ) -> None:
        """Receive a message, or a piece of one, unless it was accepted before."""
        if self.is_stolen:
            return
        if resumed or (self._partial is None and tag in self.end.tags):
            self._resume(fragment, tag)
        elif transaction is not None:
            self.enqueuer.transaction = transaction
            self.receive((fragment,))
            self.enqueuer.transaction = None
            if not fragment[2] & (MORE | SETTLED | ABORTED):
                self.end.remember_in(transaction, tag)
        elif fragment[2] & SETTLED:
            self.receive((fragment,))
        else:
            self._receive_tagged(fragment, tag)

    def forget(self, tag: bytes) -> None:
        if not self.is_stolen:  # otherwise the client may have used that tag again, on its present link
            self.end.forget(tag)

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        self._close_held(for_good=for_good)
        super().close(returned, lost, for_good)
        self.end.left(self, for_good=for_good)

    def _resume(self, fragment: Fragment, tag: bytes) -> None:
        """Answer a delivery that arrives again, or only its end, from what is stored."""
        delivery, _, flags = fragment
        if flags & MORE:
            return
        if flags & (SETTLED | ABORTED):  # an aborted delivery is settled, too
            self.end.forget(tag)
            self.terminal.release((delivery,), 1)
        elif tag in self.end.tags:
            self.terminal.confirm((delivery,), 1)
        else:
            self.terminal.hand_back((delivery,), 1)

    def _receive_tagged(self, fragment: Fragment, tag: bytes) -> None:
        """Receive a message and remember its tag; if the message is not stored, as long as the broker runs."""
        enqueuer = self.enqueuer
        enqueuer.writer = TagWriter(self._core, self.end, tag)
        enqueuer.is_accepted = False
        self.receive((fragment,))
        enqueuer.writer = None
        if enqueuer.is_accepted:
            self.end.tags.setdefault(tag, 0)


def _ids(transaction: StoreTransaction) -> list[int]:
    """Return the IDs of the messages that a committed transaction put on queues, by its operations."""
    staged = {*transaction.staged}
    made = iter([message_id for message_id in transaction.message_ids if message_id not in staged])
    return [next(made) if isinstance(one, Put) else one.message_id for one in transaction.operations]
