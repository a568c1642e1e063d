"""The handshake before AMQP proper on a connection: the protocol header, and the SASL layer.

Proton's built-in SASL server supports only ANONYMOUS and EXTERNAL, so the layer is answered here, and proton's engine
receives nothing but AMQP. Before authentication nothing but SASL is reachable (A11). A SASL frame has at most
512 bytes, as the specification requires and every mechanism here allows, so unauthenticated clients occupy little
memory.
"""

from __future__ import annotations

from typing import Any

from ...base.accounts.audit import LIMIT, MECHANISM, PROTOCOL, LoginFailure
from ..codec import encode
from ..codec.primitives import read_list
from ..frames.frame_fields import CHALLENGE, INIT, MECHANISMS, OUTCOME, RESPONSE
from .frames import MAX_SASL_FRAME_BYTES, SASL_HEADER, sasl_frame
from .handshake import Handshake, Stage
from .server import Challenge, Check, Denied, Exchange, Login

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
TLS_HEADER = b"AMQP\x02\x01\x00\x00"
_OTHER_AMQP = b"AMQP\x00\x00", b"AMQP\x01"
"""The first bytes of the headers of AMQP 0-9-1, and of AMQP 0-8 to 0-10."""
_HTTP = b"GET /", b"POST /", b"HEAD /", b"PUT /", b"OPTIONS"
"""The first bytes of HTTP requests."""

_OK, _AUTH, _SYS_TEMP = (b"\x50" + bytes((code,)) for code in (0, 1, 4))
"""Encoded outcomes."""


class ServerHandshake(Handshake):
    """The handshake of one connection that a client opened to the broker."""

    def __init__(self, login: Login, *, secure: bool = False, certified: str = "") -> None:
        """*secure*: the bytes come through TLS; *certified*: whom the client's certificate names, empty without one."""
        super().__init__()
        self._login = login
        self._offered = login.mechanisms(secure, certified)
        self._certified = certified
        self._exchange: Exchange | None = None
        self.mechanism = ""
        """The SASL mechanism that the client chose; empty before the choice."""
        self._claimed = ""
        """The user name that the client gave."""
        self._reason = PROTOCOL
        self.origin = ""
        """The host and port of the browser behind the broker's own web console; empty for other clients."""
        self.stored_key = b""
        """The key of the password that the client proved."""

    def failure(self, address: str) -> LoginFailure:
        """Return the login failure of the client at *address*, once `stage` is REFUSED."""
        return LoginFailure(self.origin or address, self._claimed, self.mechanism, self._reason, self.reason)

    def left(self) -> bool:
        """Note that the client closed the connection; true if that is a failed login, and `failure` has it."""
        if self.stage is Stage.SASL and self._exchange is None:
            self._refuse_without_mechanism("the client closed the connection without choosing a SASL mechanism")
        elif self.stage in (Stage.SASL, Stage.CHECKING):
            self._refuse("the client closed the connection during the login")
        return self.stage is Stage.REFUSED

    def busy(self) -> bytes:
        """Refuse the login because too many are in progress. The client may try again later."""
        self._reason = LIMIT
        return self._refuse("too many others are logging in", sasl_frame(OUTCOME, _SYS_TEMP))

    def _header(self) -> bytes | None:
        held = self._held[self._at : self._at + 8]
        wanted = (AMQP_HEADER, SASL_HEADER) if self.stage is Stage.HEADER else (AMQP_HEADER,)
        if not any(header.startswith(held) for header in wanted):
            return self._refuse(_what_came(held), AMQP_HEADER if self._login.anonymous else SASL_HEADER)
        if len(held) < 8:
            return None
        if held == AMQP_HEADER:
            if self.stage is Stage.HEADER and not self._login.anonymous:
                self._refuse_without_mechanism("the client did not log in")
                return SASL_HEADER
            self.stage = Stage.OPEN  # the engine reads and answers this header itself
            return b""
        self._at += 8
        self.stage = Stage.SASL
        return SASL_HEADER + sasl_frame(MECHANISMS, _symbols(self._offered))

    def _proved(self, found: Any) -> bytes:
        return self._reply(found)

    def _received(self, frame: bytes, code: int, at: int) -> bytes:
        fields, _ = read_list(frame, at)
        wanted = INIT if self._exchange is None else RESPONSE
        if code != wanted:
            return self._refuse(f"a SASL {'init' if wanted == INIT else 'response'} is expected")
        return self._begin(fields) if self._exchange is None else self._reply(fields[0])

    def _begin(self, fields: list[Any]) -> bytes:
        mechanism, initial = fields[0], fields[1] if len(fields) > 1 else None
        self.mechanism = str(mechanism)
        self.origin = self._login.origin_in(fields[2] if len(fields) > 2 else None)
        if mechanism not in self._offered:
            self._refuse_without_mechanism(f"SASL mechanism {mechanism!r} is not offered")
            return sasl_frame(OUTCOME, _AUTH)
        self._exchange = self._login.begin(str(mechanism), self._certified, initial)
        return self._reply(None)

    def _refuse_without_mechanism(self, reason: str) -> None:
        """The two sides have no SASL mechanism in common."""
        self._reason = MECHANISM
        self._refuse(f"{reason} (offered: {', '.join(self._offered)}); see 'Clients' in the documentation")

    def _denied(self, denied: Denied) -> bytes:
        self._reason, self._claimed = denied.reason, denied.user
        return self._refuse(str(denied), sasl_frame(OUTCOME, _AUTH))

    def _reply(self, said: Any) -> bytes:
        """Continue the exchange with a response of the client or the result of a check; None to begin it."""
        assert self._exchange is not None
        reply = self._exchange.send(said)
        if isinstance(reply, Check):
            self.stage, self.check = Stage.CHECKING, reply
            return b""
        if isinstance(reply, Challenge):
            answer = sasl_frame(CHALLENGE, encode.binary(reply.data))
            if len(answer) > MAX_SASL_FRAME_BYTES:
                raise Denied("its nonce is too long")
            return answer
        self.user, self.stored_key = reply.user, reply.stored_key
        self.stage = Stage.AMQP_HEADER
        return sasl_frame(OUTCOME, _OK, *([encode.binary(reply.data)] if reply.data else []))


def _what_came(held: bytes) -> str:
    if TLS_HEADER.startswith(held) or held[:2] == b"\x16\x03":
        return "TLS is not spoken at this port; see --tls-port"
    if held.startswith(_OTHER_AMQP):
        return (
            "this client speaks AMQP 0-9-1 (as pika, Celery and aio-pika do); CairnMQ speaks AMQP 1.0 only, "
            "unless it is started with --amqp091; see 'Clients' in the documentation"
        )
    if held.startswith(_HTTP):
        return "an HTTP request came to the AMQP port; metrics and health checks are at --metrics-port"
    return f"not an AMQP 1.0 protocol header: {held!r}"


def _symbols(names: tuple[str, ...]) -> bytes:
    items = b"".join(bytes((len(name),)) + name.encode("ascii") for name in names)
    return bytes((0xE0, len(items) + 2, len(names), 0xA3)) + items
