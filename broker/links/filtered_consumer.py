"""Receivers with a selector: consumers and browsers that get only the messages for which it is true.

A selecting consumer does not take turns with the others. It scans the queue by itself, as a browser does, and acquires
messages at any position. It keeps the position up to which it has scanned, so that each message is evaluated once;
messages that are requeued before that position are evaluated again. Other messages are not moved.

The backlog is read page by page, and only acquired messages are kept. Selectors are evaluated in time slices, in which
users take turns (`background`). If a selector exceeds its budget for a message, the link is closed with an error, and
the message is not acquired.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from ...amqp.codec.filters import accepted, parse
from ...amqp.ports import Forward, TerminalEnd
from ...base.errors import CairnError
from ..contents.ports import LinkErrors
from ..kernel.context import CoreContext
from ..kernel.loader import BATCH_BYTES, BEGINNING_BYTES, Loaded
from ..messages.backlog import Page
from ..messages.entry import Entry, HeldContent
from ..queues.queue import Queue
from ..selector.compiler import Selector, selector
from ..selector.properties import OverBudget
from .browser import PAGE_MESSAGES, Browser
from .consumer import Consumer
from .consumer_states import DRAINING, ENDED, ConsumerEvent
from .context import LinkContext

log = logging.getLogger(__name__)

JUDGE_AT_ONCE = 512
"""The maximum number of messages evaluated before others get their turn on the core; time usually ends it before."""
BEGINNINGS_AT_ONCE = 16
"""The number of long messages whose beginnings are read at once to be evaluated."""


def asked_for(encoded: bytes) -> tuple[Selector | None, bytes]:
    """Return the selector in a source's filter set, and the applied filters, to be confirmed.

    Raises `Malformed` or `SelectorError`.
    """
    filters = parse(encoded)
    return (None if filters.selector is None else selector(filters.selector)), accepted(filters)


class SelectorFilter:
    """Applies a selector to entries; the beginnings of long messages are read for it."""

    def __init__(
        self, core: CoreContext, selector: Selector, go_on: Callable[[], None], queue: Queue | None
    ) -> None:
        """*go_on* is called when something was read that was asked for, which is counted in the memory of *queue*.

        Without it, messages are judged as they were sent, without their deliveries, and beginnings are read singly.
        """
        self._queue = queue
        self._core = core
        self._selector = selector
        self._go_on = go_on
        self._read: dict[int, bytes | CairnError] = {}
        self.read_bytes = 0
        """The memory of beginnings that are read, or were read and not judged."""
        self.reading = False

    def wants(self, entry: Entry) -> bool:
        """Return whether the selector is true for *entry*, which must be `ready`. Raises `OverBudget`."""
        content = entry.content
        if isinstance(content, HeldContent):
            content = content.beginning(BEGINNING_BYTES)
        elif content is None:
            read = self._read.pop(entry.message_id)
            if not self._read:
                self._count(0)
            if isinstance(read, CairnError):
                return False
            content = read
        assert isinstance(content, bytes)
        if entry.previously_delivered and self._queue is not None:
            marked = entry.marked(content, 0)
            assert isinstance(marked, bytes)
            content = marked
        return self._selector.matches(content)

    def ready(self, entry: Entry) -> bool:
        return entry.content is not None or entry.message_id in self._read

    def prepare(self, entries: Sequence[Entry]) -> None:
        """Load the missing contents of *entries*, the first of which is not ready."""
        ids = [entry.message_id for entry in entries if entry.content is None][:BEGINNINGS_AT_ONCE]
        if self._queue is None or not self._queue.memory.may_select():
            del ids[1:]
        self.reading = True
        self._count(len(ids) * BEGINNING_BYTES)
        self._core.loader.load_beginnings(ids, lambda found: self._loaded(ids, found))

    def _loaded(self, ids: list[int], found: list[bytes | CairnError]) -> None:
        self.reading = False
        if self.read_bytes:
            self._read = dict(zip(ids, found, strict=True))
        self._go_on()

    def _count(self, size_bytes: int) -> None:
        """Count *size_bytes* in the memory budget for beginnings from now on."""
        if self._queue is not None and size_bytes != self.read_bytes:
            count_read(self._core, self._queue, size_bytes - self.read_bytes)
        self.read_bytes = size_bytes

    def close(self) -> None:
        """Forget what was read; it is read again if it is still needed."""
        self._read = {}
        self._count(0)


def count_read(core: CoreContext, queue: Queue, size_bytes: int) -> None:
    """Count memory that is read for a selector of *queue*; negative if it is released, for which others may wait."""
    queue.memory.count_read(size_bytes)
    if size_bytes < 0 and queue in core.memory.starved_selections:
        core.schedule_dispatch(queue)


def refuse(terminal: LinkErrors, queue_name: str, entry: Entry, error: OverBudget) -> None:
    """Close a link whose selector can't be applied to *entry*."""
    reason = f"queue {queue_name!r}: the selector can't be applied to message {entry.message_id}: {error}"
    log.warning("%s; its link is closed", reason, extra={"event": "link.selector-failed", "queue": queue_name})
    terminal.failure("amqp:resource-limit-exceeded", reason)


