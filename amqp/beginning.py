"""What either side of a connection does before AMQP proper: headers and SASL frames, until it is open or refused."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from .codec import Malformed
from .sasl_frame import first_frame

MAX_AHEAD_BYTES = 8 << 10
"""What the peer may send behind its part of a login before it knows whether that was right."""


class Stage(Enum):
    """How far a connection has come."""

    HEADER = auto()
    SASL = auto()
    CHECKING = auto()
    AMQP_HEADER = auto()
    OPEN = auto()
    REFUSED = auto()


class Beginning(ABC):
    """The beginning of one connection: feed it what arrives until `stage` is OPEN or REFUSED.

    While it is CHECKING, `check` is to be called by somebody who has the time, and what it returns goes to `checked`.
    """

    def __init__(self) -> None:
        self.stage = Stage.HEADER
        self.why = ""
        """Why the connection was refused."""
        self.user = ""
        """Who the peer has proved to be; empty for nobody in particular."""
        self.check: Callable[[], Any] | None = None
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
        return self._go_on(self._proved(found))

    @abstractmethod
    def busy(self) -> bytes:
        """There is nobody to call `check` now: what to answer."""

    @abstractmethod
    def _header(self) -> bytes | None:
        """A protocol header is next: what to answer, None as long as it is not whole."""

    @abstractmethod
    def _heard(self, frame: bytes, code: int, at: int) -> bytes:
        """A SASL frame is whole, with its fields at *at*: what to answer. Raises `Malformed`."""

    @abstractmethod
    def _proved(self, found: Any) -> bytes:
        """The check returned *found*: what to answer."""

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

    def _frame(self) -> bytes | None:
        try:
            found = first_frame(self._held)
            if found is None:
                return None
            frame, code, at = found
            self._held = self._held[len(frame) :]
            return self._heard(frame, code, at)
        except Malformed as error:
            self._refuse(f"malformed SASL frame: {error}")
            return b""

    def _refuse(self, why: str) -> None:
        self.stage, self.why, self.check, self._held = Stage.REFUSED, why, None, b""
