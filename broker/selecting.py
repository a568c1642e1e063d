"""Receivers with a selector: consumers and browsers that get only the messages it is true for.

A selecting consumer does not wait in line with the others: it looks through the queue by itself, as a browser does,
and takes what it wants out of the middle. It remembers how far it has looked, so each message is judged once, however
often it looks; what came back behind its eyes is told to it, and judged again. Messages that it does not want stay
where they are, in nobody's way.

What is in the backlog is read page by page for it, and forgotten unless it is taken. Judging is done in portions, with
other actions of the core in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from ..amqp.filters import accepted, parse
from ..base.errors import CairnError
from ..channel.words import Forward, TerminalEnd
from .backlog import Page
from .browser import PAGE_MESSAGES, Browser
from .consumer import Consumer
from .entry import Entry, HeldContent, LookedAtContent
from .queue import Queue
from .reading import BEGINNING_BYTES, Loaded
from .selector import Selector, selector

if TYPE_CHECKING:
    from .broker import Broker

JUDGE_AT_ONCE = 512
"""Messages that are judged before others get their turn on the core."""
BEGINNINGS_AT_ONCE = 16
"""Long messages, of which the beginnings are read to be judged."""


def asked_for(encoded: bytes) -> tuple[Selector | None, bytes]:
    """The selector in a source's filter set, and the filters that are applied, to be confirmed.

    Raises `Malformed` or `SelectorError`.
    """
    filters = parse(encoded)
    return (None if filters.selector is None else selector(filters.selector)), accepted(filters)


class Judge:
    """Applies a selector to entries; the beginnings of long messages are read for it."""

    def __init__(self, broker: Broker, selector: Selector, go_on: Callable[[], None]) -> None:
        """*go_on* is called when something was read that was asked for."""
        self._broker = broker
        self._selector = selector
        self._go_on = go_on
        self._read: dict[int, bytes | CairnError] = {}
        self.reading = False

    def wants(self, entry: Entry) -> bool:
        """Whether the selector is true for *entry*, which must be `ready`."""
        content = entry.content
        if isinstance(content, HeldContent):
            content = content.beginning(BEGINNING_BYTES)
        elif content is None:
            read = self._read.pop(entry.message_id)
            if isinstance(read, CairnError):
                return False
            content = read
        assert isinstance(content, bytes)
        if entry.acquired:
            marked = entry.marked(content)
            assert isinstance(marked, bytes)
            content = marked
        return self._selector.matches(content)

    def ready(self, entry: Entry) -> bool:
        return entry.content is not None or entry.message_id in self._read

    def prepare(self, entries: Sequence[Entry]) -> None:
        """Read what is missing of *entries*, the first of which is not ready."""
        ids = [entry.message_id for entry in entries if entry.content is None][:BEGINNINGS_AT_ONCE]
        self.reading = True
        self._broker.reader.load_beginnings(ids, lambda found: self._loaded(ids, found))

    def _loaded(self, ids: list[int], found: list[bytes | CairnError]) -> None:
        self.reading = False
        self._read = dict(zip(ids, found, strict=True))
        self._go_on()


class SelectingConsumer(Consumer):
    """Takes the messages that its selector is true for."""

    def __init__(
        self, broker: Broker, terminal: TerminalEnd, queue: Queue, *, presettled: bool, selector: Selector
    ) -> None:
        self._judge = Judge(broker, selector, self.look)
        self._seen = 0
        """The position up to which `ready` was looked through, and the backlog read."""
        self._waiting: deque[Entry] = deque()
        """What is to be judged first: what came back, and what was read of the backlog."""
        self._left = 0
        """How many more are judged in this portion."""
        self._reading = False
        self._posted = False
        super().__init__(broker, terminal, queue, presettled=presettled)

    def _join(self) -> None:
        self._waiting.extend(sorted(self._queue.returned))
        self._queue.browsers.append(self)
        self._queue.selecting.append(self)

    def _leave(self) -> None:
        self._waiting.clear()
        if self in self._queue.selecting:
            self._queue.selecting.remove(self)
            self._queue.browsers.remove(self)

    def _drain(self) -> None:
        self.look()

    def look_again(self, entry: Entry) -> None:
        self._waiting.append(entry)

    def room(self) -> int:
        return 0 if self._queue.policy.paused else super().room()

    # ---- looking --------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Something may be new, or wanted: judge a portion."""
        if self._closed or self._posted or self._busy() or (self._queue.stopped and self._queue.depth):
            return
        self._left = JUDGE_AT_ONCE
        taken: list[Entry] = []
        room = self.room()
        if room > 0:
            done = self._look_at_waiting(taken, room) and self._look_at_ready(taken, room) and self._look_at_backlog()
            if taken:
                self.take(taken)
            if not done and not self._left and self.room() > 0:
                self._posted = True
                self._broker.later(self._look_on)
                return
            if not done and self.room() > 0:
                return  # what is being read comes first
        if self._draining and not self._taking:
            self._draining = False
            self.terminal.drained(self._spend(self._limit))

    def _busy(self) -> bool:
        return self._reading or self._judge.reading

    def _look_on(self) -> None:
        self._posted = False
        self.look()

    def _look_at_waiting(self, taken: list[Entry], room: int) -> bool:
        """Judge what waits; whether that is done, and there is room left."""
        queue, waiting = self._queue, self._waiting
        while waiting and self._left and len(taken) < room:
            entry = waiting[0]
            if queue.backlog.first <= entry.position < queue.reading_end:
                return False  # it is just being read for others
            if not self._judge.ready(entry):
                self._judge.prepare(list(islice(waiting, JUDGE_AT_ONCE)))
                return False
            waiting.popleft()
            if self._wants(entry):
                found = queue.take_out(entry)
                if found is not None:
                    taken.append(found)
        return not waiting and len(taken) < room

    def _look_at_ready(self, taken: list[Entry], room: int) -> bool:
        ready = self._queue.ready
        place = self._queue.ready_after(self._seen)
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
        """Read the next page of the backlog; whether there is none."""
        if self._seen + 1 < self._queue.reading_end:
            return False
        page = self._queue.backlog.page(self._seen, PAGE_MESSAGES)
        if not page.ids:
            return True
        self._reading = True
        self._broker.reader.load(self._queue, page.stored, lambda contents: self._read(page, contents))
        return False

    def _wants(self, entry: Entry) -> bool:
        self._left -= 1
        if entry.gone or (entry.excluded and self in entry.excluded) or not self._queue.is_timely(entry):
            return False
        return self._judge.wants(entry)

    def _read(self, page: Page, contents: list[Loaded]) -> None:
        """What went from the backlog into memory meanwhile is looked for there."""
        self._reading = False
        entries, done = self._broker.reader.entries(page, contents, self._queue)
        if self._queue.backlog.first <= page.first:
            self._waiting.extend(entries)
            self._seen = page.first + done - 1
        self.look()


