"""The handshake before AMQP proper on a connection that the broker opens: SASL, as the client.

Used in the place of `front`.
"""

from __future__ import annotations

from typing import Any

from ..codec import encode
from ..codec.decode import read_items
from ..frames.frame_fields import CHALLENGE, INIT, MECHANISMS, OUTCOME, RESPONSE
from .client import Attempt, Identity
from .frames import SASL_HEADER, sasl_frame
from .handshake import Handshake, Stage
from .server import WRONG, Challenge, Check

_OUTCOMES = {1: WRONG, 2: "it has an error of its own", 3: "it has an error that stays", 4: "it has no time now"}


class ClientHandshake(Handshake):
    """The beginning of one connection to another container. Its `user` stays empty."""

    greeting = SASL_HEADER
    """The bytes to send at once."""

    def __init__(self, identity: Identity, hostname: str, *, secure: bool) -> None:
        super().__init__()
        self._identity = identity
        self._hostname = hostname
        self._secure = secure
        self._attempt: Attempt | None = None

    def busy(self) -> bytes:
        return self._refuse("too many others are logging in")

    def _header(self) -> bytes | None:
        header = self._held[self._at : self._at + 8]
        if len(header) < 8:
            return None
        self._at += 8
        self.stage = Stage.SASL
        if header != SASL_HEADER:
            return self._refuse(f"it does not speak SASL, it begins with {header!r}: see sasl=no")
        return b""

    def _proved(self, found: Any) -> bytes:
        assert self._attempt is not None
        return self._respond(self._attempt.checked(found))

    def _received(self, frame: bytes, code: int, at: int) -> bytes:
        fields = read_items(frame, at)
        if code == MECHANISMS and self._attempt is None:
            return self._begin(fields[0])
        attempt = self._attempt
        if attempt is not None and code == CHALLENGE:
            return self._respond(attempt.challenged(fields[0]))
        if attempt is not None and code == OUTCOME:
            return self._ended(attempt, *fields)
        return self._refuse(f"a SASL frame that is not expected: 0x{code:02x}")

    def _begin(self, offered: Any) -> bytes:
        items = getattr(offered, "items", [offered])  # one symbol, or an array of them
        mechanism, self._attempt = self._identity.begin([str(one) for one in items if one], secure=self._secure)
        fields = encode.symbol(mechanism), encode.binary(self._attempt.first), encode.string(self._hostname)
        return sasl_frame(INIT, *fields)

    def _respond(self, reply: Challenge | Check) -> bytes:
        if isinstance(reply, Check):
            self.stage, self.check = Stage.CHECKING, reply
            return b""
        return sasl_frame(RESPONSE, encode.binary(reply.data))

    def _ended(self, attempt: Attempt, code: int, data: bytes | None = None) -> bytes:
        if code:
            return self._refuse(f"it does not let us in: {_OUTCOMES[code]}")
        attempt.succeeded(data or b"")
        self.stage = Stage.OPEN
        return b""
