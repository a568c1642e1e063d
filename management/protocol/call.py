"""A call: one request on its way through management, until it is answered. Core only."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...amqp.codec import encode
from ...base.accounts.audit import DENIED, DONE, FAILED, REFUSED, Audit, Change
from ...base.errors import (
    BadXid,
    CairnError,
    DiskFull,
    JournalError,
    SqlDenied,
    SqlReadOnly,
    SqlUnreachable,
    UnknownTransaction,
)
from ...broker.kernel.connections import ClientLink, Connection
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

log = logging.getLogger(__name__)


class DenialReason(Protocol):
    """A function that returns why a user may not do an operation on a name or name pattern; empty if allowed."""

    def __call__(self, user: str, operation: str, name: str, *, pattern: bool = False) -> str: ...


class NodePort(Protocol):
    """The part of the node that serves calls (`Management`)."""

    audit: Audit
    """The audit trail, which records changes."""
    denial_reason: DenialReason

    def name_at(self, address: str) -> str:
        """Return the name of the node at *address*, existing or not."""

    def is_connected(self, connection: Connection) -> bool:
        """Return whether *connection* is still open."""


class Call:
    """A request that is answered once, immediately or later, by `answer` or `refuse`."""

    def __init__(
        self,
        node: NodePort,
        link: ClientLink,
        asked: Envelope,
        reply: Callable[[bytes], None],
        done: Callable[[], None],
    ) -> None:
        """*reply* sends the response; *done* is called afterwards: the next request may begin."""
        self._node = node
        self.link = link
        self.request = Request("", "", "", {}, None)
        self.is_change = False
        """The audit trail records it when it is answered."""
        self.subject = ""
        """The subject of the call, if the name in the request does not state it."""
        self.messages: int | None = None
        """The number of messages that the call removed or moved, for the audit trail."""
        self.closed: int | None = None
        """The number of connections and links that the call closed."""
        self._asked = asked
        self._reply = reply
        self._done = done

    def run(self, content: bytes, do: Callable[[Call], None]) -> None:
        """Read the request and have it done."""

        def begin() -> None:
            self.request = parse(content, self._asked.found)
            do(self)

        self.then(begin)()

    @property
    def is_abandoned(self) -> bool:
        """Return whether the connection of the requester is closed."""
        return not self._node.is_connected(self.link.connection)

    def then(self, do: Callable[..., None]) -> Callable[..., None]:
        """Return *do* as a callback whose errors are answers."""

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

    def then_answer(self, answer: Callable[[], Any] = lambda: None, status: int = 0) -> Callable[[object], None]:
        """Return a callback that answers with the body that *answer* returns, or with the error that it receives."""

        def done(found: object) -> None:
            if isinstance(found, Exception):
                self.failed(found)
            else:
                self.answer(answer(), status)

        return self.then(done)

    def name(self) -> str:
        if not self.request.name:
            raise Refusal(BAD_REQUEST, "the request has no name, nor an identity; set one of these properties")
        return self.request.name

    def check(self, operation: str, *names: str, pattern: bool = False) -> None:
        """Raises `Refusal` if the caller may not do that with all of these names; see `DenialReason` for *pattern*."""
        for name in names:
            if reason := self.denial_reason(operation, name, pattern=pattern):
                raise Refusal(FORBIDDEN, reason)

    def check_address(self, operation: str, address: str) -> None:
        """Raise `Refusal` if the caller may not do that with the node that *address* leads to (A13, A14)."""
        self.check(operation, self._node.name_at(address))

    def denial_reason(self, operation: str, name: str, *, pattern: bool = False) -> str:
        return self._node.denial_reason(self.link.attach.user, operation, name, pattern=pattern)

    def denial_reason_of(self, user: str, operation: str, name: str, *, pattern: bool = False) -> str:
        """Return why another *user* may not do that."""
        return self._node.denial_reason(user, operation, name, pattern=pattern)

    def answer(self, body: Any = None, status: int = 0, description: str = "") -> None:
        """Answer with a value; without one the response has no content."""
        self.answer_encoded(encode.value({} if body is None else body), status or (NO_CONTENT if body is None else OK))

    def answer_encoded(self, body: bytes, status: int = OK) -> None:
        self._send(status, "OK", body)

    def refuse(self, status: int, text: str) -> None:
        self._send(status, text, encode.NULL)

    def failed(self, error: Exception, also: Mapping[str, Any] | None = None) -> None:
        """Answer that the operation failed with *error*; *also* contains the partial result."""
        status, text = _explained(error)
        self._send(status, text, encode.NULL if also is None else encode.value(also))

    def _send(self, status: int, text: str, body: bytes) -> None:
        done, self._done = self._done, _answered_before
        done()
        if self.is_change:
            self._record(status, text)
        self._reply(response(status, text, body, self._asked.reply_to, self._asked))

    def _record(self, status: int, text: str) -> None:
        request, end = self.request, self.link.connection.end
        outcome, reason = DONE, ""
        if status >= BAD_REQUEST:
            outcome, reason = DENIED if status == FORBIDDEN else REFUSED if status < INTERNAL else FAILED, text
        name = self.subject or request.name
        counts = (self.messages, self.closed) if outcome in (DONE, FAILED) else (None, None)
        attach = self.link.attach
        change = (attach.user, end.name, request.operation, request.type, name, outcome, status, reason, *counts)
        self._node.audit.changed(Change(*change, container=attach.container))


def _answered_before() -> None:
    raise AssertionError("a call is answered twice")


def _explained(error: Exception) -> tuple[int, str]:
    if isinstance(error, SqlUnreachable | SqlDenied | SqlReadOnly):  # clients must not learn the location of the server
        return UNAVAILABLE, "the wiring can't be changed now; see the broker's log"
    if isinstance(error, DiskFull):
        return FULL, str(error)
    if isinstance(error, UnknownTransaction):
        return NOT_FOUND, str(error)
    if isinstance(error, BadXid):
        return BAD_REQUEST, str(error)
    if isinstance(error, CairnError):
        return CONFLICT, str(error)
    log.error("management: internal error: %s", error, extra={"event": "management.failed"})
    return INTERNAL, "internal error; see the broker's log"