class SelectingBrowser(Browser):
    """Looks at the messages that its selector is true for."""

    def __init__(self, broker: Broker, terminal: TerminalEnd, queue: Queue, selector: Selector) -> None:
        super().__init__(broker, terminal, queue)
        self._judge = Judge(broker, selector, self.look)
        self._posted = False

    def look(self) -> None:
        if self._posted or self._judge.reading or self not in self._queue.browsers:
            return
        store = self._broker.store
        messages: list[Forward] = []
        left = JUDGE_AT_ONCE
        while left and len(messages) < self.room() and (self._ahead or self._turn_page()):
            if not self._judge.ready(self._ahead[0]):
                self._judge.prepare(list(self._ahead))
                break
            left -= 1
            entry = self._ahead.popleft()
            if self._judge.wants(entry) and not entry.gone:
                content = entry.outgoing(store)
                if not isinstance(content, bytes):
                    content = LookedAtContent(store, entry.message_id, content)
                messages.append((entry, content))
        if messages:
            self._forward(messages)
        if not left:
            self._posted = True
            self._broker.later(self._look_on)
        elif self._draining and not self._reading and not self._judge.reading:
            self._draining = False
            self.terminal.drained(self._spend(self._limit))

    def _look_on(self) -> None:
        self._posted = False
        self.look()
