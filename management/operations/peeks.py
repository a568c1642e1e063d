"""The PEEK operation: returns the messages of a queue, a page at a time, without acquiring them.

The reader's thread reads and decodes a page; the core only selects its messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...broker.contents.paging import turn_page
from ...broker.kernel.context import CoreContext
from ...broker.kernel.loader import Loaded
from ...broker.messages.backlog import Page
from ...broker.messages.entry import Entry
from ...broker.nodes.access_control import BROWSE
from ...broker.queues.views import BrowsedQueue
from ..protocol.call import Call
from ..protocol.entity import Operation, Type
from ..protocol.request import number, only
from .message_description import described, peeked

MOST_MESSAGES = 1000
MOST_BODY_BYTES = 64 << 10


class PeekOperation:
    """The operation PEEK of queues. Core only."""

    def __init__(self, core: CoreContext) -> None:
        self._core = core

    def operation(self, of: Type) -> Operation:
        return Operation(
            "PEEK", ("after", "count", "body-bytes"),
            "Returns up to `count` (100 by default) messages behind the position `after`, in order. `body-bytes` adds "
            "up to that many bytes of each body. `next` is the `after` of the next page, null at the end.",
            partial(self._peek, of),
        )  # fmt: skip

    def _peek(self, of: Type, call: Call) -> None:
        asked = call.request.map()
        only(asked, "after", "count", "body-bytes")
        after = number(asked, "after", 0, 1 << 62)
        most = number(asked, "count", 100, MOST_MESSAGES, 1)
        body_bytes = number(asked, "body-bytes", 0, MOST_BODY_BYTES)
        queue: BrowsedQueue = of.wanted(call, BROWSE)
        user = call.link.wish.user
        looked = partial(self._looked, call, queue, after, most, body_bytes)
        turn_page(self._core.background, queue.contents, after, most, user, looked)

    def _looked(
        self, call: Call, queue: BrowsedQueue, after: int, most: int, body_bytes: int, entries: list[Entry]
    ) -> None:
        if entries:
            self._tell(call, entries, body_bytes)
            return
        page = queue.contents.backlog.page(after, most)
        if not page.ids:
            call.answer({"messages": [], "next": None})
        else:
            queue.contents.reader.load(page, partial(self._read, call, queue, page, body_bytes))

    def _read(self, call: Call, queue: BrowsedQueue, page: Page, body_bytes: int, contents: list[Loaded]) -> None:
        entries, done = queue.contents.reader.entries_of(page, contents)
        if entries:
            self._tell(call, entries, body_bytes)
        else:  # gaps, or they were dequeued meanwhile, or are unreadable
            call.answer({"messages": [], "next": page.first + done - 1})

    def _tell(self, call: Call, entries: Sequence[Entry], body_bytes: int) -> None:
        store = self._core.store
        seen = [peeked(entry, store) for entry in entries if not entry.gone]
        work = partial(described, store, seen, body_bytes)
        self._core.loader.ask(work, call.answer_encoded)
