"""Pages of the messages that a queue holds in memory, found in time slices where they are not in order.

Requeued messages, and all messages of a sorted queue, are in a heap. Finding a page in it requires a scan of every
message, a tenth of a second for a million. Core only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nsmallest

from ..messages.entry import Entry
from ..messages.message_times import due_us_of
from ..scheduling.background import BackgroundWork
from .contents import QueueContents

LOOK_AT_ONCE = 1024
"""The number of messages that are scanned between two looks at the clock."""
_NO_POSITION = 1 << 80
Then = Callable[[list[Entry]], None]


class ScheduledView:
    """The messages of a queue that wait for their delivery time, as `turn_page` looks at them."""

    def __init__(self, contents: QueueContents, wall_us: Callable[[], int]) -> None:
        """*wall_us*: returns the time in microseconds since 1970."""
        self._contents = contents
        self._wall_us = wall_us

    @property
    def unordered_count(self) -> int:
        return len(self._contents.delayed)

    def in_memory(self, after: int, most: int) -> list[Entry]:
        return nsmallest(most, (one for one in self.unordered() if one.position > after and not self.is_away(one)))

    def unordered(self) -> list[Entry]:
        return [*self._contents.delayed]

    def is_away(self, entry: Entry) -> bool:
        return entry.is_dequeued or entry not in self._contents.delayed or due_us_of(entry) <= self._wall_us()

    def with_ready(self, found: list[Entry], after: int, most: int) -> list[Entry]:
        return found


ContentsView = QueueContents | ScheduledView
"""Messages that can be looked at in pages."""


def turn_page(background: BackgroundWork, contents: ContentsView, after: int, most: int, user: str, then: Then) -> None:
    """Pass the result of `contents.in_memory` to *then*: at once, or in later turns of *user* if that takes long."""
    if contents.unordered_count <= LOOK_AT_ONCE:
        then(contents.in_memory(after, most))
        return
    search = _search(contents, after, most)

    def look() -> None:
        for page in search:
            if page is not None:
                then(page)
            elif not background.has_time():
                background.put_off(look, user)
                return

    look()


def _search(contents: ContentsView, after: int, most: int) -> Iterator[list[Entry] | None]:
    """Yield None after each part of the search for a page, and then the page."""
    found: list[Entry] = []
    limit = _NO_POSITION
    """The position before which the page ends."""
    entries = contents.unordered()
    for start in range(0, len(entries), LOOK_AT_ONCE):
        near = [entry for entry in entries[start : start + LOOK_AT_ONCE] if after < entry.position < limit]
        found += [entry for entry in near if not contents.is_away(entry)]
        if len(found) > most + LOOK_AT_ONCE:
            found.sort(key=_position)
            limit = found[most].position
            del found[most:]
        yield None
    found.sort(key=_position)
    yield contents.with_ready([entry for entry in found[:most] if not contents.is_away(entry)], after, most)


def merged(page: list[Entry], other: list[Entry], end: int | None, most: int) -> list[Entry]:
    """Return the first *most* messages of both lists by position, up to *end*; None: no message follows *page*."""
    near = [entry for entry in other if end is None or entry.position <= end]
    return sorted([*page, *near], key=_position)[:most] if near else page


def _position(entry: Entry) -> int:
    return entry.position
