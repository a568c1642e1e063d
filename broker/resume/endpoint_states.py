"""The states of a link endpoint that outlasts its link, as a state table: every transition is in this file.

| state | meaning |
|---|---|
| `waiting` | the client is disconnected; the endpoint is kept for its time |
| `attached` | a link of the client has the endpoint |
| `abandoned` | a link still has it, and the client attached the link elsewhere without asking to resume |
| `dropped` | the endpoint and its unsettled deliveries are deleted |

| state | attach | detach | close | give up | expire |
|---|---|---|---|---|---|
| waiting | attached | | | dropped | dropped |
| attached | attached | waiting | dropped | abandoned | |
| abandoned | attached | dropped | dropped | abandoned | |
| dropped | | | | | |

An empty cell: the event is ignored in that state. The state that is entered determines the action: `waiting` starts the
time, `dropped` deletes the endpoint. A client that attaches a link twice takes the endpoint from the earlier link.
"""

from __future__ import annotations

from enum import Enum, auto

WAITING, ATTACHED, ABANDONED, DROPPED = "waiting", "attached", "abandoned", "dropped"
STATES = (WAITING, ATTACHED, ABANDONED, DROPPED)


class EndpointEvent(Enum):
    """An event that can change the state of a link endpoint."""

    ATTACH = auto()
    """The client attached a link that resumes."""
    DETACH = auto()
    """The link that has the endpoint was detached, or its connection broke."""
    CLOSE = auto()
    """The link that has the endpoint was closed."""
    GIVE_UP = auto()
    """The client attached a link of that name without asking to resume it."""
    EXPIRE = auto()
    """The client did not return in time."""


TABLE: dict[tuple[str, EndpointEvent], str] = {
    **{(state, EndpointEvent.ATTACH): ATTACHED for state in (WAITING, ATTACHED, ABANDONED)},
    **{(state, EndpointEvent.CLOSE): DROPPED for state in (ATTACHED, ABANDONED)},
    (ATTACHED, EndpointEvent.DETACH): WAITING,
    (ABANDONED, EndpointEvent.DETACH): DROPPED,
    (WAITING, EndpointEvent.GIVE_UP): DROPPED,
    (ATTACHED, EndpointEvent.GIVE_UP): ABANDONED,
    (ABANDONED, EndpointEvent.GIVE_UP): ABANDONED,
    (WAITING, EndpointEvent.EXPIRE): DROPPED,
}
"""The state that is entered, by state and event; pairs without one are ignored."""