class FilteredConsumer(Consumer):
    """Takes the messages that its selector is true for."""

    def __init__(
        self,
        links: LinkContext,
        terminal: TerminalEnd,
        queue: Queue,
        *,
        presettled: bool,
        selector: Selector,
        user: str = "",
    ) -> None:
        self._judge = SelectorFilter(links.core, selector, self.look, queue)
        self._seen = 0
        """The position up to which `ready` was looked through, and the backlog read."""
        self._waiting: deque[Entry] = deque()
        """Entries to judge first: requeued ones, and those read from the backlog."""
        self._left = 0
        """The number of entries that may still be judged in this portion."""
        self._reading = False
        self._posted = False
        self._is_starved = False
        """Memory is missing to read on."""
        self._page_first = 0
        """The position of the first message of the last page that was read."""
        self._page_bytes = 0
        """The memory of that page, which is not on the queue, until all of it was judged."""
        super().__init__(links, terminal, queue, presettled=presettled, user=user)

    def _join(self) -> None:
        self._waiting.extend(sorted(self._queue.contents.returned, key=lambda entry: entry.position))
        self._queue.browsers.append(self)
        self._queue.selecting.append(self)

    def leave(self) -> None:
        self._waiting.clear()
        self._count_page(0)
        self._judge.close()
        self._queue.memory.selection_ends()
        if self in self._queue.selecting:
            self._queue.selecting.remove(self)
            self._queue.browsers.remove(self)

    def _drain(self) -> None:
        self.look()

    def _progress(self) -> tuple[int, ...]:
        return *super()._progress(), self._queue.memory.reads

    def _lacks_memory(self) -> bool:
        return self._is_starved and not self._posted and not self._busy()

    def look_again(self, entry: Entry) -> None:
        if self._waiting and entry < self._waiting[-1]:
            insort(self._waiting, entry)
        else:
            self._waiting.append(entry)

    def room(self) -> int:
        return 0 if self._queue.policy.paused else super().room()

    def look(self) -> None:
        """Something may be new, or wanted: judge a portion."""
        if self._state in ENDED or self._posted or self._busy() or (self._queue.is_paused and self._queue.depth):
            return
        self._left = JUDGE_AT_ONCE if self._core.background.has_time() else 0
        self._is_starved = False
        taken: list[Entry] = []
        room = self.room()
        done = room <= 0
        if room > 0:
            done = self._look_at_waiting(taken, room) and self._look_at_ready(taken, room) and self._look_at_backlog()
            if taken:
                self._queue.memory.count_selected(sum([entry.held_bytes for entry in taken]))
                self.take(taken)
            if done:
                self._judge.close()
        self._end_page()
        if done or self.room() <= 0:
            self._handle(ConsumerEvent.DISPATCHED)
        elif not self._left:
            self._posted = True
            self._core.background.put_off(self._look_on, self._user)
        elif self._is_starved and self._state is DRAINING:
            self._wait_for_memory()  # otherwise messages that are being read come first

    def _end_page(self) -> None:
        """Release the page if all of it was judged. Without credit for more of it, drop it if it has no use.

        It has no use if other consumers have read its messages, too, or if selecting consumers hold too much memory.
        """
        if self._reading:
            return
        if not self._waiting:
            self._count_page(0)
        if (self._page_bytes or self._judge.read_bytes) and self.room() <= 0:
            contents = self._queue.contents
            is_passed = not contents.backlog.count or contents.backlog.first > self._seen
            if (self._page_bytes and is_passed) or not contents.memory.may_select():
                self._drop_page(set(contents.returned))

    def _drop_page(self, returned: set[Entry]) -> None:
        """Forget the rest of the page, which is read again later, except for messages in *returned*."""
        dropped = [entry for entry in self._waiting if entry.position >= self._page_first and entry not in returned]
        if dropped:
            self._waiting = deque(sorted({*self._waiting} - {*dropped}))
            self._seen = min(self._seen, min(dropped).position - 1)
        self._judge.close()
        self._count_page(0)

    def _count_page(self, size_bytes: int) -> None:
        """Count *size_bytes* in the memory budget for the page from now on."""
        if size_bytes != self._page_bytes:
            count_read(self._core, self._queue, size_bytes - self._page_bytes)
            self._page_bytes = size_bytes

    def _busy(self) -> bool:
        return self._reading or self._judge.reading

    def _look_on(self) -> None:
        self._posted = False
        self.look()

    def _look_at_waiting(self, taken: list[Entry], room: int) -> bool:
        """Evaluate waiting messages; return whether none is left, with room for more."""
        queue, waiting = self._queue, self._waiting
        contents = queue.contents
        while waiting and self._left and len(taken) < room:
            entry = waiting[0]
            if contents.backlog.first <= entry.position < contents.reader.end:
                return False  # it is being read for others
            if not self._judge.ready(entry):
                self._judge.prepare(list(islice(waiting, JUDGE_AT_ONCE)))
                return False
            waiting.popleft()
            if self._wants(entry):
                found = contents.take_out(entry)
                if found is not None:
                    taken.append(found)
        return not waiting and len(taken) < room

    def _look_at_ready(self, taken: list[Entry], room: int) -> bool:
        ready = self._queue.contents.ready
        place = self._queue.contents.ready_after(self._seen)
        while place < len(ready) and self._left and len(taken) < room:
            entry = ready[place]
            if not self._judge.ready(entry):
                self._judge.prepare(list(islice(ready, place, place + JUDGE_AT_ONCE)))
                return False
            self._seen = entry.position
            if self._wants(entry):
                del ready[place]
                taken.append(entry)
            else:
                place += 1
        return place >= len(ready) and len(taken) < room

    def _look_at_backlog(self) -> bool:
        """Start to read the next page of the backlog; return True at its end.

        All messages before it have been judged, so beginnings that are left are of messages that others acquired, or
        that are not for this consumer.
        """
        self._judge.close()
        if self._seen + 1 < self._queue.contents.reader.end:
            return False
        backlog = self._queue.contents.backlog
        if self._seen + 1 >= backlog.first + backlog.count:
            return True
        if not self._queue.memory.may_select():
            self._is_starved = True
            self._core.memory.starved_selections[self._queue] = None
            return False
        page = backlog.page(self._seen, PAGE_MESSAGES)
        self._reading = True
        self._page_first = page.first
        self._count_page(BATCH_BYTES)
        self._queue.contents.reader.load(page, lambda contents: self._read(page, contents))
        return False

    def _wants(self, entry: Entry) -> bool:
        self._left -= 1
        if entry.is_dequeued or self in (entry.excluded or ()) or not self._queue.contents.is_timely(entry):
            return False
        try:
            wanted = self._judge.wants(entry)
        except OverBudget as error:
            self._left = 0
            self._handle(ConsumerEvent.REFUSE)
            refuse(self.terminal, self._queue.name, entry, error)
            return False
        if not self._core.background.has_time():
            self._left = 0
        return wanted

    def _read(self, page: Page, contents: list[Loaded]) -> None:
        """Take over the entries of a page that was read, including those that moved into memory meanwhile."""
        self._reading = False
        if self not in self._queue.selecting:
            return
        entries, done = self._queue.contents.reader.entries_of(page, contents)
        if self._queue.contents.backlog.first <= page.first:
            self._waiting = deque(sorted((*self._waiting, *entries))) if self._waiting else deque(entries)
            self._seen = page.first + done - 1
            self._count_page(sum([entry.held_bytes for entry in entries]))
        else:
            self._count_page(0)
        self.look()


