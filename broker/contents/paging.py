"""Pages of the messages that a queue holds in memory, found in time slices where they are not in order.

Requeued messages, and all messages of a sorted queue, are in a heap. Finding a page in it requires a scan of every
message, a tenth of a second for a million. Core only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..messages.entry import Entry
from ..scheduling.background import BackgroundWork
from .ports import ContentsView

LOOK_AT_ONCE = 1024
"""The number of messages that are scanned between two looks at the clock."""
_NO_POSITION = 1 << 80
Then = Callable[[list[Entry]], None]


def turn_page(background: BackgroundWork, contents: ContentsView, after: int, most: int, user: str, then: Then) -> None:
    """Pass the result of `contents.in_memory` to *then*: at once, or in later turns of *user* if that takes long."""
    if contents.unordered_count <= LOOK_AT_ONCE:
        then(contents.in_memory(after, most))
    else:
        _Page(background, contents, after, most, user, then).look()


class _Page:
    """A page that is being searched for."""

    def __init__(
        self, background: BackgroundWork, contents: ContentsView, after: int, most: int, user: str, then: Then
    ) -> None:
        self._background = background
        self._contents = contents
        self._after = after
        self._most = most
        self._user = user
        self._then = then
        self._all: Sequence[Entry] = contents.unordered()
        self._looked = 0
        self._found: list[Entry] = []
        self._limit = _NO_POSITION
        """The position before which the page ends."""

    def look(self) -> None:
        while self._looked < len(self._all):
            self._look_at_some()
            if not self._background.has_time():
                self._background.put_off(self.look, self._user)
                return
        self._cut()
        found = [entry for entry in self._found if not self._contents.is_away(entry)]
        self._then(self._contents.with_ready(found, self._after, self._most))

    def _look_at_some(self) -> None:
        some = self._all[self._looked : self._looked + LOOK_AT_ONCE]
        self._looked += len(some)
        after, limit, is_away = self._after, self._limit, self._contents.is_away
        near = [entry for entry in some if after < entry.position < limit]
        self._found += [entry for entry in near if not is_away(entry)]
        if len(self._found) > self._most + LOOK_AT_ONCE:
            self._cut()

    def _cut(self) -> None:
        self._found.sort(key=_position)
        if len(self._found) > self._most:
            self._limit = self._found[self._most].position
            del self._found[self._most :]


def _position(entry: Entry) -> int:
    return entry.position
