"""A call: one request on its way through management, until it is answered. Core only."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..amqp import encode
from ..base.errors import (
    BadXid,
    CairnError,
    DiskFull,
    JournalError,
    SqlDenied,
    SqlReadOnly,
    SqlUnreachable,
    UnknownTransaction,
)
from ..broker.addresses import parse as parse_address
from .request import (
    BAD_REQUEST,
    CONFLICT,
    FORBIDDEN,
    FULL,
    INTERNAL,
    NO_CONTENT,
    NOT_FOUND,
    OK,
    UNAVAILABLE,
    Envelope,
    Refusal,
    Request,
    parse,
    response,
)

if TYPE_CHECKING:
    from ..broker.connections import Link
    from .node import Management

log = logging.getLogger(__name__)

WhyNot = Callable[[str, str, str], str]
"""Why a user may not do an operation on a name; empty if they may."""


class Call:
    """Answered once, at once or later, by `answer` or `refuse`."""

    def __init__(
        self, node: Management, link: Link, asked: Envelope, reply: Callable[[bytes], None], done: Callable[[], None]
    ) -> None:
        """*reply* passes the response on; *done* is called with it: the next request may come."""
        self.node = node
        self.link = link
        self.request = Request("", "", "", {}, None)
        self._asked = asked
        self._reply = reply
        self._done = done

    def run(self, content: bytes, do: Callable[[Call], None]) -> None:
        """Read the request and have it done."""
        try:
            self.request = parse(content, self._asked.found)
            do(self)
        except Refusal as refusal:
            self.refuse(refusal.status, refusal.text)
        except JournalError:
            raise
        except CairnError as error:
            self.failed(error)

    def then(self, do: Callable[..., None]) -> Callable[..., None]:
        """*do*, for later: an error that the caller is to hear of is answered, as it is in `run`."""

        def later(*args: Any) -> None:
            try:
                do(*args)
            except Refusal as refusal:
                self.refuse(refusal.status, refusal.text)
            except JournalError:
                raise
            except CairnError as error:
                self.failed(error)

        return later

    def then_answer(self, answer: Callable[[], Any], status: int = 0) -> Callable[[Exception | None], None]:
        """What is called when it is done, with the error if it could not be: then *answer* tells the body."""

        def done(error: Exception | None) -> None:
            if error is None:
                self.answer(answer(), status)
            else:
                self.failed(error)

        return self.then(done)

    # ---- what it asks for -----------------------------------------------------------------------------------------

    def name(self) -> str:
        if not self.request.name:
            raise Refusal(BAD_REQUEST, "the request has no name, nor an identity")
        return self.request.name

    def check(self, operation: str, *names: str) -> None:
        """Raises `Refusal` if the caller may not do that with all of these names."""
        for name in names:
            if why := self.why_not(operation, name):
                raise Refusal(FORBIDDEN, why)

    def check_address(self, operation: str, address: str) -> None:
        """The same for what *address* leads to, or would lead to (A13, A14)."""
        place = self.node.broker.place_of(address)
        self.check(operation, parse_address(address).name if place is None else place.name)

    def why_not(self, operation: str, name: str) -> str:
        return self.node.why_not(self.link.wish.user, operation, name)

    # ---- the answer -----------------------------------------------------------------------------------------------

    def answer(self, body: Any = None, status: int = 0, description: str = "") -> None:
        """With a value; with none there is no content."""
        self.answer_encoded(encode.value({} if body is None else body), status or (NO_CONTENT if body is None else OK))

    def answer_encoded(self, body: bytes, status: int = OK) -> None:
        self._send(status, "OK", body)

    def refuse(self, status: int, text: str) -> None:
        self._send(status, text, encode.NULL)

    def failed(self, error: Exception, also: Mapping[str, Any] | None = None) -> None:
        """It was tried, and *error* came of it; *also* tells how far it came."""
        status, text = _explained(error)
        self._send(status, text, encode.NULL if also is None else encode.value(also))

    def _send(self, status: int, text: str, body: bytes) -> None:
        done, self._done = self._done, _answered_before
        done()
        self._reply(response(status, text, body, self._asked.reply_to, self._asked))


def _answered_before() -> None:
    raise AssertionError("a call is answered twice")


def _explained(error: Exception) -> tuple[int, str]:
    if isinstance(error, SqlUnreachable | SqlDenied | SqlReadOnly):  # where the server is, is nobody's business
        return UNAVAILABLE, "the wiring can't be changed just now; the broker's log says why"
    if isinstance(error, DiskFull):
        return FULL, str(error)
    if isinstance(error, UnknownTransaction):
        return NOT_FOUND, str(error)
    if isinstance(error, BadXid):
        return BAD_REQUEST, str(error)
    if isinstance(error, CairnError):
        return CONFLICT, str(error)
    log.error("management: internal error: %s", error)
    return INTERNAL, "internal error; the broker's log says more"
