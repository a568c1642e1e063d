"""Applies transactions of clients, and moves: one event, and one transaction of each member's store (D53, D63).

The decision depends only on state that all members share at that position, including members that a state transfer is
completing: each queue exists, and the sender may dequeue each message that the transaction takes. Otherwise no member
applies any part of it. Core only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

from ...broker.links.partial_message import PIECE_BYTES
from ...broker.messages.entry import Entry
from ...store.contract.dequeue_reason import DequeueReason
from ...store.contract.transaction import StoreTransaction
from ..group.member_id import MemberId
from ..kernel.context import MemberContext
from ..kernel.events import DequeueEvent, EnqueueEvent, Message, MoveEvent, ReleaseEvent, TransactionEvent
from ..kernel.local_messages import LocalEvent
from .message_handler import MessageHandler
from .ownership_handler import QueueOwnerHandler
from .replica import Replica


class _Put(NamedTuple):
    """Messages for the same queues."""

    targets: Sequence[Replica]
    messages: Sequence[Message]
    timed: bool


class _Off(NamedTuple):
    """Messages of one queue."""

    replica: Replica
    entries: Sequence[Entry]
    reason: DequeueReason


class TransactionHandler:
    def __init__(self, context: MemberContext, owners: QueueOwnerHandler, messages: MessageHandler) -> None:
        self._context = context
        self._owners = owners
        self._messages = messages

    def do(self, sender: MemberId, place: int, event: TransactionEvent, local: LocalEvent | None) -> bool:
        """Applies a transaction; returns whether it was done."""
        if not all(self._is_possible(sender, part) for part in event.parts):
            return False
        puts: list[_Put] = []
        offs: list[_Off] = []
        for part, own in zip(event.parts, repeat(None) if local is None else local.parts, strict=False):
            if isinstance(part, EnqueueEvent):
                puts += self._puts_of(part)
                continue
            replica = self._owners.replicas[part.name]
            positions = part.positions if isinstance(part, DequeueEvent) else (part.position,)
            offs.append(_Off(replica, self._messages.valid(replica, sender, positions, own), part.reason))
            if isinstance(part, MoveEvent):
                puts.append(_Put(self._replicas(part.targets), (part.message,), True))
        self._apply(place, puts, offs)
        return True

    def move(self, sender: MemberId, place: int, event: MoveEvent, local: LocalEvent | None) -> bool:
        """Moves a message to other queues in one transaction: after a crash it is in one of the two places (rule 16).

        Returns False, and requeues the message, if an operator moves it and all targets were deleted. A message that
        must leave the queue is then lost, as on a single broker: it would have been deleted with the targets.
        """
        replica = self._owners.replicas.get(event.name)
        if replica is None:
            return True
        targets = self._replicas([name for name in event.targets if name in self._owners.replicas])
        has = self._messages.has(replica, sender, event.position)
        if has and event.targets and not targets and event.reason is DequeueReason.MOVED:
            self._messages.release(sender, ReleaseEvent(event.name, (event.position,), bytes(1)), local)
            return False
        is_there = has and replica.is_to_come(event.position)
        entries = self._messages.valid(replica, sender, (event.position,), local)
        if entries or is_there:
            self._apply(place, [_Put(targets, (event.message,), True)], [_Off(replica, entries, event.reason)])
        return True

    def _apply(self, place: int, puts: Sequence[_Put], offs: Sequence[_Off]) -> None:
        """Removes and adds messages, in one transaction of the store."""
        ids = self._store_all(puts, offs)
        for replica, entries, reason in offs:
            for entry in entries:
                replica.queue.contents.delayed.pop(entry, None)
                replica.queue.locked.pop(entry, None)
            replica.count_dequeued(entries, reason)
            self._context.touch(replica.queue)
        for targets, messages, timed in puts:
            found = [[next(ids) for _ in targets] for _, lasts in messages if lasts]
            for number, target in enumerate(targets):
                entries = target.queue.new_entries(messages, [those[number] for those in found], timed)
                self._messages.add(target, place, entries)

    def _is_possible(self, sender: MemberId, part: EnqueueEvent | DequeueEvent | MoveEvent) -> bool:
        replicas = self._owners.replicas
        if isinstance(part, EnqueueEvent):
            return all(name in replicas for name in part.names)
        replica = replicas.get(part.name)
        if replica is None or (isinstance(part, MoveEvent) and not all(name in replicas for name in part.targets)):
            return False
        positions = part.positions if isinstance(part, DequeueEvent) else (part.position,)
        return all(self._messages.has(replica, sender, position) for position in positions)

    def _puts_of(self, part: EnqueueEvent) -> list[_Put]:
        """Returns the messages whose message IDs are new, on queues that detect duplicates."""
        targets = self._replicas(part.names)
        if not any(target.queue.policy.duplicate_window for target in targets):
            return [_Put(targets, part.messages, part.timed)]
        return [
            _Put([target for target in targets if not target.knows(message[0])], (message,), part.timed)
            for message in part.messages
        ]

    def _replicas(self, names: Sequence[str]) -> list[Replica]:
        return [self._owners.replicas[name] for name in names]

    def _store_all(self, puts: Sequence[_Put], offs: Sequence[_Off]) -> Iterator[int]:
        """Stores all parts in one transaction; returns the IDs of new messages, by message and queue."""
        now_us = self._context.clock.wall_us()
        inner = self._context.store.transactions.begin(now_us)
        for replica, entries, reason in offs:
            stored = [entry.message_id for entry in entries if entry.message_id]
            inner.dequeue_all(stored, replica.queue.queue_id, now_us, reason)
        for targets, messages, _ in puts:
            queue_ids = [target.queue.queue_id for target in targets]
            contents = [content for content, lasts in messages if lasts]
            if len(queue_ids) == 1 and all(len(content) <= PIECE_BYTES for content in contents):
                inner.put_all(queue_ids[0], contents, now_us)
            elif queue_ids:
                for content in contents:
                    self._put_on(inner, queue_ids, content, now_us)
        inner.commit(now_us)
        return (message_id for message_id, _ in inner.stored())

    def _put_on(self, inner: StoreTransaction, queue_ids: list[int], content: bytes, now_us: int) -> None:
        if len(content) <= PIECE_BYTES:
            inner.put_on(queue_ids, content, now_us)
            return
        message_id = self._messages.stage(content, now_us)
        for queue_id in queue_ids:
            inner.enqueue(message_id, queue_id, now_us)
