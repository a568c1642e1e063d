"""The states of a client's transaction, as a state table: every transition of a transaction is in this file.

| state | meaning |
|---|---|
| `open` | its client works in it |
| `discharged` | its client ended it; targets are looked up, or its coordinator has still to prepare it |
| `prepared` | in doubt: its coordinator decides, also after a restart of the broker |
| `submitted` | committing: the members of the cluster apply it in their order, or refuse it |
| `committed` | it is applied and recorded |
| `failed` | rolled back while its client works in it, which gets the reason with its next request |
| `rolled back` | nothing was applied |
| `lost` | the cluster was lost after the submission: only the other members know the outcome |

| state | discharged | prepared | submitted | committed | failed | refused | lost |
|---|---|---|---|---|---|---|---|
| open | discharged | | submitted | committed | failed | | |
| discharged | | prepared | submitted | committed | rolled back | | |
| prepared | | | | committed | rolled back | | |
| submitted | | | | committed | | rolled back | lost |
| committed | | | | | | | |
| failed | rolled back | | | | | | |
| rolled back | | | | | | | |
| lost | | | | | | | |

An empty cell: the event is ignored in that state. A discharge stops the acquisition of messages; each other event has
the action of the state that it enters.
"""

from __future__ import annotations

from enum import Enum, auto


class TransactionState(Enum):
    """The state of a transaction."""

    OPEN = "open"
    DISCHARGED = "discharged"
    PREPARED = "prepared"
    SUBMITTED = "submitted"
    COMMITTED = "committed"
    FAILED = "failed"
    ROLLED_BACK = "rolled back"
    LOST = "lost"


class TransactionEvent(Enum):
    """An event that can change the state of a transaction."""

    DISCHARGED = auto()
    """The client ended it, or the link to its coordinator was closed."""
    PREPARED = auto()
    """The store has recorded that it can be committed."""
    SUBMITTED = auto()
    """The work on replicated queues was multicast."""
    COMMITTED = auto()
    """The store has its part of the commit, or the members have applied it."""
    FAILED = auto()
    """The work cannot be done, or the client, the coordinator or the broker abandoned it."""
    REFUSED = auto()
    """All members refused it: a queue or a message was removed before its position in the order."""
    LOST = auto()
    """The cluster of this member was lost."""


class TransactionAction(Enum):
    """The action of a transition of a transaction."""

    STOP_ACQUIRING = auto()
    """Dispatch to its links outside of it from now on."""
    DETACH = auto()
    """Take it off its connection, which may be closed."""
    AWAIT = auto()
    """Keep everything until the members have applied it."""
    APPLY = auto()
    """Show the messages that it enqueues, and dequeue those that it took."""
    UNDO = auto()
    """Drop the messages that it enqueues, and requeue those that it took and acquired."""
    GIVE_BACK = auto()
    """Drop the messages that it enqueues, and requeue those that it took, as far as they still exist."""


_S, _E, _A = TransactionState, TransactionEvent, TransactionAction
TABLE: dict[tuple[TransactionState, TransactionEvent], tuple[TransactionState, TransactionAction]] = {
    **{(state, _E.SUBMITTED): (_S.SUBMITTED, _A.AWAIT) for state in (_S.OPEN, _S.DISCHARGED)},
    **{
        (state, _E.COMMITTED): (_S.COMMITTED, _A.APPLY)
        for state in (_S.OPEN, _S.DISCHARGED, _S.PREPARED, _S.SUBMITTED)
    },
    **{(state, _E.FAILED): (_S.ROLLED_BACK, _A.UNDO) for state in (_S.DISCHARGED, _S.PREPARED)},
    (_S.OPEN, _E.DISCHARGED): (_S.DISCHARGED, _A.STOP_ACQUIRING),
    (_S.OPEN, _E.FAILED): (_S.FAILED, _A.UNDO),
    (_S.DISCHARGED, _E.PREPARED): (_S.PREPARED, _A.DETACH),
    (_S.SUBMITTED, _E.REFUSED): (_S.ROLLED_BACK, _A.UNDO),
    (_S.SUBMITTED, _E.LOST): (_S.LOST, _A.GIVE_BACK),
    (_S.FAILED, _E.DISCHARGED): (_S.ROLLED_BACK, _A.STOP_ACQUIRING),
}
"""All transitions; pairs without one are ignored."""
OPEN = frozenset({_S.OPEN, _S.DISCHARGED})
"""States in which the outcome is open, and the broker may roll back."""
WITH_CLIENT = frozenset({_S.OPEN, _S.FAILED})
"""States in which the client has not discharged the transaction."""
UNDONE = frozenset({_S.FAILED, _S.ROLLED_BACK})
"""States in which the broker has rolled it back."""
DECIDED = frozenset({_S.SUBMITTED, _S.COMMITTED, _S.LOST})
"""States in which the broker does not roll back any more."""
