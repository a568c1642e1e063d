"""Bringing a newcomer what stood before its cut: update_front, from the back of each queue to its front (D18).

Which messages these are is noted down at the cut, on the core, which does nothing else meanwhile: 1.7 us and 145 bytes
of memory for each that is on the disk only, 235 at most (0051). What is in them is read when it is their turn, beside
the core. Whatever happens to them in between, the newcomer hears itself: so nothing is held up from there on, and a
message that went meanwhile is left out. Batches of all queues take turns, and the next one is
said only when nothing waits to be sent, so that traffic goes before. Core only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.errors import CairnError
from ..broker.entry import ARRIVAL_MASK, Entry
from . import events
from .group import MemberId
from .replica import Replica

if TYPE_CHECKING:
    from .core import Core

BATCH_MESSAGES = 1024
BATCH_BYTES = 48 << 10
AHEAD_BYTES = 256 << 10
"""With more than this under way in the group, what is brought waits."""


def updater_for(synced: Iterable[MemberId], newcomer: MemberId) -> MemberId | None:
    """The next one in the ring of nodes that has all messages."""
    able = sorted(member for member in synced if member != newcomer)
    return next((member for member in able if member.node > newcomer.node), able[0] if able else None)


class Todo(NamedTuple):
    """A message to be brought."""

    position: int
    message_id: int
    failures: int
    """As in update_front."""
    entry: Entry | None
    """If it is in memory."""


def what_stands(replica: Replica, last: int, unheard: Iterable[Entry]) -> dict[int, Todo]:
    """By position, up to *last*, what is on a queue for all members now, wherever it is here.

    *unheard*: messages of which something was said, and not heard yet: it comes later.
    """
    found = {
        (at := entry.position & ARRIVAL_MASK): Todo(at, entry.message_id, _failures(entry), entry)
        for entry in chain(replica.entries(), unheard)
        if entry.position & ARRIVAL_MASK <= last and not entry.gone
    }
    below = replica.queue.delivered_below
    for position, message_id in replica.stored():
        if position <= last and position not in found:
            found[position] = Todo(position, message_id, 2 if message_id < below else 0, None)
    return found


class _Queue:
    """What is still to be brought of one queue, to one newcomer."""

    def __init__(self, to: MemberId, update: int, replica: Replica, last: int, unheard: Iterable[Entry]) -> None:
        self.to = to
        self.update = update
        self.replica = replica
        self.todo = [todo for _, todo in sorted(what_stands(replica, last, unheard).items())]
        """The next one is the last one here."""


class Updater:
    """What this member brings to others."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._queues: deque[_Queue] = deque()
        self._reading = False
        self.brought = 0
        """Messages, since the broker started."""

    @property
    def is_busy(self) -> bool:
        return bool(self._queues)

    def begin(self) -> None:
        self._queues.clear()

    def lost(self) -> None:
        self._queues.clear()

    def members_are(self, members: tuple[MemberId, ...]) -> None:
        self._queues = deque(queue for queue in self._queues if queue.to in members)

    def serve(self, to: MemberId, update: int, unfinished: Mapping[str, int] | None) -> None:
        """*to* is at its cut just now; *unfinished*: queues that somebody else has begun to bring, with their cuts."""
        core = self._core
        replicas = core.owners.replicas
        self._queues = deque(queue for queue in self._queues if queue.to != to)
        if unfinished is None:
            core.say(self._snapshot(to, update))
            unfinished = {name: replica.last for name, replica in replicas.items()}
        core.broker.order_all_back()
        unheard = core.locals.unheard()
        for name, last in unfinished.items():
            if name in replicas:
                replica = replicas[name]
                self._queues.append(_Queue(to, update, replica, last, unheard.get(replica.queue, ())))

    def _snapshot(self, to: MemberId, update: int) -> bytes:
        core = self._core
        replicas = core.owners.replicas.values()
        gates = {replica.name: gate for replica in replicas if (gate := replica.queue.gate) is not None}
        remembering = {name: gate.duplicates for name, gate in gates.items() if gate.duplicates is not None}
        queues: list[Any] = [
            (
                replica.name,
                replica.first,
                replica.last,
                replica.owner,
                list(replica.interested),
                list(replica.acquired.items()),
                (replica.purged_below, list(replica.kept)),
            )
            for replica in replicas
        ]
        return events.told(
            "snapshot",
            to=to,
            update=update,
            epoch=core.mark.standing.epoch,
            wiring=core.nodes.snapshot([replica.queue for replica in replicas]),
            queues=queues,
            past=core.owners.past,
            synced=list(core.owners.synced),
            floors=list(core.completion.floors.items()),
            lines={replica.name: replica.line for replica in replicas if replica.line},
            remembered={name: _told(ids.all()) for name, ids in remembering.items()},
            transient={name: _told(ids.transient()) for name, ids in remembering.items()},
        )

    def go_on(self) -> None:
        """Nothing waits to be sent: read the next batch."""
        core = self._core
        if self._reading or not self._queues or core.group.in_flight_bytes > AHEAD_BYTES:
            return
        queue = self._queues.popleft()
        if queue.to not in core.completion.acks:
            return
        if not queue.todo:
            core.say(events.told("update-done", to=queue.to, update=queue.update, queue=queue.replica.name))
            return
        self._queues.append(queue)
        batch = self._batch(queue)
        if not batch:
            return
        store, wanted = core.broker.store, [todo.message_id for todo in batch if not self._content(todo)]
        if not wanted:
            self._say(queue, batch, {})
            return
        self._reading = True

        def load() -> dict[int, bytes]:
            found: dict[int, bytes] = {}
            for message_id in wanted:
                try:
                    pieces = range(store.piece_count(message_id))
                    found[message_id] = b"".join(store.load_piece(message_id, number) for number in pieces)
                except (CairnError, LookupError):  # it went meanwhile
                    pass
            return found

        def loaded(found: dict[int, bytes]) -> None:
            self._reading = False
            if queue in self._queues:
                self._say(queue, batch, found)

        core.broker.reader.ask(load, loaded)

    def _batch(self, queue: _Queue) -> list[Todo]:
        """The next messages of *queue*, as they are now."""
        store = self._core.broker.store
        batch: list[Todo] = []
        size = 0
        while queue.todo and len(batch) < BATCH_MESSAGES and size < BATCH_BYTES:
            todo = queue.todo.pop()
            if todo.entry is not None and todo.entry.gone:
                continue
            if todo.message_id:
                if not store.holds(todo.message_id):
                    continue
                size += store.size_of(todo.message_id)
            else:
                size += todo.entry.held_bytes if todo.entry is not None else 0
            batch.append(todo)
        return batch

    def _content(self, todo: Todo) -> bytes | None:
        entry = todo.entry
        return None if entry is None or entry.content is None else entry.whole()

    def _say(self, queue: _Queue, batch: list[Todo], loaded: Mapping[int, bytes]) -> None:
        there = [(todo, content) for todo in batch if (content := self._content(todo) or loaded.get(todo.message_id))]
        if not there:
            return
        self.brought += len(there)
        self._core.say(
            events.update_front(
                queue.update,
                queue.replica.name,
                [todo.position for todo, _ in there],
                [todo.failures for todo, _ in there],
                [(content, bool(todo.message_id)) for todo, content in there],
            )
        )


def _told(keys: Iterable[bytes]) -> list[str]:
    return [key.decode("latin-1") for key in keys]


def _failures(entry: Entry) -> int:
    return entry.failures + 1 if entry.acquired else 0
