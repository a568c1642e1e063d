"""The part of a queue that is not in memory: the ID of each message, 8 bytes, in order.

A backlog is behind a queue's ready messages. Its positions are contiguous, so the place of a message determines its
position. Some messages cannot be read back (transient ones), and some need not be (those that arrive while the last of
the backlog is being read): the ID 0 keeps their place, and they are held separately, by position. A message that is
removed from the middle leaves a gap, an ID 0 without an entry: 8 bytes, until all before it are removed.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from .entry import Entry

CHUNK_MESSAGES = 8192
"""The number of IDs in a chunk, whose memory is freed together."""


class Page(NamedTuple):
    """Messages that stand side by side in a backlog."""

    first: int
    """The position of the first message in the backlog."""
    ids: array[int]
    """The IDs of messages; 0 for those held in memory, and for gaps."""
    held: dict[int, Entry]
    """The held messages, by position."""

    @property
    def stored(self) -> array[int]:
        """The ids of the messages to be read."""
        return array("Q", filter(None, self.ids))

    def cut(self, count: int) -> Page:
        """Return the page of the first *count* positions."""
        end = self.first + count
        held = {position: entry for position, entry in self.held.items() if position < end}
        return Page(self.first, self.ids[:count], held)


class Backlog:
    """Message ids by position. Core only."""

    def __init__(self) -> None:
        self.count = 0
        """The number of positions: messages and holes. The first one is not a hole."""
        self.holes = 0
        self.stored = 0
        """The number of messages that have to be read."""
        self.first = 1
        """The position of the first message."""
        self.held_bytes = 0
        """The memory of the messages that are held."""
        self.held: dict[int, Entry] = {}
        """The messages that are in memory, by position."""
        self._chunks: list[array[int]] = []
        self._begin = 1
        """The position of the first id of the first chunk: all chunks but the last one are full."""

    def extend(self, position: int, ids: Sequence[int]) -> None:
        """Add messages that have to be read, from *position* on, right behind the last one."""
        self.stored += len(ids)
        self._extend(position, ids)

    def hold(self, entry: Entry) -> None:
        """Add a message that is in memory, right behind the last one."""
        self._extend(entry.position, (0,))
        self.held[entry.position] = entry
        self.held_bytes += entry.held_bytes

    def leave_hole(self, position: int) -> None:
        """Leave a hole behind the last message, for a message that is not on the queue now."""
        if self.count:
            self._extend(position, (0,))
            self.holes += 1

    def highest_id(self) -> int:
        """Return an id that no message to be read exceeds, or 0. Takes 20 ms for a million messages."""
        return max((max(chunk, default=0) for chunk in self._chunks), default=0) if self.count else 0

    def restore(self, position: int, ids: Sequence[int], held: Mapping[int, Entry]) -> None:
        """Put messages behind all that are here, and holes up to *position*: 0 is one of *held*, or a hole."""
        if self.count:
            gap = position - self.first - self.count
            self.holes += gap
            self._extend(self.first + self.count, array("Q", bytes(8 * gap)))
        else:
            skipped = next((at for at, id_ in enumerate(ids) if id_ or position + at in held), len(ids))
            position, ids = position + skipped, ids[skipped:]
        if not ids:
            return
        unstored = sum([not id_ for id_ in ids])
        self.stored += len(ids) - unstored
        self.holes += unstored - len(held)
        self.held.update(held)
        self.held_bytes += sum([entry.held_bytes for entry in held.values()])
        self._extend(position, ids)

    def page(self, after: int, most: int) -> Page:
        """Return up to *most* messages with positions above *after*, without removing them."""
        first = max(after + 1, self.first)
        ids = array("Q")
        at = first - self._begin
        end = min(at + most, self.first + self.count - self._begin)
        while at < end:
            number, place = divmod(at, CHUNK_MESSAGES)
            ids += self._chunks[number][place : place + end - at]
            at = first - self._begin + len(ids)
        held = self.held
        if not held:
            return Page(first, ids, {})
        there = {position: held[position] for position, id_ in enumerate(ids, first) if not id_ and position in held}
        return Page(first, ids, there)

    def drop(self, page: Page) -> None:
        """Take off *page*, which must be the first one."""
        assert page.first == self.first
        for position in page.held:
            self.held_bytes -= self.held.pop(position).held_bytes
        unstored = page.ids.count(0)
        self.stored -= len(page.ids) - unstored
        self.holes -= unstored - len(page.held)
        self._advance(len(page.ids))
        self._pass_holes()

    def take_held(self) -> list[Entry]:
        """Take off the messages that are in memory, up to the first one that is not."""
        taken: list[Entry] = []
        while self.first in self.held:
            entry = self.held.pop(self.first)
            self.held_bytes -= entry.held_bytes
            taken.append(entry)
            self._advance(1)
            self._pass_holes()
        return taken

    def take_out(self, position: int) -> tuple[bool, Entry | None]:
        """Remove a message from the middle: return whether it was there, and its entry if it was in memory."""
        entry = self.held.pop(position, None)
        if entry is not None:
            self.held_bytes -= entry.held_bytes
        elif self._stored_at(position):
            chunk, place = self._place(position)
            chunk[place] = 0
            self.stored -= 1
        else:
            return False, None
        self.holes += 1
        self._pass_holes()
        return True, entry

    def put_back(self, entry: Entry) -> None:
        """Put a message that was taken out of the middle into its hole, to be held in memory."""
        self.holes -= 1
        self.held[entry.position] = entry
        self.held_bytes += entry.held_bytes

    def _stored_at(self, position: int) -> int:
        """Return the ID of the message at *position* if it must be read, else 0."""
        if not self.first <= position < self.first + self.count:
            return 0
        chunk, place = self._place(position)
        return chunk[place]

    def _place(self, position: int) -> tuple[array[int], int]:
        number, place = divmod(position - self._begin, CHUNK_MESSAGES)
        return self._chunks[number], place

    def _pass_holes(self) -> None:
        while self.holes and self.first not in self.held and not self._stored_at(self.first):
            self.holes -= 1
            self._advance(1)

    def _extend(self, position: int, ids: Sequence[int]) -> None:
        if not self.count:
            self._chunks.clear()
            self.first = self._begin = position
        assert position == self.first + self.count
        self.count += len(ids)
        chunks = self._chunks
        done = 0
        if chunks:
            done = CHUNK_MESSAGES - len(chunks[-1])
            chunks[-1].extend(islice(ids, done))
        for at in range(done, len(ids), CHUNK_MESSAGES):
            chunks.append(array("Q", ids[at : at + CHUNK_MESSAGES]))

    def _advance(self, count: int) -> None:
        self.first += count
        self.count -= count
        passed = (self.first - self._begin) // CHUNK_MESSAGES
        if passed:
            del self._chunks[:passed]
            self._begin += passed * CHUNK_MESSAGES
