"""Duplicate detection: a queue remembers the message-ids it has taken, and takes none of them twice. Core only.

The newest `duplicate-window` ids are remembered, whatever has become of the messages. They are messages of a queue
of their own, `$duplicates:` and the name, so they last as messages do. An id is recorded right behind its message, and
nobody waits for it: a crash between the two can let that one message in again if it is sent again, never lose it.
Messages without a message-id are always taken; of a long one the properties have to be in its first 64 KiB. In a
transaction ids are remembered with the commit; till then they count in that transaction alone. With the queue goes what
it remembered: at the next start, if a crash came between the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..amqp import sections
from ..amqp.codec import Malformed
from ..base.errors import CairnError, StoreError
from .entry import Entry

if TYPE_CHECKING:
    from .broker import Broker
    from .queue import Queue

PREFIX = "$duplicates:"


class Duplicates:
    """The ids that one queue remembers."""

    def __init__(self, broker: Broker, queue: Queue) -> None:
        self._broker = broker
        self._queue = queue
        self._most = queue.policy.duplicate_window
        self._keys: set[bytes] = set()
        self._order: deque[tuple[bytes, int]] = deque()
        """Keys, the oldest first, and the ids of the messages that keep them, 0 for none."""
        self._kept_on = 0
        """The wiring's id of the queue that they are on."""
        if queue.queue_id:
            broker.later(self._begin)

    def _begin(self) -> None:
        nodes = self._broker.nodes
        name = PREFIX + self._queue.name
        there = nodes.queues.get(name)
        if self._queue.gone:
            return
        if there is not None and there.going:  # what a queue of the same name remembered
            there.when_gone.append(self._begin)
        elif there is not None:
            self._recall(there)
        else:
            nodes.create_queue(name, {}, self._made)

    def _made(self, made: Queue | Exception) -> None:
        if isinstance(made, Exception):  # they are remembered as long as the broker runs: the log says why
            return
        if self._queue.gone:
            self._broker.nodes.delete_queue(made, _ignore)
        else:
            self._kept_on = made.queue_id
            self._keep_all()

    def _keep_all(self) -> None:
        """Record what is only remembered so far."""
        keys = [key for key, message_id in self._order if not message_id]
        if keys and self._kept_on:
            ids = iter(self._keep(keys))
            self._order = deque([(key, message_id or next(ids)) for key, message_id in self._order])

    def all(self) -> list[bytes]:
        """What is remembered, the oldest first."""
        return [key for key, _ in self._order]

    def begin_with(self, keys: Sequence[bytes]) -> None:
        """What the other members of a cluster remember."""
        self._keys = {*keys}
        self._order = deque([(key, 0) for key in keys])
        self._keep_all()

    def end(self) -> None:
        """The queue is gone."""
        kept = self._broker.nodes.queues.get(PREFIX + self._queue.name)
        if self._kept_on and kept is not None:
            self._broker.nodes.delete_queue(kept, _ignore)
        self._kept_on = 0
        self._keys.clear()
        self._order.clear()

    def _recall(self, kept: Queue) -> None:
        """What was remembered when the store was opened."""
        self._kept_on = kept.queue_id
        store = self._broker.store
        before = [message_id for message_id in kept.backlog.page(0, kept.backlog.count).ids if message_id]
        while before:
            loaded = store.load_many(before, 1 << 20)
            for message_id, key in zip(before, loaded, strict=False):
                if isinstance(key, bytes):
                    self._keys.add(key)
                    self._order.append((key, message_id))
            before = before[len(loaded) :]

    def knows(self, content: bytes) -> bool:
        key = key_of(content)
        return key is not None and key in self._keys

    def remember(self, entries: Sequence[Entry]) -> None:
        keys = [key for entry in entries if (key := key_of(_beginning(entry)))]
        if not self._queue.policy.is_shaped:  # then nobody else asks, and it is long
            for entry in entries:
                entry.beginning = b""
        if not keys:
            return
        store, now_us = self._broker.store, self._broker.clock.wall_us()
        self._order.extend(zip(keys, self._keep(keys), strict=True))
        self._keys.update(keys)
        while len(self._order) > self._most:
            key, message_id = self._order.popleft()
            self._keys.discard(key)
            if message_id:
                try:
                    store.dequeue(message_id, self._kept_on, now_us)
                except StoreError:  # somebody has purged them
                    pass

    def _keep(self, keys: Sequence[bytes]) -> Sequence[int]:
        """The ids of the messages that keep them; 0 for none, without room: they are remembered while the broker runs.

        Members of a cluster all remember the same: where there is no room for that, there is none for messages either.
        """
        store, now_us, replicated = self._broker.store, self._broker.clock.wall_us(), self._queue.replicated
        try:
            if self._kept_on and (replicated or not store.full()):
                return store.put_all(self._kept_on, [*keys], now_us)[0]
        except CairnError:
            if replicated:
                raise
        return [0] * len(keys)


def forget_orphans(broker: Broker) -> None:
    """What queues remembered that are not there any more, or remember nothing now, goes."""
    queues = broker.nodes.queues
    for kept in [queue for name, queue in queues.items() if name.startswith(PREFIX)]:
        owner = queues.get(kept.name.removeprefix(PREFIX))
        if owner is None or not owner.policy.duplicate_window:
            broker.nodes.delete_queue(kept, _ignore)


def _ignore(result: object) -> None:
    """Nobody waits to hear how that went; the log tells what went wrong."""


def _beginning(entry: Entry) -> bytes:
    return entry.content if isinstance(entry.content, bytes) else getattr(entry, "beginning", b"")


def key_of(content: bytes) -> bytes | None:
    """What tells a message from others: its message-id, and of what type that is."""
    try:
        found = sections.properties(content, sections.find(content, sections.PROPERTIES)).message_id
    except Malformed:
        return None
    return None if found is None else f"{type(found).__name__} {found!r}".encode()
