"""Duplicate detection: a queue remembers the message-ids it has taken, and takes none of them twice. Core only.

The newest `duplicate-window` ids are remembered, whatever has become of the messages. They are messages of a queue
of their own, `$duplicates:` and the name, which is there before the queue is. An id is recorded behind its message, and
the sender is told when both are durable: what was confirmed is known after a crash, too, and of what was not there is
perhaps the message without its id, never the id without its message. So the id of a message that is not stored is not
stored either. Messages without a message-id are always taken; of a long one the properties have to be in its first
64 KiB. In a transaction ids are remembered with the commit; till then they count in that transaction alone. With the
queue goes what it remembered: at the next start, if a crash came between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from ..amqp import sections
from ..amqp.codec import Malformed
from ..base.errors import CairnError, StoreError
from .entry import Entry

if TYPE_CHECKING:
    from .broker import Broker
    from .nodes import Nodes
    from .queue import Queue

PREFIX = "$duplicates:"
_MISSING, _TRANSIENT = 0, -1
"""In the place of an id: the key is not kept, for want of a queue or of room; or nothing of its message is."""


class Duplicates:
    """The ids that one queue remembers."""

    def __init__(self, broker: Broker, queue: Queue) -> None:
        self._broker = broker
        self._queue = queue
        self._most = queue.policy.duplicate_window
        self._keys: dict[bytes, int] = {}
        """The oldest first, and the ids of the messages that keep them."""
        self._kept_on = 0
        """The wiring's id of the queue that they are on."""
        self._has_begun = not queue.queue_id
        if queue.queue_id:
            broker.later(self._begin)

    def _begin(self) -> None:
        if self._has_begun or self._queue.gone:
            return
        self._has_begun = True
        nodes = self._broker.nodes
        name = PREFIX + self._queue.name
        there = nodes.queues.get(name)
        if there is not None and not there.going:
            self._recall(there)
        else:  # somebody has deleted it
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
        keys = [key for key, message_id in self._keys.items() if message_id == _MISSING]
        if keys and self._kept_on:
            self._keys.update(zip(keys, self._keep(keys)[0], strict=True))

    def all(self) -> list[bytes]:
        """What is remembered, the oldest first."""
        return [*self._keys]

    def transient(self) -> list[bytes]:
        """What of it is of messages that are not stored."""
        return [key for key, message_id in self._keys.items() if message_id == _TRANSIENT]

    def begin_with(self, keys: Sequence[bytes], transient: Collection[bytes]) -> None:
        """What the other members of a cluster remember."""
        self._keys = {key: _TRANSIENT if key in transient else _MISSING for key in keys}
        self._keep_all()

    def end(self) -> None:
        """The queue is gone."""
        if self._queue.queue_id:
            drop_memory(self._broker.nodes, self._queue.name)
        self._kept_on = 0
        self._keys.clear()

    def _recall(self, kept: Queue) -> None:
        """What was remembered when the store was opened."""
        self._kept_on = kept.queue_id
        store = self._broker.store
        before = [message_id for message_id in kept.backlog.page(0, kept.backlog.count).ids if message_id]
        while before:
            loaded = store.load_many(before, 1 << 20)
            for message_id, key in zip(before, loaded, strict=False):
                if isinstance(key, bytes):
                    self._keys[key] = message_id
            before = before[len(loaded) :]

    def knows(self, content: bytes) -> bool:
        key = key_of(content)
        return key is not None and key in self._keys

    def remember(self, entries: Sequence[Entry]) -> int:
        """They are taken; the LSN behind which this is durable, 0 if nothing was recorded."""
        self._begin()
        stored: dict[bytes, bool] = {}
        for entry in entries:
            if (key := key_of(_beginning(entry))) is not None:  # with what it was: one that is moved may come again
                before = stored.get(key, self._keys.get(key, _TRANSIENT) != _TRANSIENT)
                stored[key] = before or entry.message_id > 0
        if not self._queue.policy.is_shaped:  # then nobody else asks, and it is long
            for entry in entries:
                entry.beginning = b""
        for key, lasts in stored.items():
            self._forget(self._keys.pop(key, _MISSING))
            self._keys[key] = _MISSING if lasts else _TRANSIENT
        lsn = 0
        if keys := [key for key, lasts in stored.items() if lasts]:
            ids, lsn = self._keep(keys)
            self._keys.update(zip(keys, ids, strict=True))
        while len(self._keys) > self._most:
            self._forget(self._keys.pop(next(iter(self._keys))))
        return lsn

    def _forget(self, message_id: int) -> None:
        if message_id not in (_MISSING, _TRANSIENT):
            try:
                self._broker.store.dequeue(message_id, self._kept_on, self._broker.clock.wall_us())
            except StoreError:  # somebody has purged them
                pass

    def _keep(self, keys: Sequence[bytes]) -> tuple[Sequence[int], int]:
        """The ids of the messages that keep them, and the LSN to wait for.

        Without room none are kept, and they are remembered while the broker runs. Members of a cluster all remember the
        same: where there is no room for that, there is none for messages either.
        """
        store, now_us, replicated = self._broker.store, self._broker.clock.wall_us(), self._queue.replicated
        try:
            if self._kept_on and (replicated or not store.full()):
                return store.put_all(self._kept_on, [*keys], now_us)
        except CairnError:
            if replicated:
                raise
        return [_MISSING] * len(keys), 0


def make_memory(nodes: Nodes, name: str, done: Callable[[Queue | Exception], None]) -> None:
    """Make what queue *name*, which is not there, will keep its ids on; none that are left of an earlier one count."""
    left = nodes.queues.get(PREFIX + name)
    if left is None or left.going:
        nodes.create_queue(PREFIX + name, {}, done)
    else:
        nodes.delete_queue(
            left, lambda error: done(error) if error is not None else nodes.create_queue(PREFIX + name, {}, done)
        )


def drop_memory(nodes: Nodes, name: str) -> None:
    """Queue *name* is not there, or not any more."""
    kept = nodes.queues.get(PREFIX + name)
    if kept is not None:
        nodes.delete_queue(kept, _ignore)


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
