"""What comes before AMQP proper on a connection: the protocol header, and the SASL layer.

Proton's built-in SASL server knows only ANONYMOUS and EXTERNAL, so the layer is answered here, and proton's engine sees
nothing but AMQP. Before authentication nothing but SASL is reachable, and a frame may have 512 bytes (as the
specification says for SASL frames), so little memory is ever held for a stranger.
"""

from __future__ import annotations

from enum import Enum, auto

from .codec import Malformed, descriptor, read_list

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
MAX_SASL_FRAME_BYTES = 512

_MECHANISMS, _INIT, _OUTCOME = 0x40, 0x41, 0x44
_OK, _AUTH = 0, 1


class Stage(Enum):
    """How far a connection has come."""

    HEADER = auto()
    SASL = auto()
    AMQP_HEADER = auto()
    OPEN = auto()
    REFUSED = auto()


class Front:
    """The beginning of one connection: feed it what arrives until `stage` is OPEN or REFUSED."""

    def __init__(self, *, anonymous: bool) -> None:
        """*anonymous*: whether ANONYMOUS, and a connection without SASL, are let in."""
        self.stage = Stage.HEADER
        self.why = ""
        """Why the connection was refused."""
        self._anonymous = anonymous
        self._held = b""

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """What to answer, and what to hand to the engine."""
        self._held += data
        answer = b""
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
        return answer, b""

    def _refuse(self, why: str) -> None:
        self.stage = Stage.REFUSED
        self.why = why
        self._held = b""

    def _header(self) -> bytes | None:
        held = self._held[:8]
        wanted = (AMQP_HEADER, SASL_HEADER) if self.stage is Stage.HEADER else (AMQP_HEADER,)
        if not any(header.startswith(held) for header in wanted):
            self._refuse(f"not an AMQP 1.0 protocol header: {held!r}")
            return SASL_HEADER if not self._anonymous else AMQP_HEADER
        if len(held) < 8:
            return None
        if held == AMQP_HEADER:
            if self.stage is Stage.HEADER and not self._anonymous:
                self._refuse("SASL is required here")
                return SASL_HEADER
            self.stage = Stage.OPEN  # the engine reads and answers this header itself
            return b""
        self._held = self._held[8:]
        self.stage = Stage.SASL
        return SASL_HEADER + _frame(_MECHANISMS, _symbols(("ANONYMOUS",) if self._anonymous else ()))

    def _frame(self) -> bytes | None:
        held = self._held
        if len(held) < 8:
            return None
        size, offset, kind = int.from_bytes(held[:4]), held[4] * 4, held[5]
        if not 8 <= offset <= size <= MAX_SASL_FRAME_BYTES or kind != 1:
            self._refuse(f"not a SASL frame: size {size}, data offset {offset}, type {kind}")
            return b""
        if len(held) < size:
            return None
        self._held = held[size:]
        try:
            code, at = descriptor(held[:size], offset)
            fields, _ = read_list(held[:size], at)
        except Malformed as error:
            self._refuse(f"malformed SASL frame: {error}")
            return b""
        if code != _INIT or not fields:
            self._refuse("a SASL init is expected")
            return b""
        if self._anonymous and fields[0] == "ANONYMOUS":
            self.stage = Stage.AMQP_HEADER
            return _frame(_OUTCOME, b"\x50" + bytes((_OK,)))
        self._refuse(f"SASL mechanism {fields[0]!r} is not offered")
        return _frame(_OUTCOME, b"\x50" + bytes((_AUTH,)))


def _frame(code: int, field: bytes) -> bytes:
    body = bytes((0x00, 0x53, code, 0xC0, len(field) + 1, 1)) + field
    return (len(body) + 8).to_bytes(4) + b"\x02\x01\x00\x00" + body


def _symbols(names: tuple[str, ...]) -> bytes:
    items = b"".join(bytes((len(name),)) + name.encode("ascii") for name in names)
    return bytes((0xE0, len(items) + 2, len(names), 0xA3)) + items
