"""A call: one request on its way through management, until it is answered. Core only."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...amqp.codec import encode
from ...base.accounts.audit import DENIED, DONE, FAILED, REFUSED, Audit, Change
from ...base.callbacks import ignore
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
from ...broker.kernel.connections import ClientLink, Connections
from ...broker.nodes.access_control import BROWSE
from ...broker.nodes.addresses import parse as parse_address
from ...broker.nodes.resolver import Resolver
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
    encoded_map,
    only,
    parse,
    response,
)

log = logging.getLogger(__name__)


class DenialReason(Protocol):
    """A function that returns why a user may not do an operation on a name or name pattern; empty if allowed."""

    def __call__(self, user: str, operation: str, name: str, *, pattern: bool = False) -> str: ...


@dataclass(frozen=True, slots=True)
class CallServices:
    """The services that calls use."""

    connections: Connections
    resolver: Resolver
    denial_reason: DenialReason
    audit: Audit
    """The audit trail, which records changes."""


@dataclass(eq=False, repr=False)
class Call:
    """A request that is answered once, immediately or later, by `answer` or `failed`."""

    _services: CallServices
    link: ClientLink
    _asked: Envelope
    _reply: Callable[[bytes], None]
    """Sends the response."""
    _done: Callable[[], None]
    """Called after the response: the next request may begin."""

    def __post_init__(self) -> None:
        self.request = Request("", "", "", {}, None)
        self.arguments: tuple[str, ...] = ()
        """The arguments of the operation."""
        self.is_change = False
        """The audit trail records it as a change when it is answered."""
        self.reads_messages = False
        """The audit trail records it as a read of messages."""
        self.recorded_as = ""
        """The operation in the audit trail, if it is not that of the request."""
        self.subject = ""
        """The subject of the call, if the name in the request does not state it."""
        self.messages: int | None = None
        """The number of messages that the call removed or moved, for the audit trail."""
        self.closed: int | None = None
        """The number of connections and links that the call closed."""

    def run(self, content: bytes, do: Callable[[Call], None]) -> None:
        """Read the request and have it done."""

        def begin() -> None:
            self.request = parse(content, self._asked.found)
            do(self)

        self.then(begin)()

    @property
    def is_abandoned(self) -> bool:
        """Return whether the connection of the requester is closed."""
        connection = self.link.connection
        return self._services.connections.by_end.get(connection.end) is not connection

    def then(self, do: Callable[..., None]) -> Callable[..., None]:
        """Return *do* as a callback whose errors are answers."""

        def later(*args: Any) -> None:
            try:
                do(*args)
            except JournalError:
                raise
            except (Refusal, CairnError) as error:
                self.failed(error)

        return later

    def then_answer(self, answer: Callable[[Any], Any] = ignore, status: int = 0) -> Callable[[Any], None]:
        """Return a callback that answers with the body that *answer* makes of its result, or with the error it gets."""

        def done(found: Any) -> None:
            if isinstance(found, Exception):
                self.failed(found)
            else:
                self.answer(answer(found), status)

        return self.then(done)

    def asked(self) -> Mapping[str, Any]:
        """Return the body of the request. Raise `Refusal` for a key that is no argument of the operation."""
        asked = self.request.map()
        only(asked, *self.arguments)
        return asked

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
        place = self._services.resolver.place_of(address)
        self.check(operation, parse_address(address).name if place is None else place.name)

    def denial_reason(self, operation: str, name: str, *, pattern: bool = False, user: str | None = None) -> str:
        """Return why the caller, or another *user*, may not do that; empty if they may."""
        user = self.link.attach.user if user is None else user
        return self._services.denial_reason(user, operation, name, pattern=pattern)

    def rights_of(self, user: str) -> dict[str, Any]:
        """Return the rights of *user* besides single operations, and the number of reloads of the rules."""
        resolver = self._services.resolver
        browses = resolver.access is None or resolver.access.allows_somewhere(user, BROWSE)
        return {"manager": resolver.is_manager(user), "browses": browses, "reloads": resolver.reloads}

    def answer(self, body: Any = None, status: int = 0) -> None:
        """Answer with a value; without one the response has no content."""
        self.answer_encoded(encode.value({} if body is None else body), status or (NO_CONTENT if body is None else OK))

    def answer_encoded(self, body: bytes, status: int = OK) -> None:
        self._send(status, "OK", body)

    def answer_rows(self, names: Sequence[str], rows: list[bytes], following: int | None, **more: Any) -> None:
        """Answer a QUERY with encoded *rows*, and the offset of the *following* ones, if there are any."""
        counted = {"count": len(rows), "next": following, **more}
        parts = {"attributeNames": encode.value(names), "results": encode.listed(rows)}
        self.answer_encoded(encoded_map(parts | {name: encode.value(value) for name, value in counted.items()}))

    def failed(self, error: Exception, also: Mapping[str, Any] | None = None) -> None:
        """Answer that the operation failed with *error*; *also* contains the partial result."""
        status, text = _explained(error)
        self._send(status, text, encode.NULL if also is None else encode.value(also))

    def _send(self, status: int, text: str, body: bytes) -> None:
        done, self._done = self._done, _answered_before
        done()
        if self.is_change:
            self._services.audit.changed(self._change(status, text))
        elif self.reads_messages:
            self._services.audit.messages_read(self._change(status, text))
        self._reply(response(status, text, body, self._asked.reply_to, self._asked))

    def _change(self, status: int, text: str) -> Change:
        request, end = self.request, self.link.connection.end
        outcome, reason = DONE, ""
        if status >= BAD_REQUEST:
            outcome, reason = DENIED if status == FORBIDDEN else REFUSED if status < INTERNAL else FAILED, text
        name = self.subject or request.name
        counts = (self.messages, self.closed) if outcome in (DONE, FAILED) else (None, None)
        attach = self.link.attach
        operation = self.recorded_as or request.operation
        fields = (attach.user, end.name, operation, request.type, name, outcome, status, reason, *counts)
        return Change(*fields, container=attach.container)


_STATUSES = {DiskFull: FULL, UnknownTransaction: NOT_FOUND, BadXid: BAD_REQUEST, CairnError: CONFLICT}


def _answered_before() -> None:
    raise AssertionError("a call is answered twice")


def _explained(error: Exception) -> tuple[int, str]:
    if isinstance(error, Refusal):
        return error.status, error.text
    if isinstance(error, SqlUnreachable | SqlDenied | SqlReadOnly):  # clients must not learn the location of the server
        return UNAVAILABLE, "the wiring can't be changed now; see the broker's log"
    for kind, status in _STATUSES.items():
        if isinstance(error, kind):
            return status, str(error)
    log.error("management: internal error: %s", error, extra={"event": "management.failed"})
    return INTERNAL, "internal error; see the broker's log"
