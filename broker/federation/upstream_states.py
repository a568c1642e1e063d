"""The states of a link to a downstream, as a state table: every transition is in this file.

| state | meaning |
|---|---|
| `preparing` | the position of the downstream is being retained, or its cut is not safe yet |
| `ready` | there may be more to read, when the downstream has credit and more is safe |
| `reading` | messages are being read on the reader's thread |
| `idle` | everything was read; there is nothing more until more of the log is durable |
| `over` | the link or its feed has ended |

| state | prepared | read | part read | all read | more durable | cut again | ended |
|---|---|---|---|---|---|---|---|
| preparing | ready | | | | | | over |
| ready | | reading | | | | preparing | over |
| reading | | | ready | idle | | | over |
| idle | | | | | ready | | over |
| over | | | | | | | |

An empty cell: the event is ignored in that state. A feed of a replicated queue is never idle: its watch knows whether
there is more. Only such a feed is cut again.
"""

from __future__ import annotations

from enum import Enum


class UpstreamState(Enum):
    """The state of a link to a downstream."""

    PREPARING = "preparing"
    READY = "ready"
    READING = "reading"
    IDLE = "idle"
    OVER = "over"


class UpstreamEvent(Enum):
    """An event that can change the state of a link to a downstream."""

    PREPARED = "prepared"
    """The log behind the position is retained, or the cut is safe."""
    READ = "read"
    """A read was requested."""
    PART_READ = "part read"
    """Messages were read, and there may be more."""
    ALL_READ = "all read"
    """Messages were read up to the durable end of the log."""
    MORE_DURABLE = "more durable"
    """More of the log is durable than at the last read."""
    CUT_AGAIN = "cut again"
    """Too many changes were noted: the messages have to be compared with the queue again."""
    ENDED = "ended"
    """The link was closed, or the feed has failed."""


TABLE: dict[tuple[UpstreamState, UpstreamEvent], UpstreamState] = {
    (UpstreamState.PREPARING, UpstreamEvent.PREPARED): UpstreamState.READY,
    (UpstreamState.READY, UpstreamEvent.READ): UpstreamState.READING,
    (UpstreamState.READY, UpstreamEvent.CUT_AGAIN): UpstreamState.PREPARING,
    (UpstreamState.READING, UpstreamEvent.PART_READ): UpstreamState.READY,
    (UpstreamState.READING, UpstreamEvent.ALL_READ): UpstreamState.IDLE,
    (UpstreamState.IDLE, UpstreamEvent.MORE_DURABLE): UpstreamState.READY,
    **{(state, UpstreamEvent.ENDED): UpstreamState.OVER for state in UpstreamState if state is not UpstreamState.OVER},
}
"""The state of the link behind an event, by state and event; other pairs change nothing."""
