"""Duplicate detection: a queue remembers message-ids, and enqueues no message twice. Core only.

The newest `duplicate-window` IDs are remembered, even if their messages left the queue. They are messages of a separate
queue, `$duplicates:` and the name, which is created before the queue. An ID is recorded behind its message, and the
sender is answered when both are durable. So IDs of confirmed messages survive a crash; an unconfirmed one may leave the
message without its ID, never the ID without its message. Hence the ID of a message that is not stored is not stored
either.

Messages without a message-id are always enqueued; the properties of a long one must be in its first 64 KiB. In a
transaction IDs are remembered with the commit; until then they count in that transaction alone. The IDs are deleted
with the queue: at the next start, if a crash came between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from ...amqp.codec import sections
from ...amqp.codec.primitives import Malformed
from ...base.callbacks import ignore
from ...base.errors import CairnError, StoreError
from ..contents.internal_queues import InternalQueue, InternalQueues
from ..contents.ports import QueueState
from ..kernel.context import CoreContext
from ..messages.entry import Entry

PREFIX = "$duplicates:"
_MISSING, _TRANSIENT = 0, -1
"""Markers in the place of an ID: the key is not stored, as its queue or space is missing; its message is transient."""


class Deduplication:
    """The ids that one queue remembers."""

    def __init__(self, core: CoreContext, queue: QueueState, internal_queues: InternalQueues) -> None:
        self._core = core
        self._queue = queue
        self._internal_queues = internal_queues
        self._most = queue.policy.duplicate_window
        self._keys: dict[bytes, int] = {}
        """The remembered keys, the oldest first, and the ids of the messages that record them."""
        self._kept_on = 0
        """The wiring's id of the queue that records the keys."""
        self._has_begun = not queue.queue_id
        if queue.queue_id:
            core.post(self._begin)

    def _begin(self) -> None:
        if self._has_begun or self._queue.is_deleted:
            return
        self._has_begun = True
        name = PREFIX + self._queue.name
        there = self._internal_queues.queues.get(name)
        if there is not None and not there.is_deleting:
            self._recall(there)
        else:  # it was deleted by a client
            self._internal_queues.create_queue(name, {}, self._made)

    def _made(self, made: InternalQueue | Exception) -> None:
        if isinstance(made, Exception):  # they are remembered as long as the broker runs: the log states the error
            return
        if self._queue.is_deleted:
            self._internal_queues.drop_queue(made.name, ignore)
        else:
            self._kept_on = made.queue_id
            self._keep_all()

    def _keep_all(self) -> None:
        """Record the keys that are only in memory so far."""
        keys = [key for key, message_id in self._keys.items() if message_id == _MISSING]
        if keys and self._kept_on:
            self._keys.update(zip(keys, self._keep(keys)[0], strict=True))

    def all(self) -> list[bytes]:
        """Return the remembered keys, the oldest first."""
        return [*self._keys]

    def transient(self) -> list[bytes]:
        """Return the remembered keys of messages that are not stored."""
        return [key for key, message_id in self._keys.items() if message_id == _TRANSIENT]

    def begin_with(self, keys: Sequence[bytes], transient: Collection[bytes]) -> None:
        """Replace the recorded keys by those of the other members of a cluster, unless they are equal."""
        self._begin()
        before, self._keys = self._keys, {key: _TRANSIENT if key in transient else _MISSING for key in keys}
        kept = {key: message_id for key, message_id in before.items() if message_id not in (_MISSING, _TRANSIENT)}
        if [*kept] == [key for key in keys if key not in transient]:
            self._keys.update(kept)
            return
        for message_id in kept.values():
            self._forget(message_id)
        self._keep_all()

    def end(self) -> None:
        """Delete the remembered keys of a queue that is deleted."""
        if self._queue.queue_id:
            drop_memory(self._internal_queues, self._queue.name)
        self._kept_on = 0
        self._keys.clear()

    def _recall(self, kept: InternalQueue) -> None:
        """Read the keys that were recorded when the store was opened."""
        self._kept_on = kept.queue_id
        store = self._core.store
        backlog = kept.contents.backlog
        before = [message_id for message_id in backlog.page(0, backlog.count).ids if message_id]
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
        """Remember the keys of enqueued messages; return the LSN behind which they are durable, 0 for none."""
        self._begin()
        stored: dict[bytes, bool] = {}
        for entry in entries:
            if (key := key_of(_first_bytes(entry))) is not None:  # of the old content: it may return
                before = stored.get(key, self._keys.get(key, _TRANSIENT) != _TRANSIENT)
                stored[key] = before or entry.message_id > 0
        if not self._queue.policy.is_sorted:  # then no other request is pending, and the list is long
            for entry in entries:
                entry.first_bytes = b""
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
            with suppress(StoreError):  # they were purged by a client
                self._core.store.dequeue(message_id, self._kept_on, self._core.clock.wall_us())

    def _keep(self, keys: Sequence[bytes]) -> tuple[Sequence[int], int]:
        """Record keys; return the ids of the messages that record them, and the LSN to wait for.

        Without room on the disk, keys are remembered in memory only. On a replicated queue, whose members all remember
        the same keys, the error of the store is raised.
        """
        store, now_us, replicated = self._core.store, self._core.clock.wall_us(), self._queue.order.remembers_together
        try:
            if self._kept_on and (replicated or not store.full()):
                return store.put_all(self._kept_on, [*keys], now_us)
        except CairnError:
            if replicated:
                raise
        return [_MISSING] * len(keys), 0


def make_memory(queues: InternalQueues, name: str, done: Callable[[InternalQueue | Exception], None]) -> None:
    """Create the queue that records the ids of queue *name*, which does not exist yet, in place of an earlier one."""
    kept = PREFIX + name
    left = queues.queues.get(kept)
    if left is None or left.is_deleting:
        queues.create_queue(kept, {}, done)
    else:
        queues.drop_queue(kept, lambda error: done(error) if error is not None else queues.create_queue(kept, {}, done))


def drop_memory(queues: InternalQueues, name: str) -> None:
    """Delete the queue that records the ids of queue *name*, which was not created or is deleted."""
    queues.drop_queue(PREFIX + name, ignore)


def forget_orphans(queues: InternalQueues) -> None:
    """Delete the memories of queues that do not exist any more, or do not detect duplicates now."""
    for kept in [name for name in queues.queues if name.startswith(PREFIX)]:
        owner = queues.queues.get(kept.removeprefix(PREFIX))
        if owner is None or not owner.policy.duplicate_window:
            queues.drop_queue(kept, ignore)


def _first_bytes(entry: Entry) -> bytes:
    return entry.content if isinstance(entry.content, bytes) else getattr(entry, "first_bytes", b"")


def key_of(content: bytes) -> bytes | None:
    """Return the key of a message: the type and value of its message-id; None if it has none or is malformed."""
    try:
        found = sections.properties(content, sections.find(content, sections.PROPERTIES)).message_id
    except Malformed:
        return None
    return None if found is None else f"{type(found).__name__} {found!r}".encode()
