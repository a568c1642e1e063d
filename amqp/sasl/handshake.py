"""The handshake of either side before AMQP proper: headers and SASL frames, until it is open or refused."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import Any

from ..codec.primitives import Malformed
from ..frames.frame_fields import Invalid
from .frames import first_frame
from .server import Check, Denied

MAX_AHEAD_BYTES = 8 << 10
"""Most bytes that the peer may send after its part of a login, before it receives the outcome.

It is also the most that is read at a time before the connection is open.
"""
MAX_SASL_FRAMES = 8
"""The limit of frames in one login: the longest exchange here has four frames of the peer."""


class Stage(Enum):
    """The progress of a connection's handshake."""

    HEADER = auto()
    SASL = auto()
    CHECKING = auto()
    AMQP_HEADER = auto()
    OPEN = auto()
    REFUSED = auto()


class Handshake(ABC):
    """The beginning of one connection: feed it what arrives until `stage` is OPEN or REFUSED.

    While it is CHECKING, `check` must be called by a thread that may block, and its result passed to `checked`.
    """

    def __init__(self) -> None:
        self.stage = Stage.HEADER
        self.reason = ""
        """The reason why the connection was refused."""
        self.user = ""
        """The authenticated user of the peer; empty for an anonymous one."""
        self.check: Check | None = None
        self._held = b""
        self._at = 0
        """The position in `_held` of the part that is not processed yet; `_go_on` cuts once."""
        self._frames = 0

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Process received bytes; return the answer to send, and the bytes for the engine."""
        if self.stage is Stage.REFUSED:
            return b"", b""
        self._held += data
        return self._go_on(b"")

    def checked(self, found: Any) -> tuple[bytes, bytes]:
        """The `check` returned *found*: continue as `feed` does."""
        if self.stage is not Stage.CHECKING:
            return b"", b""
        self.stage, self.check = Stage.SASL, None
        try:
            answer = self._proved(found)
        except Denied as denied:
            answer = self._denied(denied)
        return self._go_on(answer)

    @abstractmethod
    def busy(self) -> bytes:
        """Return the answer if no thread is available to call `check`."""

    @abstractmethod
    def _header(self) -> bytes | None:
        """Process a protocol header; return the answer, None until the header is complete."""

    @abstractmethod
    def _received(self, frame: bytes, code: int, at: int) -> bytes:
        """Process a complete SASL frame, whose fields are at *at*; return the answer. Raises `Malformed`, `Denied`."""

    @abstractmethod
    def _proved(self, found: Any) -> bytes:
        """Process the result *found* of the check; return the answer. Raises `Denied`."""

    def _go_on(self, answer: bytes) -> tuple[bytes, bytes]:
        answer = self._advance(answer)
        self._held, self._at = self._held[self._at :], 0
        if self.stage is Stage.OPEN:
            rest, self._held = self._held, b""
            return answer, rest
        if self.stage is Stage.CHECKING and len(self._held) > MAX_AHEAD_BYTES:
            self._refuse(f"more than {MAX_AHEAD_BYTES} bytes came before the login was answered")
        return answer, b""

    def _advance(self, answer: bytes) -> bytes:
        """Process the complete part of `_held`; return the answer."""
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
        return answer

    def _frame(self) -> bytes | None:
        try:
            found = first_frame(self._held, self._at)
            if found is None:
                return None
            frame, code, at = found
            self._at += len(frame)
            self._frames += 1
            if self._frames > MAX_SASL_FRAMES:
                return self._refuse(f"a login of more than {MAX_SASL_FRAMES} SASL frames")
            return self._received(frame, code, at)
        except Denied as denied:
            return self._denied(denied)
        except (Invalid, IndexError, Malformed) as error:
            return self._refuse(f"malformed SASL frame: {error}")

    def _denied(self, denied: Denied) -> bytes:
        """Refuse the connection; return the answer."""
        return self._refuse(str(denied))

    def _refuse(self, reason: str, answer: bytes = b"") -> bytes:
        """Refuse the connection; return *answer*."""
        self.stage, self.reason, self.check = Stage.REFUSED, reason, None
        self._held, self._at = b"", 0
        return answer
