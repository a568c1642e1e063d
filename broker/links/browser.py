"""Browsers: drivers of channels on which a client reads a queue's messages without acquiring them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from ...amqp.ports import Forward, TerminalEnd
from ..contents.paging import turn_page
from ..kernel.context import CoreContext
from ..kernel.loader import Loaded
from ..messages.backlog import Page
from ..messages.entry import Entry, LookedAtContent
from ..queues.ends import SourceQueue
from .consumer import ReceivingDriver

PAGE_MESSAGES = 512
"""A browser holds no more than this of a queue, however deep it is."""


class Browser(ReceivingDriver):
    """Reads a queue's messages in order, page by page (distribution mode `copy`).

    A page comes from memory, or is read from the backlog. Messages that are requeued behind the browser's position are
    not seen. A message stays on its queue with any outcome.
    """

    def __init__(self, core: CoreContext, terminal: TerminalEnd, queue: SourceQueue, user: str = "") -> None:
        super().__init__(core, terminal, user)
        self._queue = queue
        self._seen = 0
        """The position up to which pages were turned."""
        self._page: deque[Entry] = deque()
        self._reading = False
        self._draining = self._is_turning = self._is_full = False
        queue.browsers.append(self)

    def request(self, limit: int, drain: bool) -> None:
        self._limit = limit
        self._draining = drain
        self.look()

    def look(self) -> None:
        """Something may be new."""
        if self._is_full:
            return
        messages: list[Forward] = []
        size_bytes = 0
        room, most_bytes = self.room(), self._sent_ahead.room_bytes
        while len(messages) < room and size_bytes < most_bytes and (self._page or self._turn_page()):
            entry = self._page.popleft()
            if not entry.is_dequeued:
                messages.append(self._copy_of(entry))
                size_bytes += entry.held_bytes
        if messages and not self._forward(messages, size_bytes, entry):
            return
        if self._draining and not self._reading:
            self._draining = False
            self.terminal.drained(self._spend(self._limit))

    def _forward(self, messages: list[Forward], size_bytes: int, last: Entry) -> bool:
        """Send copies of messages that hold *size_bytes*; return False if the next look is when they were sent.

        The rest of the page behind *last* is dropped then, as it would not count in the memory budget, and read again.
        """
        self._forwarded += len(messages)
        self.terminal.forward(messages)
        self._is_full = not self._sent_ahead.add(size_bytes, self._look_on)
        if self._is_full:
            self._page.clear()
            self._seen = last.position
        return not self._is_full

    def _look_on(self) -> None:
        """Look again, as there is room to send more."""
        self._is_full = False
        self.look()

    def _copy_of(self, entry: Entry) -> Forward:
        """Return a copy of a message, which may be dequeued while the copy is sent."""
        store = self._core.store
        content = entry.outgoing(store, self._core.clock.wall_us())
        return entry, content if isinstance(content, bytes) else LookedAtContent(store, entry.message_id, content)

    def _turn_page(self) -> bool:
        """Turn to the next page; return whether it is loaded already. A page that is still being read arrives later."""
        if self._reading:
            return False
        self._reading = self._is_turning = True
        background = self._core.background
        turn_page(background, self._queue.contents, self._seen, PAGE_MESSAGES, self._user, self._turned)
        self._is_turning = False
        return bool(self._page)

    def _turned(self, entries: list[Entry]) -> None:
        """Take the next page of messages in memory; read a page if it is empty."""
        self._reading = False
        if self._is_full:  # it is turned again
            return
        self._page.extend(entries)
        if entries:
            self._seen = entries[-1].position
        else:
            self._read_page()
        if not self._is_turning and self in self._queue.browsers:
            self.look()

    def _read_page(self) -> None:
        page = self._queue.contents.backlog.page(self._seen, PAGE_MESSAGES)
        if page.ids:
            self._reading = True
            self._queue.contents.reader.load(page, lambda contents: self._read(page, contents))

    def _read(self, page: Page, contents: list[Loaded]) -> None:
        self._reading = False
        if self._is_full:  # it is read again
            return
        entries, done = self._queue.contents.reader.entries_of(page, contents)
        self._page.extend(entries)
        self._seen = page.first + done - 1
        if self in self._queue.browsers:
            self.look()

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        self._sent_ahead.close()
        self._page.clear()
        if self in self._queue.browsers:
            self._queue.browsers.remove(self)
