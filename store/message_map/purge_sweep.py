"""The deferred sweep after a purge: each message of a cut queue is settled, a few thousand per step.

A message that a transaction is putting elsewhere stays, on no queue, until that is decided (checklist E43).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...journal.format.record import HEAD_BYTES
from .message_entry import SIZE_BITS, SIZE_MASK
from .purges import PurgeMark
from .state import State

AT_ONCE = 2048
"""The number of messages that a step processes."""
IsAdded = Callable[[int], bool]
"""Returns whether a transaction is going to put the message on a queue."""


def settle(state: State, message_id: int, is_added: IsAdded) -> None:
    """Apply the purges of its queues to one message, as `sweep` does, when the message is accessed."""
    value = state.plain_value(message_id)
    if value is not None:
        cut = state.cuts.unswept.get(value >> SIZE_BITS)
        cut = None if cut is None else cut.taker(message_id, message_id)
        if cut is None:
            return
        if not is_added(message_id):
            lsn = state.place_of(message_id)
            state.forget_plain(message_id)
            state.pins.release(lsn, HEAD_BYTES + (value & SIZE_MASK))
            state.pins.end_once(cut.lsn, lsn)
            return
        state.particulars(message_id)
    if message_id in state.detailed:
        _settle_detailed(state, message_id, is_added)


def is_cut(state: State, message_id: int) -> bool:
    """Return whether `settle` would delete the message, without changing anything. Any thread."""
    cuts = state.cuts.unswept.copy()
    value = state.plain_value(message_id)
    if value is not None:
        places = [(value >> SIZE_BITS, message_id)]
    else:
        message = state.detailed.get(message_id)
        places = [] if message is None else [(queue_id, at) for queue_id, (at, _) in message.queues.copy().items()]
    found = [queue_id in cuts and cuts[queue_id].takes(message_id, position) for queue_id, position in places]
    return bool(found) and all(found)


def _settle_detailed(state: State, message_id: int, is_added: IsAdded) -> None:
    message, pins, unswept = state.detailed[message_id], state.pins, state.cuts.unswept
    cut: PurgeMark | None = None
    for queue_id, (position, lsn) in [*message.queues.items()]:
        found = unswept.get(queue_id)
        found = None if found is None else found.taker(message_id, position)
        if found is not None:
            cut = found
            state.leave_queue(message, queue_id)
            pins.end_once(cut.lsn, lsn)
            if lsn != message.start:
                pins.release(lsn, HEAD_BYTES)
    if cut is None:
        return
    state.changed_detailed.add(message_id)
    if not message.queues and not is_added(message_id):
        del state.detailed[message_id]
        for lsn, size_bytes in message.records():
            pins.release(lsn, size_bytes)


def sweep(state: State, is_added: IsAdded, at_once: int = AT_ONCE) -> Iterator[None]:
    """Apply pending purges to all messages; yields after every *at_once*. Further purges may be added meanwhile."""
    unswept = state.cuts.unswept
    while unswept:
        cuts = dict(unswept)
        last = state.slot_of(max(cut.position for cut in cuts.values()))
        looked = 0
        for slot in sorted(slot for slot in state.pages if slot <= last):
            page = state.pages.get(slot, {})
            looked += len(page)
            for message_id in [message_id for message_id, value in page.items() if value >> SIZE_BITS in cuts]:
                settle(state, message_id, is_added)
                looked += 1
                if looked >= at_once:
                    looked = 0
                    yield
        for message_id in [*state.detailed]:
            settle(state, message_id, is_added)
            looked += 1
            if looked >= at_once:
                looked = 0
                yield
        for queue_id, cut in cuts.items():
            if unswept[queue_id].position == cut.position:
                for needless in state.cuts.swept(queue_id):
                    state.pins.release(needless.lsn, needless.size_bytes)


def sweep_all(state: State, is_added: IsAdded) -> None:
    """Settle the messages of all cut queues at once; see `sweep`."""
    for _ in sweep(state, is_added):
        pass
