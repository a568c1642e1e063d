"""The worker's end of one channel, as the core uses it: the core queues work, the worker does it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, cast

from ...amqp.codec import encode
from ...amqp.codec.types import Symbol
from ...amqp.engine.engine import Engine
from ...amqp.links import settlement, transaction_state
from ...amqp.links import terminus as termini
from ...amqp.links.attach import said_by_peer
from ...amqp.links.credit import grant
from ...amqp.links.link import Link
from ...amqp.links.resume_state import KeptLink, Resumable, tag_of
from ...amqp.links.values import Terminus
from ...amqp.native.proton_ffi import ACCEPTED, RELEASED
from ...amqp.ports import (
    NOT_ACQUIRED,
    AcquiringEnd,
    Answer,
    Attach,
    Delivery,
    DriverEnd,
    Error,
    Forward,
    Open,
    ResumingEnd,
    RoutedEnd,
)
from ..kernel.core import Core


class LinkHost(Protocol):
    """The connection that a link belongs to (`Terminal`)."""

    core: Core
    engine: Engine
    closed: bool
    name: str
    reason: str

    @property
    def container(self) -> str:
        """Return the client's AMQP container ID."""

    def note(self, action: Callable[..., None], *args: Any) -> None:
        """Queue work for the worker of the connection. On the core."""

    def pump(self, link: Link) -> None:
        """Send the waiting messages of *link*."""

    def request(self, link: Link) -> None:
        """Report the client's credit to the driver."""


