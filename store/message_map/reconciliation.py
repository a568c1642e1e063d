"""Reconciles the message map with the log at the end of recovery, when the last record was read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ...journal.format.record import HEAD_BYTES
from .message_entry import SIZE_MASK
from .placement import totals_by_queue
from .purge_sweep import sweep_all
from .state import FEW, State


def reconcile(state: State, slots: Mapping[int, int]) -> dict[int, int]:
    """Complete *state* after recovery has read the whole log; return the number of messages on each queue, by its ID.

    *slots* are those of the log. Messages that the store discards afterwards are on no queue.
    A message without a Start record was deleted, and the record of its deletion left the log with the message's records
    (checklist E27, E28). Entries that a checkpoint has for slots outside the log are dropped as well.
    """
    _drop_plain(state, slots)
    _drop_detailed(state, slots)
    _sort_pages(state)
    state.outcomes.finish(slots)
    _end_replaced(state)
    sweep_all(state, state.outcomes.adds().__contains__)
    messages, state.queue_bytes = totals_by_queue(state)
    for ending in {state.slot_of(lsn) for lsn in state.unknown_ends}:
        for slot in slots:
            if slot < ending:
                state.pins.end_once(state.start_of(ending), state.start_of(slot))
    state.pins.begin(slots, _live_records(state))
    return messages


def _drop_plain(state: State, slots: Mapping[int, int]) -> None:
    """Drop the plain messages whose Start record is not in the log."""
    for slot in [slot for slot in state.pages if slot not in slots]:
        page = state.pages.pop(slot)
        state.changed_pages.add(slot)
        if kept := {message_id: value for message_id, value in page.items() if message_id in state.moved}:
            state.pages[slot] = kept
    for message_id in [message_id for message_id, lsn in state.moved.items() if state.slot_of(lsn) not in slots]:
        state.forget(message_id)


def _drop_detailed(state: State, slots: Mapping[int, int]) -> None:
    """Drop the other messages whose Start record is not in the log, and places whose record is not."""
    lost = [
        message_id for message_id, message in state.detailed.items()
        if not message.start or state.slot_of(message.start) not in slots
    ]  # fmt: skip
    for message_id in lost:
        del state.detailed[message_id]
    state.changed_detailed.update(lost)
    for message_id, message in state.detailed.items():
        left = [queue_id for queue_id, (_, lsn) in message.queues.items() if state.slot_of(lsn) not in slots]
        for queue_id in left:
            del message.queues[queue_id]
        if left:
            state.changed_detailed.add(message_id)


def _end_replaced(state: State) -> None:
    """Note which purges ended places that their messages got anew: `sweep_all` sees only the newest place."""
    for queue_id, message_id, position, lsn in state.replaced:
        cut = state.cuts.unswept.get(queue_id)
        taker = None if cut is None else cut.taker(message_id, position)
        if taker is not None:
            state.pins.end_once(taker.lsn, lsn)
    state.replaced.clear()


def _sort_pages(state: State) -> None:
    """Sort the pages by message ID: copies and late commits were read after messages with higher IDs."""
    for slot in {state.slot_of(message_id) for message_id in state.moved} | (state.out_of_order & state.pages.keys()):
        state.pages[slot] = dict(sorted(state.pages[slot].items()))


def _live_records(state: State) -> Iterator[tuple[int, int]]:
    """LSN and size of the live records: one sum per slot for plain messages, at any LSN in it; each of the others."""
    for slot, page in state.pages.items():
        if len(page) < FEW:
            total = sum([value & SIZE_MASK for value in page.values()])
        else:
            total = int((np.fromiter(page.values(), np.int64, len(page)) & SIZE_MASK).sum())
        yield state.start_of(slot), HEAD_BYTES * len(page) + total
    for message_id, lsn in state.moved.items():
        size_bytes = HEAD_BYTES + (state.pages[state.slot_of(message_id)][message_id] & SIZE_MASK)
        yield message_id, -size_bytes
        yield lsn, size_bytes
    for message in state.detailed.values():
        yield from message.records()
    yield from state.outcomes.records()
