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

An empty cell: the event is ignored in that phase. The phase that is entered determines the action.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

OUTSIDE, BOOTSTRAPPING, DISCARDING, REQUESTING, BUFFERING, TRANSFERRING, SYNCHRONIZED = (
    "outside", "bootstrapping", "discarding", "requesting", "buffering", "transferring", "synchronized",
)  # fmt: skip
PHASES = (OUTSIDE, BOOTSTRAPPING, DISCARDING, REQUESTING, BUFFERING, TRANSFERRING, SYNCHRONIZED)


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


class PhaseAction(Enum):
    """The action of a transition between phases."""

    LEAVE = auto()
    """Disconnect clients, and drop everything in flight."""
    BOOTSTRAP = auto()
    """Multicast the standing of this store."""
    WIPE = auto()
    """Record that the replicated state does not count."""
    ASK = auto()
    """Multicast a request for a transfer."""
    KEEP = auto()
    """Keep events from here on."""
    APPLY = auto()
    """Apply the kept events, and all that follow."""
    SERVE = auto()
    """Record that this member has all messages."""


class Transition(NamedTuple):
    """The effect of an event in a phase."""

    phase: str
    """The phase that is entered."""
    action: PhaseAction


TABLE: dict[tuple[str, PhaseEvent], Transition] = {
    **{(phase, PhaseEvent.LOST): Transition(OUTSIDE, PhaseAction.LEAVE) for phase in PHASES},
    **{(phase, PhaseEvent.ENTERED): Transition(BOOTSTRAPPING, PhaseAction.BOOTSTRAP) for phase in PHASES},
    **{
        (phase, PhaseEvent.NO_SOURCE): Transition(BOOTSTRAPPING, PhaseAction.BOOTSTRAP)
        for phase in PHASES
        if phase != OUTSIDE
    },
    (BOOTSTRAPPING, PhaseEvent.MEMBERS_CHANGED): Transition(BOOTSTRAPPING, PhaseAction.BOOTSTRAP),
    (BUFFERING, PhaseEvent.MEMBERS_CHANGED): Transition(BOOTSTRAPPING, PhaseAction.BOOTSTRAP),
    (BOOTSTRAPPING, PhaseEvent.OUTRANKED): Transition(DISCARDING, PhaseAction.WIPE),
    (BOOTSTRAPPING, PhaseEvent.WON): Transition(SYNCHRONIZED, PhaseAction.SERVE),
    (DISCARDING, PhaseEvent.WIPED): Transition(REQUESTING, PhaseAction.ASK),
    (REQUESTING, PhaseEvent.CUT): Transition(BUFFERING, PhaseAction.KEEP),
    (BUFFERING, PhaseEvent.MISSED): Transition(REQUESTING, PhaseAction.ASK),
    (BUFFERING, PhaseEvent.WIRED): Transition(TRANSFERRING, PhaseAction.APPLY),
    (TRANSFERRING, PhaseEvent.COMPLETED): Transition(SYNCHRONIZED, PhaseAction.SERVE),
    (SYNCHRONIZED, PhaseEvent.COMPLETED): Transition(SYNCHRONIZED, PhaseAction.SERVE),
}
"""All transitions of a member; pairs without one are ignored."""


def public_name(phase: str) -> str:
    """Returns the name that metrics and management show."""
    return REQUESTING if phase == BUFFERING else phase
