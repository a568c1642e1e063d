"""The states of a consumer, as a state table: every transition is in this file.

| state | meaning |
|---|---|
| `flowing` | messages are dispatched as far as the credit goes |
| `draining` | the client waits for the available messages, and then for the rest of its credit |
| `recording` | dispatched messages are being recorded, or wait to be sent; no others are dispatched meanwhile |
| `recording_drain` | as `recording`, and the client drains |
| `refused` | the link is being closed with an error; nothing is dispatched |
| `closed` | the link is closed; messages that are being recorded are requeued |
| `cut_off` | the messages of the consumer are no longer its own; outcomes and results have no effect |

| state | flow | drain | record | recorded | dispatched | refuse | close | cut off |
|---|---|---|---|---|---|---|---|---|
| flowing | flowing | draining | recording | | | refused | closed | cut_off |
| draining | flowing | draining | recording_drain | | flowing | refused | closed | cut_off |
| recording | recording | recording_drain | | flowing | | refused | closed | cut_off |
| recording_drain | recording | recording_drain | | draining | | refused | closed | cut_off |
| refused | | | | | | | closed | cut_off |
| closed | | | | | | | | cut_off |
| cut_off | | | | | | | | |

An empty cell: the event is ignored in that state.

| event | action, in states where it is not ignored |
|---|---|
| flow | `DISPATCH` |
| drain | `DRAIN`; while messages are being recorded nothing, as the drain follows them |
| recorded | `DISPATCH`, or `DRAIN` if the client drains |
| dispatched | `RETURN_CREDIT` |
"""

from __future__ import annotations

from enum import Enum, auto

FLOWING, DRAINING, RECORDING, RECORDING_DRAIN, REFUSED, CLOSED, CUT_OFF = (
    "flowing", "draining", "recording", "recording_drain", "refused", "closed", "cut_off",
)  # fmt: skip
STATES = (FLOWING, DRAINING, RECORDING, RECORDING_DRAIN, REFUSED, CLOSED, CUT_OFF)
ENDED = (CLOSED, CUT_OFF)
"""States of a consumer whose link is closed, or is being closed."""


class ConsumerEvent(Enum):
    """An event that can change the state of a consumer."""

    FLOW = auto()
    """The client set its credit, and does not drain."""
    DRAIN = auto()
    """The client requests the available messages now, and returns the rest of its credit."""
    RECORD = auto()
    """Dispatched messages must be recorded before they are sent."""
    RECORDED = auto()
    """The record of dispatched messages is durable, or failed."""
    DISPATCHED = auto()
    """All available messages are dispatched."""
    REFUSE = auto()
    """The consumer cannot do what its client requested."""
    CLOSE = auto()
    """The link was closed."""
    CUT_OFF = auto()
    """The connection is being closed, and its messages are given to others."""


class ConsumerAction(Enum):
    """The action of a transition of a consumer."""

    DISPATCH = auto()
    """Schedule a dispatch of the queue."""
    DRAIN = auto()
    """Dispatch the available messages, and return the rest of the credit after them."""
    RETURN_CREDIT = auto()
    """Return the rest of the credit."""


_OPEN = (FLOWING, DRAINING, RECORDING, RECORDING_DRAIN)

TABLE: dict[tuple[str, ConsumerEvent], tuple[str, ConsumerAction | None]] = {
    **{(state, ConsumerEvent.REFUSE): (REFUSED, None) for state in _OPEN},
    **{(state, ConsumerEvent.CLOSE): (CLOSED, None) for state in (*_OPEN, REFUSED)},
    **{(state, ConsumerEvent.CUT_OFF): (CUT_OFF, None) for state in (*_OPEN, REFUSED, CLOSED)},
    (FLOWING, ConsumerEvent.FLOW): (FLOWING, ConsumerAction.DISPATCH),
    (FLOWING, ConsumerEvent.DRAIN): (DRAINING, ConsumerAction.DRAIN),
    (FLOWING, ConsumerEvent.RECORD): (RECORDING, None),
    (DRAINING, ConsumerEvent.FLOW): (FLOWING, ConsumerAction.DISPATCH),
    (DRAINING, ConsumerEvent.DRAIN): (DRAINING, ConsumerAction.DRAIN),
    (DRAINING, ConsumerEvent.RECORD): (RECORDING_DRAIN, None),
    (DRAINING, ConsumerEvent.DISPATCHED): (FLOWING, ConsumerAction.RETURN_CREDIT),
    (RECORDING, ConsumerEvent.FLOW): (RECORDING, ConsumerAction.DISPATCH),
    (RECORDING, ConsumerEvent.DRAIN): (RECORDING_DRAIN, None),
    (RECORDING, ConsumerEvent.RECORDED): (FLOWING, ConsumerAction.DISPATCH),
    (RECORDING_DRAIN, ConsumerEvent.FLOW): (RECORDING, ConsumerAction.DISPATCH),
    (RECORDING_DRAIN, ConsumerEvent.DRAIN): (RECORDING_DRAIN, None),
    (RECORDING_DRAIN, ConsumerEvent.RECORDED): (DRAINING, ConsumerAction.DRAIN),
}
"""The state that is entered and the action of each transition; pairs without one are ignored."""
