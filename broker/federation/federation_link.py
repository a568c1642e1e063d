"""The states of a federated queue's link to its upstream, as a state table: every transition is in this file.

| state | meaning |
|---|---|
| `waiting` | there is no link: the connector has no connection, or the next attempt is due later |
| `attaching` | the link was requested, and the upstream has not answered |
| `up` | the upstream sends steps |
| `broken` | the copy can't be continued: its notes are missing or damaged |
| `ending` | the queue is being promoted or deleted, which waits for the wiring |

Management shows these names.

| state | connected | answered | link ended | resynchronize | promote | delete | not ended | damaged |
|---|---|---|---|---|---|---|---|---|
| waiting | attaching | | | waiting | ending | ending | | broken |
| attaching | | up | waiting | waiting | ending | ending | | |
| up | | | waiting | waiting | ending | ending | | |
| broken | | | | | | ending | | |
| ending | | | | | | | waiting | broken |

An empty cell: the event is ignored in that state, and an operation is refused. The event determines the action.
"""

from __future__ import annotations

from enum import Enum, auto

WAITING, ATTACHING, UP, BROKEN, ENDING = "waiting", "attaching", "up", "broken", "ending"
LINK_STATES = (WAITING, ATTACHING, UP, BROKEN, ENDING)


class FederationEvent(Enum):
    """An event that can change the state of the link to an upstream."""

    CONNECTED = auto()
    """The connector has a connection, and the attempt is due."""
    ANSWERED = auto()
    """The upstream has attached the link."""
    LINK_ENDED = auto()
    """The link or its connection is closed, or the copy has failed."""
    RESYNCHRONIZE = auto()
    """An operator demands a new copy."""
    PROMOTE = auto()
    """An operator makes the copy a queue."""
    DELETE = auto()
    """An operator deletes the copy."""
    NOT_ENDED = auto()
    """The change of the wiring failed; the link is opened again."""
    DAMAGED = auto()
    """The recovery of the copy has failed, or the deletion of such a copy."""


class FederationAction(Enum):
    """The action of a transition of the link."""

    ATTACH = auto()
    """Request the link."""
    OPEN = auto()
    """Grant credit to the upstream."""
    DETACH = auto()
    """Forget the link, and drop the incomplete step."""
    LEAVE = auto()
    """Close the link, so that the upstream keeps nothing, and drop the incomplete step."""
    RETRY = auto()
    """Try again after the delay."""
    REPORT = auto()
    """Keep the reason for management."""


_ACTIONS = {
    FederationEvent.CONNECTED: FederationAction.ATTACH,
    FederationEvent.ANSWERED: FederationAction.OPEN,
    FederationEvent.LINK_ENDED: FederationAction.DETACH,
    FederationEvent.RESYNCHRONIZE: FederationAction.LEAVE,
    FederationEvent.PROMOTE: FederationAction.LEAVE,
    FederationEvent.DELETE: FederationAction.LEAVE,
    FederationEvent.NOT_ENDED: FederationAction.RETRY,
    FederationEvent.DAMAGED: FederationAction.REPORT,
}
_ENTERED: dict[tuple[str, FederationEvent], str] = {
    (WAITING, FederationEvent.CONNECTED): ATTACHING,
    (WAITING, FederationEvent.DAMAGED): BROKEN,
    (ATTACHING, FederationEvent.ANSWERED): UP,
    **{(state, FederationEvent.LINK_ENDED): WAITING for state in (ATTACHING, UP)},
    **{(state, FederationEvent.RESYNCHRONIZE): WAITING for state in (WAITING, ATTACHING, UP)},
    **{(state, FederationEvent.PROMOTE): ENDING for state in (WAITING, ATTACHING, UP)},
    **{(state, FederationEvent.DELETE): ENDING for state in (WAITING, ATTACHING, UP, BROKEN)},
    (ENDING, FederationEvent.NOT_ENDED): WAITING,
    (ENDING, FederationEvent.DAMAGED): BROKEN,
}
TABLE = {(state, event): (entered, _ACTIONS[event]) for (state, event), entered in _ENTERED.items()}
"""The state that is entered and the action, by state and event; pairs without an entry are ignored."""
