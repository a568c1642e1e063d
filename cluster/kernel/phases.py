"""The phases of a member, as a state table: every transition of a member is in this file.

| phase | meaning |
|---|---|
| `outside` | in no group, or in one without a majority: nothing is completed, nothing owned, clients are sent away |
| `bootstrapping` | no member is known to have all messages: the members compare their stores |
| `discarding` | another member has more: the mark records that the replicated state here does not count |
| `requesting` | this member asked for a state transfer; what it receives before its cut is not applied |
| `buffering` | its request was delivered, which is its cut: events behind it are kept until the wiring is there |
| `transferring` | wiring and queues exist, and events are applied; the messages before the cut come, back to front |
| `synchronized` | this member has all messages |

Metrics and management show `buffering` as `requesting`.

| phase | entered | members changed | no source | outranked | won | wiped | cut | missed | wired | completed | lost |
|---|---|---|---|---|---|---|---|---|---|---|---|
| outside | bootstrapping | | | | | | | | | | outside |
| bootstrapping | bootstrapping | bootstrapping | bootstrapping | discarding | synchronized | | | | | | outside |
| discarding | bootstrapping | | bootstrapping | | | requesting | | | | | outside |
| requesting | bootstrapping | | bootstrapping | | | | buffering | | | | outside |
| buffering | bootstrapping | bootstrapping | bootstrapping | | | | | requesting | transferring | | outside |
| transferring | bootstrapping | | bootstrapping | | | | | | | synchronized | outside |
| synchronized | bootstrapping | | bootstrapping | | | | | | | synchronized | outside |

An empty cell: the event is ignored in that phase. The phase that is entered determines the action:

| entered | action |
|---|---|
| outside | disconnect clients, and drop everything in flight |
| bootstrapping | multicast the standing of this store |
| discarding | record that the replicated state does not count |
| requesting | multicast a request for a transfer |
| buffering | keep events from here on |
| transferring | apply the kept events, and all that follow |
| synchronized | record that this member has all messages |
"""

from __future__ import annotations

from enum import Enum, auto

PHASES = OUTSIDE, BOOTSTRAPPING, DISCARDING, REQUESTING, BUFFERING, TRANSFERRING, SYNCHRONIZED = (
    "outside", "bootstrapping", "discarding", "requesting", "buffering", "transferring", "synchronized",
)  # fmt: skip


class PhaseEvent(Enum):
    """An event that can change the phase of a member."""

    ENTERED = auto()
    """This member is in the group, with a new ID."""
    MEMBERS_CHANGED = auto()
    """Other members joined or left, and members that have all messages remain."""
    NO_SOURCE = auto()
    """The group changed, and no member is known to have all messages."""
    OUTRANKED = auto()
    """Another store is ahead, or a member that has all messages invites this one to a transfer."""
    WON = auto()
    """The members compared their stores, and this one counts."""
    WIPED = auto()
    """The mark that the replicated state does not count is durable."""
    CUT = auto()
    """The request for a transfer was delivered to this member."""
    MISSED = auto()
    """An event ended whose beginning was sent before this member joined: another cut is needed."""
    WIRED = auto()
    """The wiring of the others was written."""
    COMPLETED = auto()
    """All messages are here and durable, and all members were notified."""
    LOST = auto()
    """This member left the group, or is in a minority."""


TABLE: dict[tuple[str, PhaseEvent], str] = {
    **{(phase, PhaseEvent.LOST): OUTSIDE for phase in PHASES},
    **{(phase, PhaseEvent.ENTERED): BOOTSTRAPPING for phase in PHASES},
    **{(phase, PhaseEvent.NO_SOURCE): BOOTSTRAPPING for phase in PHASES if phase != OUTSIDE},
    (BOOTSTRAPPING, PhaseEvent.MEMBERS_CHANGED): BOOTSTRAPPING,
    (BUFFERING, PhaseEvent.MEMBERS_CHANGED): BOOTSTRAPPING,
    (BOOTSTRAPPING, PhaseEvent.OUTRANKED): DISCARDING,
    (BOOTSTRAPPING, PhaseEvent.WON): SYNCHRONIZED,
    (DISCARDING, PhaseEvent.WIPED): REQUESTING,
    (REQUESTING, PhaseEvent.CUT): BUFFERING,
    (BUFFERING, PhaseEvent.MISSED): REQUESTING,
    (BUFFERING, PhaseEvent.WIRED): TRANSFERRING,
    (TRANSFERRING, PhaseEvent.COMPLETED): SYNCHRONIZED,
    (SYNCHRONIZED, PhaseEvent.COMPLETED): SYNCHRONIZED,
}
"""The phase that is entered, by the present phase and the event; pairs without one are ignored."""


def public_name(phase: str) -> str:
    """Returns the name that metrics and management show."""
    return REQUESTING if phase == BUFFERING else phase
