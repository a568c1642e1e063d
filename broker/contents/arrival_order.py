"""The order of a plain queue: by position, which is the order of arrival. Core only.

A message that is requeued keeps its position, so it is dispatched again before all later ones. New messages go to
`ready` as long as there is no backlog and memory is left for them. Consumers take from `ready` only; while they take
one batch, the next one is read ahead of them from the backlog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import groupby

from ..kernel.loader import BATCH_MESSAGES
from ..messages.backlog import Backlog, Page
from ..messages.entry import Entry
from .contents import QueueContents
from .ports import ContentsOwner, QueueConsumer


class ArrivalOrder:
    """The order of the messages of a plain queue."""

    is_sorted = False
    note_dequeued: Callable[[Sequence[Entry]], None] | None = None
    parked_count = 0

    def __init__(self, queue: ContentsOwner, contents: QueueContents) -> None:
        self._queue = queue
        self._contents = contents
        self._mark = BATCH_MESSAGES
        """The next batch is read when fewer messages than this are ready: as many as the last one had."""

    def parked(self) -> Iterable[Entry]:
        return ()

    def is_away(self, entry: Entry) -> bool:
        return entry.is_dequeued

    def add(self, entries: Sequence[Entry]) -> None:
        queue, contents = self._queue, self._contents
        if entries[0].position < contents.purged_below:
            return
        held_bytes = transient_bytes = 0
        for entry in entries:
            held_bytes += entry.held_bytes
            if not entry.message_id:
                transient_bytes += entry.held_bytes
        if transient_bytes:
            queue.count_transient(transient_bytes)
        memory = contents.memory
        budget = memory.budget
        if contents.expiry is None and not contents.backlog.count and (
            memory.held_bytes < budget.limit_bytes - budget.used_bytes or memory.is_within_allowance()  # `has_room`
        ):
            contents.ready.extend(entries)
            if not queue.is_deleted:  # `hold`, without a call
                memory.held_bytes += held_bytes
                budget.used_bytes += held_bytes
        else:
            self._add_behind(entries)

    def _add_behind(self, entries: Sequence[Entry]) -> None:
        """Add new messages behind the backlog, or those that may have times."""
        contents = self._contents
        backlog, expiry, memory = contents.backlog, contents.expiry, contents.memory
        early: dict[Entry, None] = {}
        if expiry is not None:
            early = expiry.early(entries)
            expiry.hold_up(early)
        if not backlog.count and memory.has_room():
            self._admit([entry for entry in entries if entry not in early] if early else entries)
            return
        # messages that arrive while the last of the backlog is being read stay in memory, or reading would never end
        keep = 0 < backlog.stored <= BATCH_MESSAGES and memory.has_room()
        for (is_early, held), group in groupby(entries, lambda entry: (entry in early, keep or not entry.message_id)):
            alike = list(group)
            if is_early:
                for entry in alike:
                    backlog.leave_hole(entry.position)
            elif not held:
                backlog.extend(alike[0].position, [entry.message_id for entry in alike])
                if expiry is not None:
                    expiry.watch_stored(alike)
            elif backlog.count:
                for entry in alike:
                    backlog.hold(entry)
                memory.hold(sum([entry.held_bytes for entry in alike]))
            else:
                self._admit(alike)

    def _admit(self, entries: Sequence[Entry]) -> None:
        contents = self._contents
        contents.ready.extend(entries)
        contents.memory.hold(sum([entry.held_bytes for entry in entries]))
        if contents.expiry is not None:
            contents.expiry.watch(entries)

    def give_back(self, entry: Entry) -> None:
        """Requeue a message at its position, before all others or between them."""
        contents, position = self._contents, entry.position
        contents.memory.requeue(entry)
        contents.watch(entry)
        if contents.backlog.first <= position < contents.backlog.first + contents.backlog.count:
            contents.backlog.put_back(entry)
        elif contents.ready and position > contents.ready[0].position:
            contents.ready.insert(contents.ready_after(position), entry)
        else:
            heappush(contents.returned, entry)
        for selecting in contents.selecting:
            selecting.look_again(entry)

    def take_oldest(self) -> Entry | None:
        contents = self._contents
        while contents.returned or contents.ready:
            entry = heappop(contents.returned) if contents.returned else contents.ready.popleft()
            if not (entry.is_dequeued or entry in contents.delayed):
                return entry
        if not contents.backlog.count or contents.reader.is_reading:
            return None
        page = contents.backlog.page(contents.backlog.first - 1, 1)
        contents.backlog.drop(page)
        return page.held.get(page.first) or Entry(page.ids[0], page.first, None, 0)

    def dispose(self, kept: Sequence[Entry], user: str) -> None:
        """Do nothing, as the order keeps no messages of its own."""

    def pick(self, position: int) -> Entry | None:
        contents = self._contents
        ready = contents.ready
        away = contents.take_delayed(position)
        if ready and ready[0].position <= position <= ready[-1].position:
            place = 0 if ready[0].position == position else contents.ready_after(position) - 1
            entry = ready[place]
            if entry.position == position:
                del ready[place]
                return entry
        if contents.backlog.count and position >= contents.backlog.first:
            found = contents.take_from_backlog(position)
            if found is not None:
                return found
        entries = [entry for entry in contents.returned if entry.position == position]
        if entries:
            contents.returned.remove(entries[0])
            heapify(contents.returned)
            return entries[0]
        return away

    def put_before(self, front: Sequence[Entry], end: int) -> None:
        if not front:
            return
        contents = self._contents
        first = front[0].position
        ids = [0] * (front[-1].position + 1 - first)
        held: dict[int, Entry] = {}
        for entry in front:
            if entry.content is None and not entry.previously_delivered:
                ids[entry.position - first] = entry.message_id
            else:
                held[entry.position] = entry
        backlog = Backlog()
        backlog.restore(first, ids, held)
        for entry in sorted((*contents.ready, *contents.returned)):
            backlog.restore(entry.position, (0,), {entry.position: entry})
        while contents.backlog.count:
            page = contents.backlog.page(0, BATCH_MESSAGES)
            contents.backlog.drop(page)
            backlog.restore(page.first, page.ids, page.held)
        backlog.restore(end, (), {})
        contents.ready.clear()
        contents.returned.clear()
        contents.memory.hold(sum([entry.held_bytes for entry in held.values()]))
        contents.backlog = backlog
        contents.reader.cancel()

    def leave_hole(self, position: int) -> None:
        self._contents.backlog.leave_hole(position)

    def now_decides(self) -> None:
        """Do nothing, as no message replaces another one."""

    def dispatch_returned(self, consumers: list[QueueConsumer]) -> bool:
        """Dispatch requeued messages; those that wait for an absent consumer do not hold up `ready`."""
        contents = self._contents
        return dispatch_returned(contents.returned, consumers) or not contents.returned

    def is_reading_for(self, taker: QueueConsumer) -> bool:
        contents = self._contents
        return contents.reader.is_reading and not contents.ready and taker.room() > 0

    def read_ahead(self) -> None:
        contents, queue = self._contents, self._queue
        if contents.reader.is_reading or len(contents.ready) >= self._mark:
            return
        if queue.may_read():
            contents.reader.read_first(self._read)
        else:
            contents.memory.budget.starved[queue] = None

    def _read(self, page: Page, entries: list[Entry], done: int) -> None:
        contents = self._contents
        contents.reader.leave_out(page.cut(done), entries)
        expiry = contents.expiry
        if expiry is not None:
            early = expiry.early(entries)
            contents.memory.release(sum([entry.held_bytes for entry in early]))
            expiry.hold_up(early)
            entries = [entry for entry in entries if entry not in early]
            expiry.watch(entries)
        contents.ready.extend(entries)
        contents.ready.extend(contents.backlog.take_held())
        self._mark = max(1, len(entries))
        self._queue.dispatch()


def dispatch_returned(returned: list[Entry], consumers: list[QueueConsumer]) -> bool:
    """Dispatch requeued messages, a heap, one at a time; a consumer may be excluded from a message.

    Return whether only messages remain that wait for another consumer: they must not hold up the messages behind them.
    """
    held: list[Entry] = []
    while returned:
        entry = heappop(returned)
        taker = next(
            (
                consumer
                for consumer in consumers
                if consumer.room() > 0 and not (entry.excluded and consumer in entry.excluded)
            ),
            None,
        )
        if taker is not None:
            consumers.remove(taker)
            consumers.append(taker)
            taker.take([entry])
            continue
        held.append(entry)
        if not any(consumer.room() > 0 for consumer in consumers):
            break
    for entry in held:
        heappush(returned, entry)
    return bool(held) and all(entry.excluded for entry in returned)
