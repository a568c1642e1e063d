"""Value types of links: fragments, outcomes, answers, errors and termini."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from ..native.proton_ffi import Pointer

DEFAULT_PRIORITY = 4
"""The default of a priority from 0 to 9; outgoing links of a connection are served highest first (router guide C46)."""
MORE = 1
SETTLED = 2
ABORTED = 4
"""Flags of a fragment: the message continues; the sender requests no outcome; it aborts the message."""

Fragment = tuple[Pointer, bytes, int]
"""The content of one transfer: the delivery, bytes of the message, and flags."""


class ContentRemoved(Exception):
    """The message was removed while a copy of it was read: the copy is no longer needed."""


class Content(Protocol):
    """A message too long to be handled as one piece of bytes. Any thread."""

    @property
    def pieces(self) -> int: ...

    def piece(self, number: int) -> bytes:
        """Raises `ContentRemoved`."""


class Error(NamedTuple):
    """An AMQP error as a receiver gave it; *info* is an encoded map."""

    condition: str
    description: str
    info: bytes = b""


class Outcome(NamedTuple):
    """The outcome that a receiver reported for a delivery."""

    delivery: Pointer
    """The delivery if it still waits to be settled by this side, else None."""
    tag: Any
    """The tag that the message had in the outbox."""
    state: int
    failed: bool = False
    undeliverable: bool = False
    error: Error | None = None
    """The error of a rejection."""
    annotations: bytes = b""
    """The annotations of a modification, as an encoded map."""


class Answer(NamedTuple):
    """The answer to a sender for a delivery: the outcome that its receivers reported."""

    delivery: Pointer
    state: int
    failed: bool = False
    undeliverable: bool = False
    error: Error | None = None
    annotations: bytes = b""
    settled: bool = True
    """False if only the outcome is sent, because the rest of the message follows."""


class Terminus(NamedTuple):
    """The terminus that a remote attach requests at this side of the link."""

    address: str | None = None
    dynamic: bool = False
    """True to create a node for this link."""
    browse: bool = False
    """Messages are browsed, not consumed (distribution mode `copy`)."""
    coordinator: bool = False
    """The link controls transactions."""
    absent: bool = False
    """There is no terminus: of a target, each message names its own; of a source, the link asks what there was."""
    durability: int = 0
    """0: none of it lasts; 1: its configuration; 2: its unsettled state, too."""
    expiry: str = "session-end"
    """The event after which it expires: `link-detach`, `session-end`, `connection-close` or `never`."""
    timeout_s: int = 0
    """Seconds from the event in `expiry` until the terminus expires."""
    capabilities: tuple[str, ...] = ()
    filters: bytes = b""
    """The filter set as an encoded map; empty without filters."""
    properties: bytes = b""
    """The properties of a dynamic node, as an encoded map; empty without properties."""

    @property
    def lasts(self) -> bool:
        """Return whether the terminus has state that outlives its link."""
        return self.durability > 0 or self.expiry == "never"
