"""Selects messages on a subscription's queue to which its selector was not applied when they were published. Core only.

The selectors of an exchange are applied in the publisher's turn, within a budget for each message. If it does not
suffice, the message is still put on the subscription's queue, so that it is durable, in order and confirmed at once.
The selector is applied before the message is dispatched, in time slices, and drops the message then if it is not true.
A selector that exceeds its own budget for the message closes the links of the subscription.

These messages are not recorded. So from the first one on, and for all that were on the queue when the broker started,
and for replicated queues, the selector is applied to each message again: its result does not change.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from ...base.callbacks import ignore
from ...store.contract.dequeue_reason import DequeueReason
from ..contents.ports import QueueConsumer
from ..kernel.context import CoreContext
from ..messages.entry import Entry
from ..queues.queue import Queue
from ..selector.compiler import selector
from ..selector.properties import OverBudget
from .filtered_consumer import SelectorFilter, refuse


class LateSelection:
    """The late selection of a subscription with a selector."""

    def __init__(self, core: CoreContext, queue: Queue, text: str) -> None:
        self.is_needed = False
        """True if the queue may have messages that were not judged."""
        self._core = core
        self._queue = queue
        self.text = text
        self._judge: SelectorFilter | None = None
        self._is_put_off = False
        self._refused: dict[QueueConsumer, None] = {}

    def sift(self) -> tuple[deque[Entry], list[Entry], bool]:
        """Leave in `ready` and `returned` the selected messages that can be dispatched now.

        Return the messages behind them in `ready`, and in `returned`, and whether it waits for the selector.
        """
        queue = self._queue
        contents = queue.contents
        self._refused = {taker: None for taker in self._refused if taker in queue.consumers}
        room = sum(max(0, consumer.room()) for consumer in queue.consumers)
        back: list[Entry] = []
        front: deque[Entry] = deque()
        drop: list[Entry] = []
        waits = False
        while contents.returned and len(back) < room:
            verdict = self._verdict(contents.returned[0])
            if verdict is None:
                waits = True
                break
            (back if verdict else drop).append(heappop(contents.returned))
        while contents.ready and not waits and len(back) + len(front) < room:
            verdict = self._verdict(contents.ready[0])
            if verdict is None:
                waits = True
                break
            (front if verdict else drop).append(contents.ready.popleft())
        behind, behind_returned = contents.ready, contents.returned
        contents.ready, contents.returned = front, back  # the entries are in order, so the list is a heap
        if drop:
            queue.order.drop(drop, DequeueReason.NOT_RECORDED, ignore)
        return behind, behind_returned, waits

    def put_back(self, behind: deque[Entry], behind_returned: list[Entry]) -> None:
        """Put the entries that `sift` removed back on the queue, behind those that were not dispatched."""
        queue = self._queue
        queue.contents.ready.extend(behind)
        for entry in behind_returned:
            heappush(queue.contents.returned, entry)

    def _verdict(self, entry: Entry) -> bool | None:
        """Return whether *entry* may be dispatched; None if that is not known yet."""
        queue, core = self._queue, self._core
        if entry.is_dequeued or entry in queue.contents.delayed:
            return True
        if not (self.is_needed or queue.replicated or 0 < entry.message_id < queue.contents.delivered_below):
            return True
        if queue.bindings > 1:  # messages that arrived through another binding are not for this selector
            return True
        if self._judge is None:
            self._judge = SelectorFilter(core, selector(self.text), self._go_on, None)
        if self._judge.reading:
            return None
        if not core.background.has_time():
            if not self._is_put_off:
                self._is_put_off = True
                core.background.put_off(self._go_on)
            return None
        if not self._judge.ready(entry):
            self._judge.prepare([entry])
            return None
        try:
            return self._judge.wants(entry)
        except OverBudget as error:
            for taker in queue.consumers:
                if taker not in self._refused:
                    self._refused[taker] = None
                    refuse(taker.terminal, queue.name, entry, error)
            return None

    def _go_on(self) -> None:
        self._is_put_off = False
        self._core.schedule_dispatch(self._queue)
