"""Browsers: drivers of channels on which a client looks at a queue's messages, and takes none."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..channel.words import Forward, Outcome, TerminalEnd
from .backlog import Page
from .consumer import Receiving
from .entry import Entry, LookedAtContent
from .queue import Queue
from .reading import Loaded

if TYPE_CHECKING:
    from .broker import Broker

PAGE_MESSAGES = 512
"""A browser holds no more than this of a queue, however deep it is."""


class Browser(Receiving):
    """Looks at a queue's messages in order, page by page (distribution mode `copy`).

    A page comes from memory, or is read from the backlog. What comes back behind the page that was turned is not seen.
    """

    def __init__(self, broker: Broker, terminal: TerminalEnd, queue: Queue) -> None:
        super().__init__(broker, terminal, queue)
        self._seen = 0
        """The position up to which pages were turned."""
        self._ahead: deque[Entry] = deque()
        self._reading = False
        self._draining = False
        queue.browsers.append(self)

    def request(self, limit: int, drain: bool) -> None:
        self._limit = limit
        self._draining = drain
        self.look()

    def look(self) -> None:
        """Something may be new."""
        store = self._broker.store
        messages: list[Forward] = []
        while len(messages) < self.room() and (self._ahead or self._turn_page()):
            entry = self._ahead.popleft()
            if not entry.gone:
                content = entry.outgoing(store)
                if not isinstance(content, bytes):
                    content = LookedAtContent(store, entry.message_id, content)
                messages.append((entry, content))
        if messages:
            self._forward(messages)
        if self._draining and not self._reading:
            self._draining = False
            self.terminal.drained(self._spend(self._limit))

    def _turn_page(self) -> bool:
        """Whether there is a next page now; it may also be on its way."""
        if self._reading:
            return False
        self._ahead.extend(self._queue.in_memory(self._seen, PAGE_MESSAGES))
        if self._ahead:
            self._seen = self._ahead[-1].position
            return True
        page = self._queue.backlog.page(self._seen, PAGE_MESSAGES)
        if page.ids:
            self._reading = True
            self._broker.reader.load(self._queue, page.stored, lambda contents: self._read(page, contents))
        return False

    def _read(self, page: Page, contents: list[Loaded]) -> None:
        self._reading = False
        entries, done = self._broker.reader.entries(page, contents, self._queue)
        self._ahead.extend(entries)
        self._seen = page.first + done - 1
        if self in self._queue.browsers:
            self.look()

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """The message stays where it is, whatever the client says of its copy."""
        settle = [(outcome.delivery, outcome.state) for outcome in outcomes if outcome.delivery is not None]
        if settle:
            self.terminal.settle(settle)

    def outcomes_in(self, connection: object, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        """The same, whatever becomes of the transaction."""
        settle = [
            (one.delivery, one.state, one.tag) for _, one in provisional if one.delivery is not None and one.state
        ]
        if settle:
            self.terminal.settle_in(settle, lambda: None)

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        if self in self._queue.browsers:
            self._queue.browsers.remove(self)
