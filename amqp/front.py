"""What comes before AMQP proper on a connection: the protocol header, and the SASL layer.

Proton's built-in SASL server knows only ANONYMOUS and EXTERNAL, so the layer is answered here, and proton's engine sees
nothing but AMQP. Before authentication nothing but SASL is reachable (A11), and a SASL frame has at most 512 bytes, as
the specification says and every mechanism here can do with, so little memory is ever held for a stranger.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from .codec import Malformed, Value, read_list
from .sasl import Challenge, Check, Denied, Exchange, Login, Reply
from .sasl_frame import CHALLENGE, INIT, MAX_SASL_FRAME_BYTES, MECHANISMS, OUTCOME, RESPONSE, SASL_HEADER, first_frame

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
TLS_HEADER = b"AMQP\x02\x01\x00\x00"
MAX_AHEAD_BYTES = 8 << 10
"""What a client may send behind its password before it knows whether that was right."""

_OK, _AUTH, _SYS_TEMP = 0, 1, 4


class Stage(Enum):
    """How far a connection has come."""

    HEADER = auto()
    SASL = auto()
    CHECKING = auto()
    AMQP_HEADER = auto()
    OPEN = auto()
    REFUSED = auto()


class Front:
    """The beginning of one connection: feed it what arrives until `stage` is OPEN or REFUSED.

    While it is CHECKING, `check` is to be called by somebody who has the time, and what it returns goes to `checked`.
    """

    def __init__(self, login: Login, *, secure: bool = False, certified: str = "") -> None:
        """*secure*: the bytes come through TLS; *certified*: whom the client's certificate names, empty for nobody."""
        self.stage = Stage.HEADER
        self.why = ""
        """Why the connection was refused."""
        self.user = ""
        """Who the client is; empty for nobody in particular."""
        self.check: Callable[[], Any] | None = None
        self._login = login
        self._offered = login.mechanisms(secure, certified)
        self._certified = certified
        self._exchange: Exchange | None = None
        self._held = b""

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """What to answer, and what to hand to the engine."""
        self._held += data
        return self._go_on(b"")

    def checked(self, found: Any) -> tuple[bytes, bytes]:
        """The `check` returned *found*: go on as `feed` does."""
        if self.stage is not Stage.CHECKING:
            return b"", b""
        self.stage, self.check = Stage.SASL, None
        assert self._exchange is not None
        exchange = self._exchange
        return self._go_on(self._reply(lambda: exchange.checked(found)))

    def busy(self) -> bytes:
        """There is nobody to call `check` now: what to answer. The client may try again later."""
        self._refuse("too many others are logging in")
        return _frame(OUTCOME, b"\x50" + bytes((_SYS_TEMP,)))

    def _go_on(self, answer: bytes) -> tuple[bytes, bytes]:
        while True:
            stage = self.stage
            if stage is Stage.SASL:
                step = self._frame()
            elif stage in (Stage.HEADER, Stage.AMQP_HEADER):
                step = self._header()
            else:
                break
            if step is None:
                break
            answer += step
        if self.stage is Stage.OPEN:
            rest, self._held = self._held, b""
            return answer, rest
        if self.stage is Stage.CHECKING and len(self._held) > MAX_AHEAD_BYTES:
            self._refuse(f"more than {MAX_AHEAD_BYTES} bytes came before the login was answered")
        return answer, b""

    def _refuse(self, why: str) -> None:
        self.stage = Stage.REFUSED
        self.why = why
        self.check = None
        self._held = b""

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
        return SASL_HEADER + _frame(MECHANISMS, _symbols(self._offered))

    def _frame(self) -> bytes | None:
        try:
            found = first_frame(self._held)
            if found is None:
                return None
            frame, code, at = found
            self._held = self._held[len(frame) :]
            fields, _ = read_list(frame, at)
        except Malformed as error:
            self._refuse(f"malformed SASL frame: {error}")
            return b""
        wanted = INIT if self._exchange is None else RESPONSE
        if code != wanted or not fields:
            self._refuse(f"a SASL {'init' if wanted == INIT else 'response'} is expected")
            return b""
        return self._begin(fields) if self._exchange is None else self._respond(self._exchange, fields[0])

    def _begin(self, fields: list[Value]) -> bytes:
        mechanism, initial = fields[0], fields[1] if len(fields) > 1 else None
        if mechanism not in self._offered:
            self._refuse(f"SASL mechanism {mechanism!r} is not offered")
            return _frame(OUTCOME, b"\x50" + bytes((_AUTH,)))
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
            return _frame(OUTCOME, b"\x50" + bytes((_AUTH,)))
        if isinstance(reply, Check):
            self.stage, self.check = Stage.CHECKING, reply.job
            return b""
        if isinstance(reply, Challenge):
            answer = _frame(CHALLENGE, _binary(reply.data))
            if len(answer) > MAX_SASL_FRAME_BYTES:
                self._refuse("its nonce is too long")
                return _frame(OUTCOME, b"\x50" + bytes((_AUTH,)))
            return answer
        self.user = reply.user
        self.stage = Stage.AMQP_HEADER
        code = b"\x50" + bytes((_OK,))
        return _frame(OUTCOME, code, _binary(reply.data)) if reply.data else _frame(OUTCOME, code)


def _what_came(held: bytes) -> str:
    if TLS_HEADER.startswith(held) or held[:2] == b"\x16\x03":
        return "TLS is not spoken at this port; see --tls-port"
    return f"not an AMQP 1.0 protocol header: {held!r}"


def _frame(code: int, *fields: bytes) -> bytes:
    content = b"".join(fields)
    body = b"\x00\x53" + bytes((code,))
    if len(content) < 255:
        body += bytes((0xC0, len(content) + 1, len(fields)))
    else:
        body += b"\xd0" + (len(content) + 4).to_bytes(4) + len(fields).to_bytes(4)
    return (len(body) + len(content) + 8).to_bytes(4) + b"\x02\x01\x00\x00" + body + content


def _binary(data: bytes) -> bytes:
    if len(data) < 256:
        return b"\xa0" + bytes((len(data),)) + data
    return b"\xb0" + len(data).to_bytes(4) + data


def _symbols(names: tuple[str, ...]) -> bytes:
    items = b"".join(bytes((len(name),)) + name.encode("ascii") for name in names)
    return bytes((0xE0, len(items) + 2, len(names), 0xA3)) + items
