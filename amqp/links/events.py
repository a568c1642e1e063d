"""Events that an engine reports of a connection, and the limits of a connection."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from .link import Link

CAPABILITIES = ("ANONYMOUS-RELAY", "SHARED-SUBS", "DELAYED_DELIVERY")
"""The capabilities that are offered to every client that opens a connection."""


class EventKind(Enum):
    """The rare events."""

    OPENED = auto()
    BEGUN = auto()
    ENDED = auto()
    ATTACHED = auto()
    ANSWERED = auto()
    """The peer has answered an attach of this side."""
    FLOW = auto()
    DETACHED = auto()
    VIOLATED = auto()
    """The peer sent a frame for which its session was ended."""
    CLOSED = auto()


class Event(NamedTuple):
    """*link* is None for events of the connection; *text* the peer's or proton's error, if any."""

    kind: EventKind
    link: Link | None = None
    text: str = ""
    closed: bool = False
    """True on DETACHED if the link was closed, by the peer or, for a part of a link route, by either side.

    Closing a link gives up its terminus; otherwise the link was only detached.
    """
    session: int = 0
    """The number of the session of the connection, from 1 on, for BEGUN and ENDED."""


class Limits(NamedTuple):
    """The limits of one connection; see `security` defaults."""

    max_frame_bytes: int = 64 << 10
    max_message_bytes: int = 256 << 20
    channel_max: int = 255
    idle_timeout_ms: int = 60_000
    max_links: int = 1024
    max_unsettled: int = 100_000
    """Messages that one link to the client may have without an outcome."""
    max_transfers: int = 1 << 20
    """The maximum number of frames, or reads with a part of one, of one message."""
    session_window_bytes: int = 64 << 20
    """Bytes that a client may send before the window is extended.

    Proton enforces the window in frames of the largest size, so it also limits the number of small messages under way.
    It takes no memory: input is taken out of proton at once.
    """
