"""The lifetime of a queue, as a state table: every transition is in this file.

| state | meaning |
|---|---|
| `active` | messages are enqueued and dispatched |
| `deleting` | the wiring is being changed: no message is enqueued any more, and the name is taken |
| `deleted` | the queue has no messages and no memory; links that still have it are closed |

A queue that is not durable has no wiring, and is removed at once.

| state | delete | not deleted | removed |
|---|---|---|---|
| active | deleting | | deleted |
| deleting | | active | deleted |
| deleted | | | |

An empty cell: the event is ignored in that state. `nodes.lifetimes` decides when a queue deletes itself.
"""

from __future__ import annotations

from enum import Enum


class QueueLifetime(Enum):
    """The state of a queue."""

    ACTIVE = "active"
    DELETING = "deleting"
    DELETED = "deleted"


class LifetimeEvent(Enum):
    """An event that can change the state of a queue."""

    DELETE = "delete"
    """The deletion was requested, and may be done."""
    NOT_DELETED = "not deleted"
    """The change of the wiring failed; the queue remains."""
    REMOVED = "removed"
    """The wiring was changed, or another queue replaces this one."""


TABLE = {
    (QueueLifetime.ACTIVE, LifetimeEvent.DELETE): QueueLifetime.DELETING,
    (QueueLifetime.ACTIVE, LifetimeEvent.REMOVED): QueueLifetime.DELETED,
    (QueueLifetime.DELETING, LifetimeEvent.NOT_DELETED): QueueLifetime.ACTIVE,
    (QueueLifetime.DELETING, LifetimeEvent.REMOVED): QueueLifetime.DELETED,
}
"""The state that is entered, by state and event; pairs without an entry are ignored."""
