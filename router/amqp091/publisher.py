"""Publishers: the ends of channels on which a client publishes, one for each exchange, or queue of the default one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ...amqp.ports import ABORTED, MORE, SETTLED, Answer, Delivery, DriverEnd, Fragment
from ...amqp091.arguments import exchange_address, queue_address
from .end import End, Host


class Publishing(NamedTuple):
    """A message on its way in: the delivery of the driver."""

    number: int
    """The number of the message for publisher confirms; 0 if the channel has none."""
    kept: Any
    """A mandatory message, which is returned if it reaches no queue; None for others."""


class Confirmer(Protocol):
    """The channel of a publisher."""

    number: int

    def confirmed(self, numbers: Sequence[int]) -> None:
        """Confirm messages by their numbers."""

    def refused(self, numbers: Sequence[int]) -> None:
        """Report that messages were not stored."""

    def returned(self, message: Any) -> None:
        """Return a mandatory message."""

    def answered(self, message: Any) -> None:
        """Let go of a mandatory message."""

    def publisher_failed(self, publisher: Publisher, condition: str, description: str) -> None:
        """Handle that a publisher could not be opened, or was closed."""


class Publisher(End):
    """The end of one channel to an exchange or queue."""

    def __init__(self, host: Host, channel: Confirmer, exchange: str, key: str) -> None:
        """*key*: that of the default exchange; others get each message's."""
        super().__init__(host)
        self.exchange, self.key = exchange, key
        self.is_open = False
        self.inbox: list[Fragment] = []
        """The fragments that arrived since the last flush."""
        self._channel = channel
        self._credit = 0
        self._holds = 0

    def start(self) -> None:
        """Open the channel; the connection is not read before it is open."""
        self.host.pause(self)
        address = exchange_address(self.exchange) if self.exchange else queue_address(self.key)
        self.open(to_client=False, address=address, session=self._channel.number)

    def add(self, delivery: Publishing, data: bytes, *, more: bool) -> None:
        """Add a piece of a message."""
        flags = (0 if delivery.number or delivery.kept is not None else SETTLED) | (MORE if more else 0)
        self.inbox.append((delivery, data, flags))
        if not more:
            self._credit -= 1
            if self._credit <= 0:
                self._pause()

    def abort(self, delivery: Publishing) -> None:
        """Abort a message whose rest does not come."""
        self.inbox.append((delivery, b"", ABORTED | SETTLED))

    def flush(self) -> None:
        """Pass on what arrived."""
        fragments, self.inbox = self.inbox, []
        if fragments and self.driver is not None and not self.is_closed:
            self.host.core.post(self.driver.receive, fragments)

    def _pause(self) -> None:
        if not self._holds and self._credit <= 0:
            self.host.pause(self)

    def _return_credit(self, credit: int) -> None:
        was_spent = self._credit <= 0
        self._credit += credit
        if was_spent and self._credit > 0 and not self._holds:
            self.host.resume(self)

    # ---- on the core: queue it ------------------------------------------------------------------------------------

    def confirm(self, deliveries: Sequence[Delivery], credit: int) -> None:
        self.host.note(self._do_answer, self._channel.confirmed, deliveries, credit)

    def release(self, deliveries: Sequence[Delivery], credit: int) -> None:
        self.host.note(self._do_answer, self._channel.confirmed, deliveries, credit)

    def hand_back(self, deliveries: Sequence[Delivery], credit: int) -> None:
        self.host.note(self._do_return, deliveries, credit)

    def reject(self, deliveries: Sequence[Delivery], credit: int, condition: str, description: str) -> None:
        self.host.note(self._do_answer, self._channel.refused, deliveries, credit)

    def tell(self, answers: Sequence[Answer], credit: int) -> None:
        deliveries = [answer.delivery for answer in answers if answer.settled]
        self.host.note(self._do_answer, self._channel.confirmed, deliveries, credit)

    def hold(self, *, for_routing: bool = False) -> None:
        self.host.note(self._do_hold)

    def go_on(self, *, for_routing: bool = False) -> None:
        self.host.note(self._do_go_on)

    def grant(self, credit: int) -> None:
        self.host.note(self._return_credit, credit)

    # ---- on the worker: do it -------------------------------------------------------------------------------------

    def _do_opened(self, driver: DriverEnd, credit: int) -> None:
        if self.take(driver):
            self.is_open = True
            self._credit = credit
            if credit > 0 and not self._holds:
                self.host.resume(self)

    def _do_fail(self, condition: str, description: str) -> None:
        self.close()
        self.host.resume(self)
        self._channel.publisher_failed(self, condition, description)

    def _do_answer(
        self, answer: Callable[[Sequence[int]], None], deliveries: Sequence[Publishing], credit: int
    ) -> None:
        numbers = [one.number for one in deliveries if one.number]
        for one in deliveries:
            if one.kept is not None:
                self._channel.answered(one.kept)
        if numbers:
            answer(numbers)
        self._return_credit(credit)

    def _do_return(self, deliveries: Sequence[Publishing], credit: int) -> None:
        for one in deliveries:
            if one.kept is not None:
                self._channel.returned(one.kept)
        self._do_answer(self._channel.confirmed, deliveries, credit)

    def _do_hold(self) -> None:
        self._holds += 1
        self.host.pause(self)

    def _do_go_on(self) -> None:
        self._holds -= 1
        if not self._holds and self._credit > 0:
            self.host.resume(self)