class ChannelEnd:
    """The worker's end of one channel (`amqp.ports.TerminalEnd`). The core queues work, the worker does it."""

    def __init__(self, host: LinkHost, link: Link) -> None:
        self.driver: DriverEnd | None = None
        self.for_good = False
        """True if the channel is over because the client closed the link."""
        self._host = host
        self._link = link
        self._engine = host.engine
        self._endpoints = host.engine.endpoints
        self._holds = 0
        """The number of holders of the link: each `hold` has its `go_on`."""

    @property
    def error(self) -> Error | None:
        return self._link.error

    @property
    def client(self) -> str:
        return f"{self._host.name} (container {self._host.container!r})"

    @property
    def lost_reason(self) -> str:
        return self._host.reason

    @property
    def credit(self) -> int:
        return self._link.credit

    def attach(self, connection: object, container: str, user: str, is_routed: Callable[[str | None], bool]) -> Open:
        """Return the request that the attach of the client makes."""
        link = self._link
        link.is_forwarded = is_routed(link.asked.address)
        return Open(
            link.sender,
            link.asked,
            link.presettled,
            connection,
            link.name,
            container,
            user,
            link.far_address,
            link.resuming.claims if link.resuming is not None else None,
            self._endpoints.session_of(link),
            said_by_peer(link) if link.is_forwarded and not link.closed else None,
        )

    # on the core: queue it

    def opened(
        self,
        driver: DriverEnd,
        address: str | None,
        credit: int,
        *,
        filters: bytes = b"",
        found: Terminus | None = None,
        kept: KeptLink | None = None,
    ) -> None:
        self._host.note(self._do_opened, driver, address, credit, filters, found, kept)

    def failure(self, condition: str, description: str) -> None:
        self._host.note(self._endpoints.close_link, self._link, condition, description)

    def confirm(self, deliveries: Sequence[Delivery], credit: int) -> None:
        self._host.note(settlement.settle, self._link, deliveries, ACCEPTED, credit)

    def release(self, deliveries: Sequence[Delivery], credit: int) -> None:
        self._host.note(settlement.forget, self._link, deliveries, credit)

    def hand_back(self, deliveries: Sequence[Delivery], credit: int) -> None:
        self._host.note(settlement.settle, self._link, deliveries, RELEASED, credit)

    def reject(self, deliveries: Sequence[Delivery], credit: int, condition: str, description: str) -> None:
        self._host.note(settlement.reject, self._link, deliveries, credit, condition, description)

    def refuse_relayed(
        self, delivery: Delivery, condition: str, description: str, *, is_settled: bool, txn_id: bytes = b""
    ) -> None:
        self._host.note(self._do_refuse_relayed, delivery, condition, description, is_settled, txn_id)

    def tell(self, answers: Sequence[Answer], credit: int) -> None:
        self._host.note(settlement.tell, self._link, answers, credit)

    def hold(self, *, for_routing: bool = False) -> None:
        self._host.note(self._do_hold, for_routing)

    def go_on(self, *, for_routing: bool = False) -> None:
        self._host.note(self._do_go_on, for_routing)

    def more(self) -> None:
        self._host.note(self._host.pump, self._link)

    def grant(self, credit: int) -> None:
        self._host.note(grant, self._link, credit)

    def forward(self, messages: Sequence[Forward]) -> None:
        self._host.note(self._do_forward, messages)

    def when_sent(self, done: Callable[[], None]) -> None:
        self._host.note(self._do_when_sent, done)

    def forward_in(self, txn_id: bytes, messages: Sequence[Forward]) -> None:
        reported = [(tag, transaction_state.acquired(txn_id, content)) for tag, content in messages]
        self._host.note(self._do_forward, reported)

    def recall(self, tags: Collection[Any], done: Callable[[], None]) -> None:
        self._host.note(self._do_recall, tags, done)

    def forward_resuming(self, messages: Sequence[Resumable]) -> None:
        self._host.note(self._do_forward_resuming, messages)

    def drained(self, spent: int) -> None:
        self._host.note(self._do_drained, spent)

    def settle(self, deliveries: Sequence[tuple[Delivery, int]]) -> None:
        self._host.note(settlement.confirm, self._link, deliveries)

    def declared(self, delivery: Delivery, txn_id: bytes, credit: int) -> None:
        self._host.note(transaction_state.declare, self._link, delivery, txn_id, credit)

    def accept_in(self, txn_id: bytes, deliveries: Sequence[Delivery], credit: int) -> None:
        self._host.note(transaction_state.accept, self._link, txn_id, deliveries, credit)

    def reject_in(
        self, txn_id: bytes, deliveries: Sequence[Delivery], credit: int, condition: str, description: str
    ) -> None:
        self._host.note(transaction_state.reject, self._link, txn_id, deliveries, credit, condition, description)

    def settle_in(self, deliveries: Sequence[tuple[Delivery, int, Any]], done: Callable[[], None]) -> None:
        self._host.note(self._do_settle_in, deliveries, done)

    def opened_as(self, driver: RoutedEnd, found: Attach) -> None:
        self._host.note(self._do_opened_as, driver, found)

    def ask(self, credit: int, *, drain: bool) -> None:
        self._host.note(self._endpoints.flow, self._link, credit, drain)

    def leave(self, error: Error | None, *, for_good: bool) -> None:
        self._host.note(self._endpoints.detach, self._link, error, for_good)

    # on the worker: do it

    def follow(self, driver: RoutedEnd) -> None:
        """Report the peer's actions as a sender, too: the channel is part of a longer one."""
        core = self._host.core
        self._link.routed = lambda delivery: core.post(driver.settled, delivery)

    def _take(self, driver: DriverEnd) -> bool:
        """Attach *driver* to the channel; if the link has ended meanwhile, close *driver* and return False."""
        if self._link.closed or self._host.closed:
            self._host.core.post(driver.close, (), True, self.for_good)
            return False
        self.driver = driver
        return True

    def _do_opened_as(self, driver: RoutedEnd, found: Attach) -> None:
        if not self._take(driver):
            return
        link, host = self._link, self._host
        self.follow(driver)
        self._endpoints.open_as(link, found)
        if link.closed:
            return
        if link.acquiring:
            hand_over_acquiring(host, link, driver)
        if link.sender:
            host.request(link)

    def _do_opened(
        self,
        driver: DriverEnd,
        address: str | None,
        credit: int,
        filters: bytes,
        found: Terminus | None,
        kept: KeptLink | None,
    ) -> None:
        if not self._take(driver):
            return
        link, host = self._link, self._host
        if link.resuming is not None and kept is not None:
            link.resuming.on_settled = lambda tag: host.core.post(cast(ResumingEnd, driver).forget, tag)
        self._endpoints.open_link(link, address, filters, found, kept)
        if link.closed:  # the client detached it before this answer
            return
        if not link.sender:
            grant(link, credit)
        else:
            if link.acquiring:
                hand_over_acquiring(host, link, driver)
            limit, drain = self._engine.credit_limit(link)
            if limit or drain:
                host.request(link)

    def _do_refuse_relayed(
        self, delivery: Delivery, condition: str, description: str, is_settled: bool, txn_id: bytes
    ) -> None:
        link = self._link
        if link.closed:
            return
        info = encode.value({Symbol("delivery-tag"): tag_of(delivery)})
        if is_settled or not termini.offers_rejected(link):
            self._endpoints.close_link(link, condition, description, info)
        elif txn_id:
            transaction_state.reject(link, txn_id, (delivery,), 1, condition, description, info)
        else:
            settlement.reject(link, (delivery,), 1, condition, description, info)

    def _do_settle_in(self, deliveries: Sequence[tuple[Delivery, int, Any]], done: Callable[[], None]) -> None:
        transaction_state.settle(self._link, deliveries)
        self._host.core.post(done)

    def _do_go_on(self, for_routing: bool) -> None:
        self._holds -= 1
        if for_routing:
            self._endpoints.end_routing(self)
        if not self._holds:
            self._engine.go_on(self._link)

    def _do_hold(self, for_routing: bool) -> None:
        self._holds += 1
        if for_routing:
            self._endpoints.begin_routing(self, is_closed=self._link.closed)
        if not (self._link.closed or self._engine.transactional):  # a discharge must not overtake held messages
            self._engine.hold(self._link)

    def _do_drained(self, spent: int) -> None:
        if self._engine.outgoing.drained(self._link, spent):
            self._host.request(self._link)

    def _do_forward(self, messages: Sequence[Forward]) -> None:
        link, host = self._link, self._host
        if link.closed or host.closed:  # they were sent before the detach arrived: the driver requeues them
            assert self.driver is not None
            host.core.post(self.driver.close, [tag for tag, _ in messages], False, self.for_good)
            return
        link.outbox.extend(messages)
        if self._engine.outgoing.ranked:  # first receive input for links of a higher priority
            self._engine.outgoing.blocked.setdefault(link)
        else:
            host.pump(link)

    def _do_when_sent(self, done: Callable[[], None]) -> None:
        link = self._link
        waiting = len(link.outbox) + (link.sending is not None)
        if waiting:
            link.on_sent = link.sent + waiting, done
        else:
            self._host.core.post(done)

    def _do_recall(self, tags: Collection[Any], done: Callable[[], None]) -> None:
        link, host = self._link, self._host
        if not link.closed and not host.closed:
            transaction_state.recall(link, tags)
            host.pump(link)
            host.request(link)
        host.core.post(done)

    def _do_forward_resuming(self, messages: Sequence[Resumable]) -> None:
        if not self._link.closed:
            self._engine.note_tags(self._link, messages)
        self._do_forward([message[:2] for message in messages])