class FilteredBrowser(Browser):
    """Looks at the messages that its selector is true for."""

    def __init__(
        self, core: CoreContext, terminal: TerminalEnd, queue: Queue, selector: Selector, user: str = ""
    ) -> None:
        """*user*: the user whose turns the evaluation and the reading use."""
        super().__init__(core, terminal, queue, user)
        self._judge = SelectorFilter(core, selector, self.look, queue)
        self._posted = self._is_refused = False

    def look(self) -> None:
        if self._posted or self._is_refused or self._is_full or self._judge.reading or self not in self._queue.browsers:
            return
        is_over = self._send_portion()
        if not self._page or (self.room() <= 0 and not self._queue.contents.memory.may_select()):
            self._judge.close()
        if is_over and self._draining and not self._reading and not self._judge.reading:
            self._draining = False
            self.terminal.drained(self._spend(self._limit))

    def _send_portion(self) -> bool:
        """Send copies that the selector matches; return whether nothing else is to be judged or sent now."""
        background = self._core.background
        messages: list[Forward] = []
        left = JUDGE_AT_ONCE if background.has_time() else 0
        size_bytes = 0
        room, most_bytes = self.room(), self._sent_ahead.room_bytes
        while left and len(messages) < room and size_bytes < most_bytes and (self._page or self._turn_page()):
            if not self._judge.ready(self._page[0]):
                self._judge.prepare(list(self._page))
                break
            entry = self._page.popleft()
            wanted = self._wants(entry)
            if self._is_refused:
                break
            left = left - 1 if background.has_time() else 0
            if wanted and not entry.is_dequeued:
                messages.append(self._copy_of(entry))
                size_bytes += entry.held_bytes
        if messages and not self._forward(messages, size_bytes, entry):
            return False
        if not left:
            self._posted = True
            background.put_off(self._look_later, self._user)
        return bool(left)

    def _wants(self, entry: Entry) -> bool:
        """Return whether the selector matches *entry*; close the link if it exceeds its budget."""
        try:
            return self._judge.wants(entry)
        except OverBudget as error:
            self._is_refused = True
            refuse(self.terminal, self._queue.name, entry, error)
            return False

    def _look_later(self) -> None:
        self._posted = False
        self.look()

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        super().close(returned, lost, for_good)
        self._judge.close()
