"""Reads messages back: a thread beside the core loads requested messages in batches, and posts them to the core.

The core never waits for the disk here. An unreadable message (such as a damaged record) is replaced by its error, and
only that message is skipped.
"""

from __future__ import annotations

import logging
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar

from ...base.errors import CairnError
from ...store.contract.interface import MessageStore
from ..messages.stored_contents import NotAMessage, load_contents, load_piece
from .memory_budget import MemoryBudget

log = logging.getLogger(__name__)

BATCH_MESSAGES = 2048
BATCH_BYTES = 1 << 20
"""The size of a batch, which ends at `BATCH_MESSAGES` messages or at this number of bytes of content."""

MOST_REPORTED = 100_000
"""Messages that are remembered as reported; above it some are counted again."""
MOST_LOGGED, MOST_QUEUES = 200, 1000
"""Each of so many undelivered messages of a queue is logged, and of its others one in so many.

Queues beyond `MOST_QUEUES` count as one."""
BEGINNING_BYTES = 64 << 10
"""The size of the part of a long message in which the sections before its body are searched."""


class Beginning(NamedTuple):
    """The beginning of a message in several pieces, of which the times are wanted."""

    content: bytes


Loaded = bytes | CairnError | Beginning | None
"""A content; an error if it can't be read; None, or its beginning, if it is in several pieces."""
_Complete = list[bytes | CairnError]
_Found = TypeVar("_Found")


class Submit(Protocol):
    """Run *work* on the reader's thread, in order."""

    def __call__(self, work: Callable[..., None], /, *args: Any) -> object: ...


