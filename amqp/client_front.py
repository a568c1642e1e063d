"""What comes before AMQP proper on a connection that the broker opens: SASL, as the client.

Made like `front`, and used in its place: fed with what arrives until its `stage` is OPEN or REFUSED.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import encode
from .client_sasl import Attempt, Identity
from .codec import Malformed, Value
from .decode import read_items
from .front import MAX_AHEAD_BYTES, Stage
from .sasl import Challenge, Check, Denied
from .sasl_frame import CHALLENGE, INIT, MECHANISMS, OUTCOME, RESPONSE, SASL_HEADER, first_frame

_OUTCOMES = {
    1: "the name or the password is wrong",
    2: "it has an error of its own",
    3: "it has an error that stays",
    4: "it has no time now",
}


class ClientFront:
    """The beginning of one connection to another container."""

    greeting = SASL_HEADER
    """What to send at once."""

    def __init__(self, identity: Identity, hostname: str, *, secure: bool) -> None:
        self.stage = Stage.HEADER
        self.why = ""
        """Why nothing comes of it."""
        self.user = ""
        """Nobody proved anything to this side."""
        self.check: Callable[[], Any] | None = None
        self._identity = identity
        self._hostname = hostname
        self._secure = secure
        self._attempt: Attempt | None = None
        self._held = b""

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """What to answer, and what to hand to the engine."""
        self._held += data
        return self._go_on(b"")

    def checked(self, found: Any) -> tuple[bytes, bytes]:
        """The `check` returned *found*: go on as `feed` does."""
        if self.stage is not Stage.CHECKING or self._attempt is None:
            return b"", b""
        self.stage, self.check = Stage.SASL, None
        attempt = self._attempt
        return self._go_on(self._respond(lambda: attempt.checked(found)))

    def busy(self) -> bytes:
        """There is nobody to call `check` now."""
        self._refuse("too many others are logging in")
        return b""

    def _go_on(self, answer: bytes) -> tuple[bytes, bytes]:
        if self.stage is Stage.HEADER and len(self._held) >= 8:
            header, self._held = self._held[:8], self._held[8:]
            self.stage = Stage.SASL
            if header != SASL_HEADER:
                self._refuse(f"it does not speak SASL, it begins with {header!r}: see sasl=no")
        while self.stage is Stage.SASL:
            step = self._frame()
            if step is None:
                break
            answer += step
        if self.stage is Stage.OPEN:
            rest, self._held = self._held, b""
            return answer, rest
        if self.stage is Stage.CHECKING and len(self._held) > MAX_AHEAD_BYTES:
            self._refuse(f"more than {MAX_AHEAD_BYTES} bytes came before it was answered")
        return answer, b""

    def _refuse(self, why: str) -> None:
        self.stage, self.why, self.check, self._held = Stage.REFUSED, why, None, b""

    def _frame(self) -> bytes | None:
        try:
            found = first_frame(self._held)
            if found is None:
                return None
            frame, code, at = found
            self._held = self._held[len(frame) :]
            return self._heard(code, read_items(frame, at))
        except (Malformed, IndexError) as error:
            self._refuse(f"malformed SASL frame: {error}")
            return b""

    def _heard(self, code: int, fields: list[Value]) -> bytes:
        first = fields[0] if fields else None
        if code == MECHANISMS and self._attempt is None:
            return self._begin(first)
        attempt = self._attempt
        if attempt is not None and code == CHALLENGE and isinstance(first, bytes):
            data = first
            return self._respond(lambda: attempt.challenged(data))
        if attempt is not None and code == OUTCOME and isinstance(first, int):
            self._ended(attempt, first, fields[1] if len(fields) > 1 else None)
            return b""
        self._refuse(f"a SASL frame that is not expected: 0x{code:02x}")
        return b""

    def _begin(self, offered: Any) -> bytes:
        items = getattr(offered, "items", [offered])  # one symbol, or an array of them
        try:
            mechanism, self._attempt = self._identity.begin([str(one) for one in items if one], secure=self._secure)
        except Denied as denied:
            self._refuse(str(denied))
            return b""
        fields = encode.symbol(mechanism), encode.binary(self._attempt.first), encode.string(self._hostname)
        return _framed(INIT, *fields)

    def _respond(self, step: Callable[[], Challenge | Check]) -> bytes:
        try:
            reply = step()
        except Denied as denied:
            self._refuse(str(denied))
            return b""
        if isinstance(reply, Check):
            self.stage, self.check = Stage.CHECKING, reply.job
            return b""
        return _framed(RESPONSE, encode.binary(reply.data))

    def _ended(self, attempt: Attempt, code: int, data: Value) -> None:
        if code:
            self._refuse(f"it does not let us in: {_OUTCOMES.get(code, f'code {code}')}")
            return
        try:
            attempt.succeeded(data if isinstance(data, bytes) else b"")
        except Denied as denied:
            self._refuse(str(denied))
        else:
            self.stage = Stage.OPEN


def _framed(code: int, *fields: bytes) -> bytes:
    body = encode.described(code, encode.listed(fields))
    return (len(body) + 8).to_bytes(4) + b"\x02\x01\x00\x00" + body
