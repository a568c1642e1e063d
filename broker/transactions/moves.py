"""Moves of messages to other queues: from one to the others in one transaction. Core only.

After a crash a message is in one of the two places. Its annotations then state its origin and the reason:
`x-opt-deaths` is a list of maps, the oldest first, with `queue`, `reason`, `count`, `first-time` and `last-time`;
`x-opt-first-death-queue` and -`reason`, and `x-opt-last-death-queue` and -`reason`, repeat its ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from ...amqp.codec import header, sections
from ...amqp.codec.primitives import Malformed
from ...base.callbacks import ignore
from ...base.errors import CairnError
from ...store.contract.dequeue_reason import DequeueReason
from ..kernel.commit_queue import Shown
from ..kernel.context import CoreContext
from ..messages import death_history
from ..messages.death_history import EXPIRY, REJECTION, TOO_OFTEN
from ..messages.entry import Entry
from ..messages.message_times import DELIVERY_DELAY, DELIVERY_TIME, ENQUEUED, carried
from ..queues.ends import SourceQueue, TargetQueue

REASONS = {
    REJECTION: DequeueReason.REJECTED, TOO_OFTEN: DequeueReason.DELIVERY_LIMIT, EXPIRY: DequeueReason.EXPIRED,
    "": DequeueReason.MOVED,
}  # fmt: skip
"""The journal's dequeue reason for each reason to move a message away."""


class Move(NamedTuple):
    """A message that leaves its queue for others."""

    queue: SourceQueue
    entry: Entry
    reason: str
    """A key of `REASONS`."""
    targets: list[TargetQueue]
    content: bytes


class Moves(Protocol):
    """Moves messages, for queues of this broker and of a cluster."""

    def move(self, move: Move, then: Callable[[], None], refused: Callable[[], None]) -> int | None:
        """Move a message.

        Return the LSN to wait for. Return None if *then* is called after the move, or *refused* after the message was
        requeued, because no target exists any more. The latter happens only without *reason*: with one it leaves the
        queue in any case. Raises `CairnError`, with nothing done.
        """


class LocalMoves:
    """Moves among the queues of this broker."""

    def __init__(self, core: CoreContext) -> None:
        self._core = core

    def move(self, move: Move, then: Callable[[], None], refused: Callable[[], None]) -> int | None:
        queue, entry, reason, targets, content = move
        if not targets:
            return take_off(self._core, queue, entry, reason)
        now_us = self._core.clock.wall_us()
        content = shown(queue, entry.failures, reason, targets, content, now_us)
        lasting = [target for target in targets if entry.message_id and target.queue_id]
        lsn = 0
        ids: list[int] = []
        if entry.message_id:
            transaction = self._core.store.transactions.begin(now_us)
            try:
                transaction.dequeue(entry.message_id, queue.queue_id, now_us, REASONS[reason])
                for target in lasting:
                    transaction.put(target.queue_id, content, now_us)
                lsn = transaction.commit(now_us)
            except CairnError:
                transaction.rollback(now_us)
                raise
            ids = transaction.message_ids
        queue.count_dequeued([entry])
        self._core.commits.show(lsn, placed(targets, dict(zip(lasting, ids, strict=True)), content), ignore)
        return lsn


def take_off(core: CoreContext, queue: SourceQueue, entry: Entry, reason: str) -> int:
    """Dequeue a message permanently; return the LSN to wait for."""
    if entry.is_dequeued or queue.is_deleted:
        return 0
    queue.count_dequeued([entry])
    if not entry.message_id:
        return 0
    return core.store.dequeue(entry.message_id, queue.queue_id, core.clock.wall_us(), REASONS[reason])


def placed(targets: Sequence[TargetQueue], ids: Mapping[TargetQueue, int], content: bytes) -> Shown:
    """Make the entries of a message on its new queues; *ids*: where it is stored."""
    return [
        (target, target.new_entries([(content, target in ids)], [ids[target]] if target in ids else (), True))
        for target in targets
    ]


def shown(
    queue: SourceQueue, failures: int, reason: str, targets: Sequence[TargetQueue], content: bytes, now_us: int
) -> bytes:
    """Return the content on *targets* of a message that leaves *queue* for that reason, or by an operator's action."""
    if not targets:
        return content
    try:
        if reason:
            content = _with_death_record(queue, failures, reason, content, now_us // 1000)
        return carried(content, now_us, always=any(target.policy.message_ttl_ms for target in targets))
    except Malformed:  # it is passed on, with any meaning of its sender
        return content


def _with_death_record(queue: SourceQueue, failures: int, reason: str, content: bytes, now_ms: int) -> bytes:
    head = header.parse(content)
    content = (
        sections.header_section(head._replace(delivery_count=head.delivery_count + failures, ttl_ms=None))
        + content[head.size_bytes :]
    )
    entries = death_history.extended(death_history.read(content), queue.name, reason, now_ms)
    return sections.annotated(content, entries, without=(ENQUEUED, DELIVERY_TIME, DELIVERY_DELAY))