class Loader:
    """Loads contents for queues and browsers. Called on the core."""

    def __init__(self, store: MessageStore, submit: Submit, post: Callable[..., None]) -> None:
        self._store = store
        self._submit = submit
        self._post = post
        self.put_off: list[Callable[[], None]] = []
        """Actions for a later step."""
        self.recovered_below = store.durable_lsn
        """The end of the ids of messages that the store had when it was opened: an id is a place in the log."""
        self.unreadable = 0
        """Messages that are not delivered, as they can't be read or are no AMQP messages."""
        self._reported: set[int] = set()
        self._set_aside: Counter[str] = Counter()
        """The number of such messages by queue."""

    def load(self, ids: array[int], timed: bool, then: Callable[[list[Loaded]], None]) -> None:
        """Load a batch; *then* gets the contents, on the core: at least one, perhaps fewer than requested.

        *timed*: the times of these messages are wanted, also of those in several pieces.
        """
        timed = timed or (len(ids) > 0 and min(ids) < self.recovered_below)
        self._submit(self._work, lambda: self._load(ids, timed), then)

    def _load(self, ids: array[int], timed: bool) -> list[Loaded]:
        load_many = self._store.load_many
        if len(ids) > 0 and min(ids) < self.recovered_below:  # later ones were checked when they arrived
            load_many = partial(load_contents, self._store)
        found: list[Loaded] = [*load_many(ids, BATCH_BYTES)]
        if timed:
            for number, content in enumerate(found):
                if content is None:
                    beginning = self._beginning(ids[number])
                    found[number] = beginning if isinstance(beginning, CairnError) else Beginning(beginning)
        return found

    def load_complete(self, ids: Sequence[int], then: Callable[[list[bytes | CairnError]], None]) -> None:
        """Load complete contents of any number of pieces; *then* gets them, on the core."""
        self._submit(self._work, lambda: [self._read(message_id) for message_id in ids], then)

    def load_notes(self, ids: Sequence[int], then: Callable[[list[bytes | CairnError]], None]) -> None:
        """Load contents of the broker's own, which are no AMQP messages; *then* gets them, on the core."""
        read = self._store.load_piece
        self._submit(self._work, lambda: [self._read(message_id, read=read) for message_id in ids], then)

    def load_beginnings(self, ids: Sequence[int], then: Callable[[list[bytes | CairnError]], None]) -> None:
        """Load the first `BEGINNING_BYTES` of contents; *then* gets them, on the core."""
        self._submit(self._work, lambda: [self._beginning(message_id) for message_id in ids], then)

    def ask(self, work: Callable[[], _Found], then: Callable[[_Found], None]) -> None:
        """Run *work* beside the core; *then* gets its result, on the core."""
        self._submit(self._work, work, then)

    def set_aside(self, queue: str, message_id: int, reason: CairnError) -> None:
        """Count and log, once, that a message stays in the store and is not delivered. Core only."""
        if message_id in self._reported:
            return
        if len(self._reported) >= MOST_REPORTED:
            self._reported.clear()
        self._reported.add(message_id)
        self.unreadable += 1
        place = queue if queue in self._set_aside or len(self._set_aside) < MOST_QUEUES else ""
        self._set_aside[place] += 1
        if self._set_aside[place] <= MOST_LOGGED or not self._set_aside[place] % MOST_LOGGED:
            if isinstance(reason, NotAMessage):
                about = {"event": "message.malformed", "queue": queue}
                text = "queue %s: message %d is no AMQP message, and stays in the store: %s"
                cause = f"{reason.reason}; read it with `cairnmq dump`, and purge the queue to remove it"
            else:
                about = {"event": "message.unreadable", "queue": queue}
                text = "queue %s: message %d stays in the store, undelivered: %s"
                cause = str(reason)
            log.error(text, queue, message_id, cause, extra=about)

    def next_step(self, action: Callable[[], None]) -> None:
        """Run *action* on the core in a later step, after the messages that this step dispatches."""
        self.put_off.append(action)

    def end_step(self) -> None:
        """End a step; post its put-off actions for later steps, through the reader's thread."""
        put_off, self.put_off = self.put_off, []
        for action in put_off:
            self._submit(self._post, action)

    def _read(
        self, message_id: int, most_bytes: float = inf, read: Callable[[int, int], bytes] | None = None
    ) -> bytes | CairnError:
        """Read the pieces of a message that contain its first *most_bytes*."""
        read = read or partial(load_piece, self._store)
        pieces: list[bytes] = []
        size_bytes = 0
        try:
            for number in range(self._store.piece_count(message_id)):
                pieces.append(read(message_id, number))
                size_bytes += len(pieces[-1])
                if size_bytes >= most_bytes:
                    break
        except CairnError as error:
            return error
        except LookupError:
            return CairnError(f"message {message_id}", "it went while it was looked at")
        return b"".join(pieces)

    def _beginning(self, message_id: int) -> bytes | CairnError:
        found = self._read(message_id, BEGINNING_BYTES)
        return found[:BEGINNING_BYTES] if isinstance(found, bytes) else found

    def _work(self, load: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Run *load*, and post its result to the core. Reader's thread."""
        try:
            found = load()
        except Exception as error:  # not an error of the disk: the core must raise it
            self._post(_raise, error)
        else:
            self._post(then, found)


def _raise(error: Exception) -> None:
    raise error


class CompleteLoads:
    """The complete contents of long messages, in memory for links on which messages are sent settled. Core only.

    Such a message is dequeued before it is sent, and its records may be reclaimed from then on. So all of it is in
    memory until its connection has taken it over. A user may have one at any time, and others while each takes at most
    half of the memory budget that is free. The links of the user wait for that.
    """

    def __init__(self, loader: Loader, memory: MemoryBudget) -> None:
        self._loader = loader
        self._memory = memory
        self._holding: dict[str, dict[object, int]] = {}
        """The links that have contents, or are being sent some, by user; each with the bytes that are counted here."""
        self.waiting: dict[str, dict[object, tuple[int, Callable[[], None]]]] = {}
        """The links that wait, by user: the bytes that they need, and the action to start."""

    def load(
        self, user: str, link: object, ids: Sequence[int], size_bytes: int, then: Callable[[_Complete], None]
    ) -> None:
        """Load contents of *size_bytes* for *link* when there is room; *then* gets them, on the core.

        They count in the memory budget until `forwarded` or `end`. Call `end` when they were sent, or the link is
        closed.
        """
        self.waiting.setdefault(user, {})[link] = size_bytes, lambda: self._loader.load_complete(ids, then)
        self._start(user)

    def forwarded(self, user: str, link: object) -> None:
        """Stop counting the contents for *link*, which are counted elsewhere now, unless the link is closed."""
        holding = self._holding.get(user, {})
        if link in holding:
            self._memory.used_bytes -= holding[link]
            holding[link] = 0

    def end(self, user: str, link: object) -> bool:
        """Make room for other links of *user*; return whether *link* was still waiting, so that nothing is loaded."""
        was_waiting = self.waiting.get(user, {}).pop(link, None) is not None
        self._memory.used_bytes -= self._holding.get(user, {}).pop(link, 0)
        self._start(user)
        return was_waiting

    def start_waiting(self) -> None:
        """Start the loads for which there is room now, at the end of a step."""
        for user in [*self.waiting]:
            self._start(user)

    def _start(self, user: str) -> None:
        waiting, holding = self.waiting.get(user, {}), self._holding.setdefault(user, {})
        while waiting:
            link, (size_bytes, start) = next(iter(waiting.items()))
            if holding and size_bytes > self._memory.free_bytes // 2:
                return
            del waiting[link]
            holding[link] = size_bytes
            self._memory.used_bytes += size_bytes
            start()
        self.waiting.pop(user, None)
        if not holding:
            del self._holding[user]
