"""The phases of a member, as a state table: every transition of a member is in this file.

| phase | meaning |
|---|---|
| `outside` | in no group, or in one without a majority: nothing is completed, nothing owned, clients are sent away |
| `founding` | no member is known to have all messages: the members compare their stores |
| `wiping` | another member has more: the mark records that the replicated state here does not count |
| `asking` | this member asked for a state transfer; what it receives before its cut is not applied |
| `keeping` | its request was delivered, which is its cut: events behind it are kept until the wiring is there |
| `updating` | wiring and queues exist, and events are applied; the messages before the cut come, back to front |
| `synced` | this member has all messages |

Metrics and management show `keeping` as `asking`.

| phase | entered | members changed | no source | outranked | won | wiped | cut | missed | wired | completed | lost |
|---|---|---|---|---|---|---|---|---|---|---|---|
| outside | founding | | | | | | | | | | outside |
| founding | founding | founding | founding | wiping | synced | | | | | | outside |
| wiping | founding | | founding | | | asking | | | | | outside |
| asking | founding | | founding | | | | keeping | | | | outside |
| keeping | founding | founding | founding | | | | | asking | updating | | outside |
| updating | founding | | founding | | | | | | | synced | outside |
| synced | founding | | founding | | | | | | | synced | outside |

An empty cell: the event is ignored in that phase. The phase that is entered determines the action.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

OUTSIDE, FOUNDING, WIPING, ASKING, KEEPING, UPDATING, SYNCED = (
    "outside", "founding", "wiping", "asking", "keeping", "updating", "synced",
)  # fmt: skip
PHASES = (OUTSIDE, FOUNDING, WIPING, ASKING, KEEPING, UPDATING, SYNCED)


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
    **{(phase, PhaseEvent.ENTERED): Transition(FOUNDING, PhaseAction.BOOTSTRAP) for phase in PHASES},
    **{
        (phase, PhaseEvent.NO_SOURCE): Transition(FOUNDING, PhaseAction.BOOTSTRAP)
        for phase in PHASES
        if phase != OUTSIDE
    },
    (FOUNDING, PhaseEvent.MEMBERS_CHANGED): Transition(FOUNDING, PhaseAction.BOOTSTRAP),
    (KEEPING, PhaseEvent.MEMBERS_CHANGED): Transition(FOUNDING, PhaseAction.BOOTSTRAP),
    (FOUNDING, PhaseEvent.OUTRANKED): Transition(WIPING, PhaseAction.WIPE),
    (FOUNDING, PhaseEvent.WON): Transition(SYNCED, PhaseAction.SERVE),
    (WIPING, PhaseEvent.WIPED): Transition(ASKING, PhaseAction.ASK),
    (ASKING, PhaseEvent.CUT): Transition(KEEPING, PhaseAction.KEEP),
    (KEEPING, PhaseEvent.MISSED): Transition(ASKING, PhaseAction.ASK),
    (KEEPING, PhaseEvent.WIRED): Transition(UPDATING, PhaseAction.APPLY),
    (UPDATING, PhaseEvent.COMPLETED): Transition(SYNCED, PhaseAction.SERVE),
    (SYNCED, PhaseEvent.COMPLETED): Transition(SYNCED, PhaseAction.SERVE),
}
"""All transitions of a member; pairs without one are ignored."""


def public_name(phase: str) -> str:
    """Returns the name that metrics and management show."""
    return ASKING if phase == KEEPING else phase
