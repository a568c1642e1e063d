"""Finds by digest the messages that a joining member has on its own disk, so that it need not receive them. Core only.

The donor identifies a durable message of a queue by its position and the digest of its content (event kind 10). The
joining member reads the messages that its store has on the queue of that name, once, and looks up each digest:

| digest | action |
|---|---|
| matches a message of this store | it is kept in the store, with the position and failures that the donor sent |
| unknown, or the message is damaged | the position is *lacking*: the donor sends the content |

So order, counts and marks are those of the donor, regardless of those in this store. Messages with equal contents are
interchangeable. When all queues are complete, `TransferReceiver` drops the messages that no digest named: the other
members do not have them.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

from ...base.errors import CairnError
from ...broker.kernel.loader import BEGINNING_BYTES
from ...broker.kernel.memory_budget import ENTRY_BYTES
from ...broker.messages.entry import Entry
from ...broker.messages.message_times import TimedEntry, Times, times_of
from ...store.contract.interface import MessageStore
from ..kernel.context import MemberContext
from ..kernel.events import DIGEST_BYTES, DigestsEvent
from ..replication.replica import Replica

Take = Callable[[bytes, int], Entry | None]
"""Finds the kept message of a digest, for a position."""
Compare = Callable[[DigestsEvent, Take | None], None]

READ_MESSAGES = 2048
READ_BYTES = 4 << 20
"""The maximum number of bytes per read."""


class Read(NamedTuple):
    """One message as stored, reduced to its digest and its first bytes."""

    message_id: int
    digest: bytes
    beginning: bytes


def digest_of(content: bytes) -> bytes:
    return blake2b(content, digest_size=DIGEST_BYTES).digest()


def read_digests(store: MessageStore, ids: Sequence[int]) -> Iterator[Read]:
    """Yields digests of messages in order of arrival, without deleted and damaged ones. Any thread."""
    at = 0
    while at < len(ids):
        contents = store.load_many(ids[at:], READ_BYTES)
        for message_id, content in zip(ids[at:], contents, strict=False):
            if isinstance(content, bytes):
                yield Read(message_id, digest_of(content), content[:BEGINNING_BYTES])
            elif content is None and (found := _read_pieces(store, message_id)) is not None:
                yield found
        at += len(contents)


def _read_pieces(store: MessageStore, message_id: int) -> Read | None:
    complete, beginning = blake2b(digest_size=DIGEST_BYTES), b""
    try:
        for number in range(store.piece_count(message_id)):
            piece = store.load_piece(message_id, number)
            complete.update(piece)
            if len(beginning) < BEGINNING_BYTES:
                beginning += piece
    except (CairnError, LookupError):
        return None
    return Read(message_id, complete.digest(), beginning[:BEGINNING_BYTES])


class _KeptQueue:
    """The messages that the store has on one queue."""

    def __init__(self, replica: Replica, ids: Sequence[int]) -> None:
        self.replica = replica
        self.unread = array("Q", ids)
        self.damaged: list[int] = []
        self.pending: deque[DigestsEvent] = deque()
        """Digests that were received before all messages were read."""
        self._ids: dict[bytes, int] = {}
        self._more: dict[bytes, list[int]] = {}
        """The IDs of further messages with the same content."""
        self._times: dict[int, Times] = {}
        self._beginnings: dict[int, bytes] = {}
        """The first bytes of messages, for sorted queues, which read their properties."""

    def add(self, found: Sequence[tuple[Read, Times | None]], read: Sequence[int]) -> None:
        policy = self.replica.queue.policy
        missing = dict.fromkeys(read)
        for one, times in found:
            del missing[one.message_id]
            if self._ids.setdefault(one.digest, one.message_id) != one.message_id:
                self._more.setdefault(one.digest, []).append(one.message_id)
            if times is not None:
                self._times[one.message_id] = times
            if policy.is_sorted:
                self._beginnings[one.message_id] = one.beginning
        self.damaged += missing

    def take(self, digest: bytes, position: int) -> Entry | None:
        """Returns the message with that digest, as an entry at *position*, or None."""
        more = self._more.get(digest)
        if more:
            message_id = more.pop()
        elif (message_id := self._ids.pop(digest, 0)) == 0:
            return None
        times, entry = self._times.pop(message_id, None), Entry(message_id, position, None, ENTRY_BYTES)
        if times is not None:
            entry = TimedEntry(message_id, position, None, ENTRY_BYTES, times)
        if message_id in self._beginnings:
            entry.first_bytes = self._beginnings.pop(message_id)
        return entry

    def left(self) -> list[int]:
        """Returns the IDs of the messages that no digest named."""
        found = [*self._ids.values(), *self.unread, *self.damaged]
        for more in self._more.values():
            found += more
        return sorted(found)


class KeptMessages:
    """The kept messages of one member while it joins."""

    def __init__(self, context: MemberContext, replicas: Mapping[str, Replica], compare: Compare) -> None:
        """*compare*: receives digests that can be answered now; without `Take` no message of their queue is kept."""
        self._context = context
        self._replicas = replicas
        self._compare = compare
        self._ids: dict[str, Sequence[int]] = {}
        """The messages of the store by queue, as offered to the donor."""
        self._queues: dict[str, _KeptQueue] = {}
        self._turn = 0
        self._is_reading = False
        self.kept = 0
        """The number of messages of the present transfer that were found in this store."""

    def lost(self) -> None:
        self._turn += 1
        self._is_reading = False
        self._ids.clear()
        self._queues.clear()

    def offer(self) -> list[str]:
        """Returns the queues of which this store has messages."""
        self.lost()
        self.kept = 0
        there = self._context.store.messages()
        for name, replica in self._replicas.items():
            if ids := there.get(replica.queue.queue_id):
                self._ids[name] = ids
        return [*self._ids]

    def names(self) -> list[str]:
        """Returns the queues that are compared."""
        return [*self._queues]

    def begin(self, replicas: Mapping[str, Replica]) -> None:
        """Starts reading, after the queues were made empty and like those of the donor.

        *replicas*: the queues that existed here before.
        """
        self._queues = {name: _KeptQueue(replicas[name], ids) for name, ids in self._ids.items() if name in replicas}
        self._ids = {}
        self._read_on()

    def put_back(self, replica: Replica, entries: Iterable[Entry]) -> None:
        """Returns entries to the kept messages, since another donor brings their queue from the beginning."""
        queue = self._queues.setdefault(replica.name, _KeptQueue(replica, ()))
        queue.pending.clear()
        queue.unread.extend(entry.message_id for entry in entries if entry.message_id)
        self._read_on()

    def received(self, event: DigestsEvent) -> None:
        """Answers digests of messages from before the cut with the lacking ones, as soon as all messages are read."""
        queue = self._queue(event.name)
        if queue is None:
            self._compare(event, None)
        else:
            queue.pending.append(event)
            self._answer(queue)

    def has_more(self, replica: Replica) -> bool:
        """Returns whether the store has messages of the queue that are not on the replica.

        It is not known yet which of them are kept.
        """
        there = self._context.store.messages().get(replica.queue.queue_id, ())
        here = {entry.message_id for entry in (*replica.entries(), *replica.front.values())}
        return not here.issuperset({*there} - {message_id for _, message_id in replica.stored()})

    def purged(self, name: str) -> None:
        """Drops the kept messages of a queue that was purged, but not those that already matched a digest."""
        if (queue := self._queues.get(name)) is not None:
            self._queues[name] = _KeptQueue(queue.replica, ())
            self._queues[name].pending = queue.pending
            self._answer(self._queues[name])

    def left(self) -> list[tuple[Replica, list[int]]]:
        """Removes and returns the messages that no other member has, which exist only in this store."""
        found = self._left()
        self.lost()
        return found

    def give_up(self) -> list[tuple[Replica, list[int]]]:
        """Removes and returns all remaining messages; the positions of later digests are all lacking."""
        found = self._left()
        for name in self.names():
            if self._queue(name) is not None:
                self.purged(name)
        return found

    def _left(self) -> list[tuple[Replica, list[int]]]:
        queues = [queue for name in self._queues if (queue := self._queue(name)) is not None]
        return [(queue.replica, ids) for queue in queues if (ids := queue.left())]

    def _queue(self, name: str) -> _KeptQueue | None:
        """Returns the queue; None if it was deleted, even if a new queue has its name."""
        queue = self._queues.get(name)
        return queue if queue is not None and self._replicas.get(name) is queue.replica else None

    def _read_on(self) -> None:
        queue = next((queue for queue in self._queues.values() if queue.unread), None)
        if queue is None or self._is_reading:
            return
        self._is_reading = True
        store, ttl_ms = self._context.store, queue.replica.queue.policy.message_ttl_ms
        ids = queue.unread[:READ_MESSAGES]

        def work() -> list[tuple[Read, Times | None]]:
            return [(one, times_of(one.beginning, ttl_ms)) for one in read_digests(store, ids)]

        self._context.reader.ask(work, partial(self._read, self._turn, queue, ids))

    def _read(
        self, turn: int, queue: _KeptQueue, ids: Sequence[int], found: Sequence[tuple[Read, Times | None]]
    ) -> None:
        if turn != self._turn:
            return
        self._is_reading = False
        if self._queues.get(queue.replica.name) is queue:  # it was not purged meanwhile
            del queue.unread[: len(ids)]
            queue.add(found, ids)
            self._answer(queue)
        self._read_on()

    def _answer(self, queue: _KeptQueue) -> None:
        while queue.pending and not queue.unread:
            self._compare(queue.pending.popleft(), queue.take)