def hand_over_tagged(host: LinkHost, link: Link, driver: DriverEnd, fragments: Sequence[Any]) -> None:
    """Pass arrivals of a link that resumes, or in transactions, to the driver."""
    receive: Callable[..., None] = driver.receive
    receive_in: Callable[..., None] = driver.receive_in
    if link.resuming is not None:
        reported, link.resuming.arrivals = link.resuming.arrivals, []
        # there are fewer fragments if the last ones exceeded the limit, and were discarded
        fragments = [(fragment, *about) for fragment, about in zip(fragments, reported, strict=False)]
        resuming = cast(ResumingEnd, driver)
        receive, receive_in = resuming.receive_resuming, resuming.receive_resuming_in
    for txn_id, run in transaction_state.runs(link, fragments) if link.runs else ((b"", fragments),):
        if txn_id:
            host.core.post(receive_in, host, txn_id, run)
        else:
            host.core.post(receive, run)


def hand_over_acquiring(host: LinkHost, link: Link, driver: DriverEnd) -> None:
    """Pass the transactional acquisitions in flows on *link* to *driver*, each with its credit."""
    acquiring, link.acquiring = link.acquiring, []
    if isinstance(driver, AcquiringEnd):
        for txn_id, limit, drain in acquiring:
            host.core.post(driver.acquire_in, host, txn_id, limit, drain)
    elif any(txn_id for txn_id, _, _ in acquiring):
        host.engine.endpoints.close_link(link, *NOT_ACQUIRED)
