"""The worker's end of one channel, and what the core holds of it: the core notes work down, the worker does it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from ..amqp import settling, transactional
from ..amqp.link import Link, Terminus
from ..channel.words import Answer, Attach, Delivery, DriverEnd, Error, Forward, Kept, Resumable, RoutedEnd
from .handing_over import hand_over_acquiring

if TYPE_CHECKING:
    from .terminal import Terminal


class ChannelEnd:
    """The worker's end of one channel, and what the core holds of it (`channel.words.TerminalEnd`)."""

    def __init__(self, terminal: Terminal, link: Link) -> None:
        self.driver: DriverEnd | None = None
        self.for_good = False
        """Once the channel is gone: the client closed the link."""
        self._terminal = terminal
        self._link = link
        self._engine = terminal.engine

    @property
    def error(self) -> Error | None:
        return self._link.error

    # on the core: note it down

    def opened(
        self,
        driver: DriverEnd,
        address: str | None,
        credit: int,
        *,
        filters: bytes = b"",
        found: Terminus | None = None,
        kept: Kept | None = None,
    ) -> None:
        self._terminal.note(self._do_opened, driver, address, credit, filters, found, kept)

    def failure(self, condition: str, description: str) -> None:
        self._terminal.note(self._do_failure, condition, description)

    def confirm(self, deliveries: Sequence[Delivery], credit: int) -> None:
        self._terminal.note(self._do_confirm, deliveries, credit)

    def release(self, deliveries: Sequence[Delivery], credit: int) -> None:
        self._terminal.note(self._do_release, deliveries, credit)

    def hand_back(self, deliveries: Sequence[Delivery], credit: int) -> None:
        self._terminal.note(self._do_hand_back, deliveries, credit)

    def reject(self, deliveries: Sequence[Delivery], credit: int, condition: str, description: str) -> None:
        self._terminal.note(self._do_reject, deliveries, credit, condition, description)

    def tell(self, answers: Sequence[Answer], credit: int) -> None:
        self._terminal.note(self._do_tell, answers, credit)

    def hold(self) -> None:
        self._terminal.note(self._do_hold)

    def go_on(self) -> None:
        self._terminal.note(self._engine.go_on, self._link)

    def more(self) -> None:
        self._terminal.note(self._terminal.pump, self._link)

    def grant(self, credit: int) -> None:
        self._terminal.note(self._engine.grant, self._link, credit)

    def forward(self, messages: Sequence[Forward]) -> None:
        self._terminal.note(self._do_forward, messages)

    def forward_in(self, txn_id: bytes, messages: Sequence[Forward]) -> None:
        told = [(tag, transactional.acquired(txn_id, content)) for tag, content in messages]
        self._terminal.note(self._do_forward, told)

    def recall(self, tags: Collection[Any], done: Callable[[], None]) -> None:
        self._terminal.note(self._do_recall, tags, done)

    def forward_resuming(self, messages: Sequence[Resumable]) -> None:
        self._terminal.note(self._do_forward_resuming, messages)

    def drained(self, spent: int) -> None:
        self._terminal.note(self._do_drained, spent)

    def settle(self, deliveries: Sequence[tuple[Delivery, int]]) -> None:
        self._terminal.note(settling.confirm, self._link, deliveries)

    def declared(self, delivery: Delivery, txn_id: bytes, credit: int) -> None:
        self._terminal.note(self._do_declared, delivery, txn_id, credit)

    def accept_in(self, txn_id: bytes, deliveries: Sequence[Delivery], credit: int) -> None:
        self._terminal.note(self._do_accept_in, txn_id, deliveries, credit)

    def reject_in(
        self, txn_id: bytes, deliveries: Sequence[Delivery], credit: int, condition: str, description: str
    ) -> None:
        self._terminal.note(self._do_reject_in, txn_id, deliveries, credit, condition, description)

    def settle_in(self, deliveries: Sequence[tuple[Delivery, int, Any]], done: Callable[[], None]) -> None:
        self._terminal.note(self._do_settle_in, deliveries, done)

    def opened_as(self, driver: RoutedEnd, found: Attach) -> None:
        self._terminal.note(self._do_opened_as, driver, found)

    def ask(self, credit: int, *, drain: bool) -> None:
        self._terminal.note(self._do_ask, credit, drain)

    def leave(self, error: Error | None, *, for_good: bool) -> None:
        self._terminal.note(self._do_leave, error, for_good)

    # on the worker: do it

    def follow(self, driver: RoutedEnd) -> None:
        """The channel is part of a longer one: what the peer does as a sender is told, too."""
        core = self._terminal.core
        self._link.routed = lambda delivery: core.post(driver.settled, delivery)

    def _take(self, driver: DriverEnd) -> bool:
        """Whether *driver* has the channel from now on; if its answer crossed with the end, it is told that instead."""
        if self._link.closed or self._terminal.closed:
            self._terminal.core.post(driver.close, (), True, self.for_good)
            return False
        self.driver = driver
        return True

    def _do_opened_as(self, driver: RoutedEnd, found: Attach) -> None:
        if not self._take(driver):
            return
        link, terminal = self._link, self._terminal
        self.follow(driver)
        self._engine.open_as(link, found)
        if link.acquiring:
            hand_over_acquiring(terminal, link, driver)
        if link.sender:
            terminal.request(link)

    def _do_ask(self, credit: int, drain: bool) -> None:
        self._engine.flow(self._link, credit, drain=drain)

    def _do_leave(self, error: Error | None, for_good: bool) -> None:
        self._engine.detach(self._link, error, for_good=for_good)

    def _do_opened(
        self,
        driver: DriverEnd,
        address: str | None,
        credit: int,
        filters: bytes,
        found: Terminus | None,
        kept: Kept | None,
    ) -> None:
        if not self._take(driver):
            return
        link, terminal = self._link, self._terminal
        if link.resuming is not None and kept is not None:
            link.resuming.keeper = kept.keeper
            link.resuming.on_settled = lambda tag: terminal.core.post(kept.keeper.forget, tag)
        self._engine.open_link(link, address, filters, found, kept)
        if not link.sender:
            self._engine.grant(link, credit)
        else:
            if link.acquiring:
                hand_over_acquiring(terminal, link, driver)
            limit, drain = self._engine.credit_limit(link)
            if limit or drain:
                terminal.core.post(driver.request, limit, drain)

    def _do_failure(self, condition: str, description: str) -> None:
        self._engine.close_link(self._link, condition, description)

    def _do_confirm(self, deliveries: Sequence[Delivery], credit: int) -> None:
        settling.accept(self._link, deliveries)
        self._engine.grant(self._link, credit)

    def _do_release(self, deliveries: Sequence[Delivery], credit: int) -> None:
        settling.forget(self._link, deliveries)
        self._engine.grant(self._link, credit)

    def _do_hand_back(self, deliveries: Sequence[Delivery], credit: int) -> None:
        settling.release(self._link, deliveries)
        self._engine.grant(self._link, credit)

    def _do_reject(self, deliveries: Sequence[Delivery], credit: int, condition: str, description: str) -> None:
        settling.reject(self._link, deliveries, condition, description)
        self._engine.grant(self._link, credit)

    def _do_declared(self, delivery: Delivery, txn_id: bytes, credit: int) -> None:
        transactional.declare(self._link, delivery, txn_id)
        self._engine.grant(self._link, credit)

    def _do_accept_in(self, txn_id: bytes, deliveries: Sequence[Delivery], credit: int) -> None:
        transactional.accept(self._link, txn_id, deliveries)
        self._engine.grant(self._link, credit)

    def _do_reject_in(
        self, txn_id: bytes, deliveries: Sequence[Delivery], credit: int, condition: str, description: str
    ) -> None:
        transactional.reject(self._link, txn_id, deliveries, condition, description)
        self._engine.grant(self._link, credit)

    def _do_settle_in(self, deliveries: Sequence[tuple[Delivery, int, Any]], done: Callable[[], None]) -> None:
        transactional.settle(self._link, deliveries)
        self._terminal.core.post(done)

    def _do_tell(self, answers: Sequence[Answer], credit: int) -> None:
        settling.tell(self._link, answers)
        self._engine.grant(self._link, credit)

    def _do_hold(self) -> None:
        if not self._link.closed:
            self._engine.hold(self._link)

    def _do_drained(self, spent: int) -> None:
        if self._engine.outgoing.drained(self._link, spent):
            self._terminal.request(self._link)

    def _do_forward(self, messages: Sequence[Forward]) -> None:
        link, terminal = self._link, self._terminal
        if link.closed or terminal.closed:  # they crossed with the detach, unseen: the driver takes them back
            assert self.driver is not None
            terminal.core.post(self.driver.close, [tag for tag, _ in messages], False, self.for_good)
            return
        link.outbox.extend(messages)
        if self._engine.outgoing.ranked:  # first hear what there is for links of a higher priority
            self._engine.outgoing.blocked.setdefault(link)
        else:
            terminal.pump(link)

    def _do_recall(self, tags: Collection[Any], done: Callable[[], None]) -> None:
        link, terminal = self._link, self._terminal
        if not link.closed and not terminal.closed:
            transactional.recall(link, tags)
            terminal.pump(link)
            terminal.request(link)
        terminal.core.post(done)

    def _do_forward_resuming(self, messages: Sequence[Resumable]) -> None:
        if not self._link.closed:
            self._engine.note_tags(self._link, messages)
        self._do_forward([message[:2] for message in messages])
