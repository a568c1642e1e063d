"""What comes before AMQP proper on a connection: the protocol header, and the SASL layer.

Proton's built-in SASL server knows only ANONYMOUS and EXTERNAL, so the layer is answered here, and proton's engine sees
nothing but AMQP. Before authentication nothing but SASL is reachable (A11), and a SASL frame has at most 512 bytes, as
the specification says and every mechanism here can do with, so little memory is ever held for a stranger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import encode
from .beginning import Beginning, Stage
from .codec import Value, read_list
from .sasl import Challenge, Check, Denied, Exchange, Login, Reply
from .sasl_frame import CHALLENGE, INIT, MAX_SASL_FRAME_BYTES, MECHANISMS, OUTCOME, RESPONSE, SASL_HEADER, sasl_frame

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
TLS_HEADER = b"AMQP\x02\x01\x00\x00"

_OK, _AUTH, _SYS_TEMP = (b"\x50" + bytes((code,)) for code in (0, 1, 4))
"""Outcomes, as they stand in a frame."""


class Front(Beginning):
    """The beginning of one connection that somebody opened to the broker."""

    def __init__(self, login: Login, *, secure: bool = False, certified: str = "") -> None:
        """*secure*: the bytes come through TLS; *certified*: whom the client's certificate names, empty for nobody."""
        super().__init__()
        self._login = login
        self._offered = login.mechanisms(secure, certified)
        self._certified = certified
        self._exchange: Exchange | None = None

    def busy(self) -> bytes:
        """As in `Beginning`. The client may try again later."""
        self._refuse("too many others are logging in")
        return sasl_frame(OUTCOME, _SYS_TEMP)

    def _header(self) -> bytes | None:
        held = self._held[:8]
        wanted = (AMQP_HEADER, SASL_HEADER) if self.stage is Stage.HEADER else (AMQP_HEADER,)
        if not any(header.startswith(held) for header in wanted):
            self._refuse(_what_came(held))
            return AMQP_HEADER if self._login.anonymous else SASL_HEADER
        if len(held) < 8:
            return None
        if held == AMQP_HEADER:
            if self.stage is Stage.HEADER and not self._login.anonymous:
                self._refuse("SASL is required here")
                return SASL_HEADER
            self.stage = Stage.OPEN  # the engine reads and answers this header itself
            return b""
        self._held = self._held[8:]
        self.stage = Stage.SASL
        return SASL_HEADER + sasl_frame(MECHANISMS, _symbols(self._offered))

    def _proved(self, found: Any) -> bytes:
        exchange = self._exchange
        assert exchange is not None
        return self._reply(lambda: exchange.checked(found))

    def _heard(self, frame: bytes, code: int, at: int) -> bytes:
        fields, _ = read_list(frame, at)
        wanted = INIT if self._exchange is None else RESPONSE
        if code != wanted or not fields:
            self._refuse(f"a SASL {'init' if wanted == INIT else 'response'} is expected")
            return b""
        return self._begin(fields) if self._exchange is None else self._respond(self._exchange, fields[0])

    def _begin(self, fields: list[Value]) -> bytes:
        mechanism, initial = fields[0], fields[1] if len(fields) > 1 else None
        if mechanism not in self._offered:
            self._refuse(f"SASL mechanism {mechanism!r} is not offered")
            return sasl_frame(OUTCOME, _AUTH)
        self._exchange = self._login.begin(str(mechanism), self._certified)
        return self._respond(self._exchange, initial)

    def _respond(self, exchange: Exchange, data: Value) -> bytes:
        if data is not None and not isinstance(data, bytes):
            self._refuse("a SASL response that is no binary")
            return b""
        return self._reply(lambda: exchange.respond(data))

    def _reply(self, step: Callable[[], Reply]) -> bytes:
        try:
            reply = step()
        except Denied as denied:
            self._refuse(str(denied))
            return sasl_frame(OUTCOME, _AUTH)
        if isinstance(reply, Check):
            self.stage, self.check = Stage.CHECKING, reply.job
            return b""
        if isinstance(reply, Challenge):
            answer = sasl_frame(CHALLENGE, encode.binary(reply.data))
            if len(answer) > MAX_SASL_FRAME_BYTES:
                self._refuse("its nonce is too long")
                return sasl_frame(OUTCOME, _AUTH)
            return answer
        self.user = reply.user
        self.stage = Stage.AMQP_HEADER
        return sasl_frame(OUTCOME, _OK, *([encode.binary(reply.data)] if reply.data else []))


def _what_came(held: bytes) -> str:
    if TLS_HEADER.startswith(held) or held[:2] == b"\x16\x03":
        return "TLS is not spoken at this port; see --tls-port"
    return f"not an AMQP 1.0 protocol header: {held!r}"


def _symbols(names: tuple[str, ...]) -> bytes:
    items = b"".join(bytes((len(name),)) + name.encode("ascii") for name in names)
    return bytes((0xE0, len(items) + 2, len(names), 0xA3)) + items
