"""The PEEK operation: returns the messages of a queue, a page at a time, without acquiring them.

The reader's thread reads and decodes a page; the core only selects its messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ...broker.contents.paging import ContentsView, ScheduledView, merged, turn_page
from ...broker.kernel.context import CoreContext
from ...broker.kernel.loader import Loaded
from ...broker.messages.backlog import Page
from ...broker.messages.entry import Entry
from ...broker.nodes.access_control import BROWSE
from ...broker.queues.ends import SourceQueue
from ..protocol.call import Call
from ..protocol.entity import Operation, Type
from ..protocol.request import number
from .message_description import described, peeked

MOST_MESSAGES = 1000
MOST_BODY_BYTES = 64 << 10


def peek_operation(core: CoreContext, of: Type) -> Operation:
    """Return the operation PEEK of queues."""
    return Operation(
        "PEEK", ("after", "count", "body-bytes"),
        "Returns up to `count` (100 by default) messages behind the position `after`, in order, including those "
        "that wait for their delivery time. `body-bytes` adds up to that many bytes of each body. `next` is the "
        "`after` of the next page, null at the end.",
        partial(_peek, core, of),
    )  # fmt: skip


def _peek(core: CoreContext, of: Type, call: Call) -> None:
    asked = call.asked()
    after = number(asked, "after", 0, 1 << 62)
    most = number(asked, "count", 100, MOST_MESSAGES, 1)
    body_bytes = number(asked, "body-bytes", 0, MOST_BODY_BYTES)
    queue: SourceQueue = of.wanted(call, BROWSE)
    _Peek(core, call, queue, after, most, body_bytes).begin()


@dataclass(eq=False, repr=False)
class _Peek:
    """One request: finds the scheduled messages, then a page of the others, and merges them by position."""

    _core: CoreContext
    _call: Call
    _queue: SourceQueue
    _after: int
    _most: int
    _body_bytes: int

    def __post_init__(self) -> None:
        self._view = ScheduledView(self._queue.contents, self._core.clock.wall_us)
        self._scheduled: list[Entry] = []

    def begin(self) -> None:
        self._turn_page(self._view, self._schedule_found)

    def _turn_page(self, view: ContentsView, then: Callable[[list[Entry]], None]) -> None:
        turn_page(self._core.background, view, self._after, self._most, self._call.link.attach.user, then)

    def _schedule_found(self, scheduled: list[Entry]) -> None:
        self._scheduled = scheduled
        self._turn_page(self._queue.contents, self._looked)

    def _looked(self, entries: list[Entry]) -> None:
        if entries:
            self._tell(entries, entries[-1].position)
            return
        contents = self._queue.contents
        page = contents.backlog.page(self._after, self._most)
        if page.ids:
            contents.reader.load(page, partial(self._read, page))
        else:
            self._tell([], None)

    def _read(self, page: Page, contents: list[Loaded]) -> None:
        entries, done = self._queue.contents.reader.entries_of(page, contents)
        self._tell(entries, page.first + done - 1)

    def _tell(self, entries: list[Entry], end: int | None) -> None:
        """Answer with *entries*, the page up to the position *end*; None if no message follows."""
        waiting = [entry for entry in self._scheduled if not self._view.is_away(entry)]
        page = merged(entries, waiting, end, self._most)
        if not page:  # with an end: gaps, or they were dequeued meanwhile, or are unreadable
            self._call.answer({"messages": [], "next": end})
            return
        store, now_us = self._core.store, self._core.clock.wall_us()
        seen = [peeked(entry, store, now_us) for entry in page if not entry.is_dequeued]
        work = partial(described, store, seen, self._body_bytes)
        self._core.loader.ask(work, self._call.answer_encoded)
