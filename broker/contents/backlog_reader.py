"""Reads messages of a backlog from the disk into memory, a page at a time. Core only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from ...base.errors import CairnError
from ...store.contract.interface import MessageStore
from ..kernel.loader import BATCH_MESSAGES, Beginning, Loaded, Loader
from ..kernel.memory_budget import ENTRY_BYTES
from ..kernel.queue_memory import QueueMemory
from ..messages.backlog import Backlog, Page
from ..messages.entry import Entry
from ..messages.message_times import TimedEntry, times_of
from .policy import Policy

_NOT_LOADED = object()
_Then = Callable[[Page, list[Entry], int], None]
"""Gets a page, its messages, and the number of its places that these cover."""


class ReadQueue(Protocol):
    """A queue, as far as reading its messages needs it."""

    name: str
    policy: Policy

    def mark(self, entry: Entry) -> None:
        """Mark a message that was read as previously delivered."""

    def begin_timing(self) -> None:
        """Create the expiry of the queue for a message that was read."""


class ContentsParts(Protocol):
    """The contents of a queue, as their reader and their expiry see them."""

    ready: deque[Entry]
    returned: list[Entry]
    delayed: dict[Entry, None]
    backlog: Backlog
    delivered_below: int
    memory: QueueMemory

    @property
    def reader(self) -> BacklogReader: ...

    @property
    def expiry(self) -> object | None: ...

    @property
    def give_back(self) -> Callable[[Entry], None]:
        """Return what puts a message back to its place."""


class BacklogReader:
    """The reader of the backlog of one queue."""

    def __init__(self, loader: Loader, store: MessageStore, queue: ReadQueue, contents: ContentsParts) -> None:
        self.end = 0
        """The position behind the page that is being read, or 0: no message before it is removed meanwhile."""
        self._page: Page | None = None
        """The page of the backlog that is being read."""
        self._loader = loader
        self._store = store
        self._queue = queue
        self._contents = contents

    @property
    def is_reading(self) -> bool:
        return self._page is not None

    def cancel(self) -> None:
        """Ignore the result of the read that is under way, as the backlog changed."""
        self._page, self.end = None, 0

    def read_first(self, then: _Then) -> None:
        """Read the first page of the backlog; *then* gets it, its messages, and the number of their places.

        No message of it is removed meanwhile. Not to be called while another page is being read.
        """
        assert self._page is None
        backlog = self._contents.backlog
        self._page = page = backlog.page(backlog.first - 1, BATCH_MESSAGES)
        self.end = page.first + len(page.ids)
        self.load(page, lambda contents: self._read_first(page, contents, then))

    def load(self, page: Page, then: Callable[[list[Loaded]], None]) -> None:
        """Load the contents of *page*, as many as fit into a batch; *then* gets them, on the core."""
        self._loader.load(page.stored, self._contents.expiry is not None, then)

    def entries_of(self, page: Page, contents: Sequence[Loaded]) -> tuple[list[Entry], int]:
        """Return the messages of *page*, as far as *contents* go, and the number of its places that these cover.

        Unreadable messages are reported and omitted.
        """
        entries: list[Entry] = []
        loaded = iter(contents)
        delivered_below = self._contents.delivered_below
        done = 0
        for position, message_id in enumerate(page.ids, page.first):
            if not message_id:
                held = page.held.get(position)
                if held is None:  # a gap
                    done += 1
                    continue
                entry = held
            else:
                content = next(loaded, _NOT_LOADED)
                if type(content) is bytes:
                    entry = Entry(message_id, position, content, len(content) + ENTRY_BYTES)
                elif content is None or type(content) is Beginning:
                    entry = Entry(message_id, position, None, ENTRY_BYTES)
                elif content is _NOT_LOADED:
                    break
                else:
                    assert isinstance(content, CairnError)
                    done += 1
                    if self._store.holds(message_id):  # else it was dequeued while a browser read it
                        self._loader.set_aside(self._queue.name, message_id, content)
                    continue
                recovered = message_id < delivered_below
                if recovered or self._contents.expiry is not None:
                    entry = self._with_times(entry, content)
                if recovered:
                    self._queue.mark(entry)
            entries.append(entry)
            done += 1
        return entries, done

    def leave_out(self, page: Page, entries: Sequence[Entry]) -> None:
        """Remove the first page from the backlog: *entries* were read from it, and are held from now on."""
        memory = self._contents.memory
        self._contents.backlog.drop(page)
        memory.hold(sum([entry.held_bytes for entry in entries]))
        memory.release(sum([entry.held_bytes for entry in page.held.values()]))  # they were counted before

    def _with_times(self, entry: Entry, content: object) -> Entry:
        """Return *entry*, or a timed one in its place if its message has times."""
        start = content.content if isinstance(content, Beginning) else content
        times = times_of(start, self._queue.policy.message_ttl_ms) if isinstance(start, bytes) else None
        if times is not None:
            self._queue.begin_timing()
            entry = TimedEntry(entry.message_id, entry.position, entry.content, entry.held_bytes, times)
        if isinstance(content, Beginning):
            entry.first_bytes = content.content
        return entry

    def _read_first(self, page: Page, contents: list[Loaded], then: _Then) -> None:
        if self._page is not page:  # the queue was purged meanwhile
            return
        self.cancel()
        backlog = self._contents.backlog
        page = backlog.page(page.first - 1, len(page.ids))  # again, with messages that were requeued meanwhile
        entries, done = self.entries_of(page, contents)
        then(page, entries, done)
