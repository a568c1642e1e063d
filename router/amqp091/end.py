"""The worker's end of one channel to a driver, for AMQP 0-9-1: the core queues work, the worker does it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn, Protocol

import pamqp.base

from ...amqp.ports import (
    Answer,
    Attach,
    Delivery,
    DriverEnd,
    Drivers,
    Error,
    Forward,
    KeptLink,
    Open,
    Resumable,
    RoutedEnd,
    Terminus,
)
from ..kernel.core import Core

REPLY_CODES = {
    "amqp:not-found": 404,
    "amqp:unauthorized-access": 403,
    "amqp:resource-locked": 405,
    "amqp:resource-limit-exceeded": 506,
    "amqp:internal-error": 541,
    "amqp:not-implemented": 540,
}
"""Reply codes by the condition of an error; 406 for others."""
REPLY_NAMES = {
    302: "FOUND", 311: "CONTENT_TOO_LARGE", 312: "NO_ROUTE", 320: "CONNECTION_FORCED", 402: "INVALID_PATH",
    403: "ACCESS_REFUSED", 404: "NOT_FOUND", 405: "RESOURCE_LOCKED", 406: "PRECONDITION_FAILED", 501: "FRAME_ERROR",
    502: "SYNTAX_ERROR", 503: "COMMAND_INVALID", 504: "CHANNEL_ERROR", 505: "UNEXPECTED_FRAME", 506: "RESOURCE_ERROR",
    530: "NOT_ALLOWED", 540: "NOT_IMPLEMENTED", 541: "INTERNAL_ERROR",
}  # fmt: skip
MOST_TEXT_BYTES = 255


def reply_text(code: int, text: str) -> str:
    """Return the text of an error as RabbitMQ writes it: the name of the code first."""
    full = f"{REPLY_NAMES[code]} - {text}"
    return full.encode()[:MOST_TEXT_BYTES].decode("utf-8", "ignore")


class ChannelError(Exception):
    """An error of the client that closes its channel."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Host(Protocol):
    """The connection that an end belongs to."""

    core: Core
    drivers: Drivers
    closed: bool
    name: str
    user: str
    container: str
    reason: str
    most_frame_bytes: int

    def note(self, action: Callable[..., None], *args: Any) -> None:
        """Queue *action* for the worker. On the core."""

    def send(self, data: bytes) -> None:
        """Write *data* to the client."""

    def send_method(self, method: pamqp.base.Frame, channel: int) -> None:
        """Write a method to the client."""

    def pause(self, reason: object) -> None:
        """Read nothing more of the client until `resume` is called for the same reason."""

    def resume(self, reason: object) -> None:
        """Read on, if there was no other reason."""


class End:
    """The end of one channel (`amqp.ports.TerminalEnd`), with the calls that no driver of these clients makes."""

    def __init__(self, host: Host) -> None:
        self.driver: DriverEnd | None = None
        self.host = host
        self.is_closed = False

    def open(
        self, *, to_client: bool, address: str, session: int, presettled: bool = False, target: str | None = None
    ) -> None:
        """Request the channel of the core; *session*: the number of the client's channel."""
        host = self.host
        request = Open(
            to_client, Terminus(address), presettled, host, "", host.container, host.user, target,
            session=session, may_create=False,
        )  # fmt: skip
        host.core.post(host.drivers.open, request, self)

    def close(self, returned: Sequence[Any] = (), *, lost: bool = False) -> None:
        """Close the channel; *returned*: tags of messages without an outcome."""
        if self.is_closed:
            return
        self.is_closed = True
        if self.driver is not None:
            self.host.core.post(self.driver.close, returned, lost, not lost)
        self.host.core.post(self.host.drivers.link_closed, self)

    def take(self, driver: DriverEnd) -> bool:
        """Attach *driver*; if the channel has ended meanwhile, close *driver* and return False."""
        if self.is_closed or self.host.closed:
            self.host.core.post(driver.close, (), True, False)
            return False
        self.driver = driver
        return True

    # ---- what the core asks for -----------------------------------------------------------------------------------

    @property
    def error(self) -> Error | None:
        return None

    @property
    def client(self) -> str:
        return self.host.name

    @property
    def lost_reason(self) -> str:
        return self.host.reason

    @property
    def credit(self) -> int:
        return 0

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
        self.host.note(self._do_opened, driver, credit)

    def failure(self, condition: str, description: str) -> None:
        self.host.note(self._do_fail, condition, description)

    def _do_opened(self, driver: DriverEnd, credit: int) -> None:
        raise NotImplementedError

    def _do_fail(self, condition: str, description: str) -> None:
        raise NotImplementedError

    # ---- calls for clients that send ------------------------------------------------------------------------------

    def confirm(self, deliveries: Sequence[Delivery], credit: int) -> None:
        self._never()

    def release(self, deliveries: Sequence[Delivery], credit: int) -> None:
        self._never()

    def hand_back(self, deliveries: Sequence[Delivery], credit: int) -> None:
        self._never()

    def reject(self, deliveries: Sequence[Delivery], credit: int, condition: str, description: str) -> None:
        self._never()

    def tell(self, answers: Sequence[Answer], credit: int) -> None:
        self._never()

    def hold(self, *, for_routing: bool = False) -> None:
        self._never()

    def go_on(self, *, for_routing: bool = False) -> None:
        self._never()

    def grant(self, credit: int) -> None:
        self._never()

    # ---- calls for clients that receive ---------------------------------------------------------------------------

    def forward(self, messages: Sequence[Forward]) -> None:
        self._never()

    def more(self) -> None:
        self._never()

    def when_sent(self, done: Callable[[], None]) -> None:
        self._never()

    def recall(self, tags: Collection[Any], done: Callable[[], None]) -> None:
        self._never()

    def drained(self, spent: int) -> None:
        self._never()

    def settle(self, deliveries: Sequence[tuple[Delivery, int]]) -> None:
        """Do nothing: clients of AMQP 0-9-1 await no answer to an outcome."""

    # ---- calls that need what AMQP 0-9-1 does not have --------------------------------------------------------------

    def _never(self, *args: object, **named: object) -> NoReturn:
        raise AssertionError(f"a driver made a call that no channel of {type(self).__name__} has")

    def opened_as(self, driver: RoutedEnd, found: Attach) -> None:
        self._never()

    def ask(self, credit: int, *, drain: bool) -> None:
        self._never()

    def leave(self, error: Error | None, *, for_good: bool) -> None:
        self._never()

    def refuse_relayed(
        self, delivery: Delivery, condition: str, description: str, *, is_settled: bool, txn_id: bytes = b""
    ) -> None:
        self._never()

    def forward_in(self, txn_id: bytes, messages: Sequence[Forward]) -> None:
        self._never()

    def forward_resuming(self, messages: Sequence[Resumable]) -> None:
        self._never()

    def declared(self, delivery: Delivery, txn_id: bytes, credit: int) -> None:
        self._never()

    def accept_in(self, txn_id: bytes, deliveries: Sequence[Delivery], credit: int) -> None:
        self._never()

    def reject_in(
        self, txn_id: bytes, deliveries: Sequence[Delivery], credit: int, condition: str, description: str
    ) -> None:
        self._never()

    def settle_in(self, deliveries: Sequence[tuple[Delivery, int, Any]], done: Callable[[], None]) -> None:
        self._never()
