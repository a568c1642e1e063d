"""Requests of a connection to the broker's management: what its clients declare, bind and delete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...amqp.codec import decode, encode, sections
from ...amqp.codec.primitives import Malformed
from ...amqp.ports import Delivery, DriverEnd, Forward
from .end import End, Host

ADDRESS = "$management"
REPLIES = "amqp-0-9-1-replies"
"""The target of the link for responses, by which requests name it."""
WINDOW = 64


class Response(NamedTuple):
    """The response to a request."""

    status: int
    description: str
    body: Any


Answered = Callable[[Response], None]


class _Replies(End):
    """The end of the channel from management."""

    def __init__(self, host: Host, take: Callable[[bytes], None], opened: Callable[[], None]) -> None:
        super().__init__(host)
        self._take = take
        self._opened = opened
        self._limit = 0

    def _do_opened(self, driver: DriverEnd, credit: int) -> None:
        if self.take(driver):
            self.allow(WINDOW)
            self._opened()

    def allow(self, more: int) -> None:
        assert self.driver is not None
        self._limit += more
        self.host.core.post(self.driver.request, self._limit, False)

    def _do_fail(self, condition: str, description: str) -> None:
        self.close()

    def forward(self, messages: Sequence[Forward]) -> None:
        self.host.note(self._do_forward, messages)

    def drained(self, spent: int) -> None:
        """Do nothing: no drain is requested."""

    def _do_forward(self, messages: Sequence[Forward]) -> None:
        for _, content in messages:
            assert isinstance(content, bytes)
            self._take(content)
        if not self.is_closed:
            self.allow(len(messages))


class _Requests(End):
    """The end of the channel to management."""

    def __init__(self, host: Host, opened: Callable[[], None], failed: Callable[[str], None]) -> None:
        super().__init__(host)
        self._opened = opened
        self._failed = failed

    def _do_opened(self, driver: DriverEnd, credit: int) -> None:
        if self.take(driver):
            self._opened()

    def _do_fail(self, condition: str, description: str) -> None:
        self.close()
        self._failed(description)

    def confirm(self, deliveries: Sequence[Delivery], credit: int) -> None:
        """Do nothing: the response follows."""

    release = hand_back = confirm

    def grant(self, credit: int) -> None:
        """Do nothing: one request at a time is sent."""

    def hold(self, *, for_routing: bool = False) -> None:
        """Do nothing: the next request waits for the response anyway."""

    go_on = hold

    def reject(self, deliveries: Sequence[Delivery], credit: int, condition: str, description: str) -> None:
        self.host.note(self._failed, description)

    def send(self, content: bytes) -> None:
        assert self.driver is not None
        self.host.core.post(self.driver.receive, [(None, content, 0)])


class Requests:
    """Requests of one connection, one at a time: the client's next method waits for the answer."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._waiting: list[tuple[bytes, Answered]] = []
        self._is_asking = False
        self._replies: _Replies | None = None
        self._requests: _Requests | None = None

    def ask(self, operation: str, kind: str, name: str, body: dict[str, Any] | None, answered: Answered) -> None:
        """Send a request; *answered* is called with the response. The connection is not read before."""
        properties: dict[str, Any] = {"operation": operation, "type": kind, "name": name}
        if kind == "binding" and not name:
            del properties["name"]
        content = (
            encode.described(0x73, encode.value([None, None, None, None, REPLIES]))
            + sections.application_properties_section(properties)
            + encode.described(0x77, encode.value(body or {}))
        )
        self._waiting.append((content, answered))
        self._host.pause(self)
        if self._requests is None:
            self._open()
        else:
            self._send_next()

    def _send_next(self) -> None:
        """Send the next request, if both channels are open and no other request is being answered."""
        ends = self._requests, self._replies
        if self._waiting and not self._is_asking and all(end is not None and end.driver is not None for end in ends):
            assert self._requests is not None
            self._is_asking = True
            self._requests.send(self._waiting[0][0])

    def _open(self) -> None:
        self._requests = _Requests(self._host, self._send_next, self._failed)
        self._replies = _Replies(self._host, self._take, self._send_next)
        self._replies.open(to_client=True, address=ADDRESS, session=0, presettled=True, target=REPLIES)
        self._requests.open(to_client=False, address=ADDRESS, session=0)

    def _failed(self, description: str) -> None:
        self._answer(Response(403, description, None))

    def _take(self, content: bytes) -> None:
        try:
            found = sections.application_properties(content, sections.find(content, 0x74))
            parts = sections.index(content).body
            body = decode.value(content, parts[0].value, plain=True)[0] if parts else None
            response = Response(int(found["statusCode"]), str(found["statusDescription"]), body)
        except (Malformed, KeyError, ValueError) as error:
            response = Response(500, f"the answer of management can't be read: {error}", None)
        self._answer(response)

    def _answer(self, response: Response) -> None:
        if not self._waiting:
            return
        _, answered = self._waiting.pop(0)
        self._is_asking = False
        answered(response)
        if not self._waiting:
            self._host.resume(self)
        self._send_next()

    def close(self, *, lost: bool) -> None:
        """Close the channels."""
        for end in (self._requests, self._replies):
            if end is not None:
                end.close(lost=lost)
