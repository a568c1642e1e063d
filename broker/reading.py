"""Reading messages back: a thread beside the core loads what is wanted, a batch at a time, and posts it to the core.

The core never waits for the disk here: it says what it wants, and goes on. What can't be read (a rotten record) comes
as the error that says why, and only that message is passed by.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ..base.errors import CairnError
from ..store.interface import MessageStore
from .backlog import Page
from .entry import Entry
from .memory import ENTRY_BYTES
from .times import TimedEntry, times_of

if TYPE_CHECKING:
    from .queue import Queue

log = logging.getLogger(__name__)

BATCH_MESSAGES = 2048
BATCH_BYTES = 1 << 20
"""A batch ends when it has so many messages, or so many bytes of content."""

BEGINNING_BYTES = 64 << 10
"""What stands before the body of a long message is looked for in so much of it."""


class Beginning(NamedTuple):
    """The beginning of a message in several pieces, of which the times are wanted."""

    content: bytes


Loaded = bytes | CairnError | Beginning | None
"""A content; an error if it can't be read; None, or its beginning, if it is in several pieces."""
_NOT_LOADED = object()
_Found = TypeVar("_Found")


class Submit(Protocol):
    """Have something done on the reader's thread, in order."""

    def __call__(self, work: Callable[..., None], /, *args: Any) -> object: ...


class Reader:
    """Loads contents for queues and browsers. Called on the core."""

    def __init__(self, store: MessageStore, submit: Submit, post: Callable[..., None]) -> None:
        self._store = store
        self._submit = submit
        self._post = post
        self.put_off: list[Callable[[], None]] = []
        """What a later step is to do."""
        self.recovered_below = store.durable_lsn
        """Messages with smaller ids were there when the store was opened: the id is the place in the log."""

    def load(self, queue: Queue, ids: array[int], then: Callable[[list[Loaded]], None]) -> None:
        """Load a batch; *then* gets the contents, on the core. There may be fewer than asked for, but not none."""
        timed = queue.timing is not None or (len(ids) > 0 and ids[0] < self.recovered_below)
        self._submit(self._work, lambda: self._load(ids, timed), then)

    def _load(self, ids: array[int], timed: bool) -> list[Loaded]:
        found: list[Loaded] = [*self._store.load_many(ids, BATCH_BYTES)]
        if timed:
            for number, content in enumerate(found):
                if content is None:
                    beginning = self._beginning(ids[number])
                    found[number] = beginning if isinstance(beginning, CairnError) else Beginning(beginning)
        return found

    def load_whole(self, ids: Sequence[int], then: Callable[[list[bytes | CairnError]], None]) -> None:
        """Load contents of any number of pieces, all of them; *then* gets them, on the core."""
        self._submit(self._work, lambda: [self._whole(message_id) for message_id in ids], then)

    def load_beginnings(self, ids: Sequence[int], then: Callable[[list[bytes | CairnError]], None]) -> None:
        """Load the first `BEGINNING_BYTES` of contents; *then* gets them, on the core."""
        self._submit(self._work, lambda: [self._beginning(message_id) for message_id in ids], then)

    def ask(self, work: Callable[[], _Found], then: Callable[[_Found], None]) -> None:
        """Have *work* done beside the core; *then* gets what it returns, on the core."""
        self._submit(self._work, work, then)

    def next_step(self, action: Callable[[], None]) -> None:
        """Have *action* done on the core, in a later step: what this one hands out goes before it."""
        self.put_off.append(action)

    def end_step(self) -> None:
        """A step is over: what was put off comes with one of the next ones, by way of the reader's thread."""
        put_off, self.put_off = self.put_off, []
        for action in put_off:
            self._submit(self._post, action)

    def entries(self, page: Page, contents: Sequence[Loaded], queue: Queue) -> tuple[list[Entry], int]:
        """The messages of *page*, as far as *contents* go, and how many of the page these are.

        Those that can't be read are reported and left out.
        """
        entries: list[Entry] = []
        loaded = iter(contents)
        delivered_below = queue.delivered_below
        done = 0
        for position, message_id in enumerate(page.ids, page.first):
            if not message_id:
                held = page.held.get(position)
                if held is None:  # a hole
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
                    if self._store.holds(message_id):  # else it went while a browser looked
                        self.report(queue.name, message_id, content)
                    continue
                recovered = message_id < delivered_below
                if recovered or queue.timing is not None:
                    entry = _with_times(entry, queue, content)
                if recovered:
                    queue.mark(entry)
            entries.append(entry)
            done += 1
        return entries, done

    def report(self, queue: str, message_id: int, why: object) -> None:
        """A message can't be read, and is passed by."""
        about = {"queue": queue}
        log.error("queue %s: message %d stays in the store, undelivered: %s", queue, message_id, why, extra=about)

    def _beginning(self, message_id: int) -> bytes | CairnError:
        begin = b""
        try:
            for number in range(self._store.piece_count(message_id)):
                begin += self._store.load_piece(message_id, number)
                if len(begin) >= BEGINNING_BYTES:
                    break
        except CairnError as error:
            return error
        except LookupError:
            return CairnError(f"message {message_id}", "it went while it was looked at")
        return begin[:BEGINNING_BYTES]

    def _whole(self, message_id: int) -> bytes | CairnError:
        try:
            pieces = range(self._store.piece_count(message_id))
            return b"".join(self._store.load_piece(message_id, number) for number in pieces)
        except CairnError as error:
            return error

    def _work(self, load: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """On the reader's thread."""
        try:
            found = load()
        except Exception as error:  # not the disk's: the core must hear of it
            self._post(_raise, error)
        else:
            self._post(then, found)


def _with_times(entry: Entry, queue: Queue, content: object) -> Entry:
    """*entry*, or a timed one in its place if its message has times."""
    start = content.content if isinstance(content, Beginning) else content
    times = times_of(start, queue.policy.message_ttl_ms) if isinstance(start, bytes) else None
    if times is not None:
        queue.begin_timing()
        entry = TimedEntry(entry.message_id, entry.position, entry.content, entry.held_bytes, times)
    if isinstance(content, Beginning):
        entry.beginning = content.content
    return entry


def _raise(error: Exception) -> None:
    raise error
