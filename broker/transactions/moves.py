"""Moves of messages to other queues: from one to the others in one transaction. Core only.

After a crash a message is in one of the two places. Its annotations then state its origin and the reason
(`messages.death_history`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from ...amqp.codec import decode, header, sections
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
from ..nodes.replication_port import Kept, Members
from ..queues.ends import SourceQueue, TargetQueue, own, shared

REASONS = {
    REJECTION: DequeueReason.REJECTED, TOO_OFTEN: DequeueReason.DELIVERY_LIMIT, EXPIRY: DequeueReason.EXPIRED,
    "": DequeueReason.MOVED,
}  # fmt: skip
"""The journal's dequeue reason for each reason to move a message away."""

MOST_ENVELOPE_BYTES = 64 << 10
"""The size to which receivers may let the sections before the body grow: each round writes the message again."""


class Moves:
    """Moves messages among queues: by the store alone, or by way of the cluster if that has one of them."""

    def __init__(self, core: CoreContext, members: Members) -> None:
        self._core = core
        self._members = members
        self._shares_queues = members.shares_queues

    def move(
        self, queue: SourceQueue, entry: Entry, reason: str, targets: Sequence[TargetQueue], content: bytes,
        then: Callable[[], None],
        refused: Callable[[], None],
    ) -> int | None:  # fmt: skip
        """Move a message to *targets* for *reason*, a key of `REASONS`.

        Return the LSN to wait for. Return None if *then* is called after the move, or *refused* after the message was
        requeued, because no target exists any more. The latter happens only without *reason*: with one it leaves the
        queue in any case. Raises `CairnError`, with nothing done.
        """
        is_ordered = self._shares_queues and bool(shared([queue]) or shared(targets))
        if not (targets or is_ordered):
            return self._take_off(queue, entry, reason)
        content = shown(queue, entry, entry.failures, reason, targets, content, self._core.clock.wall_us())
        if is_ordered:
            self._order(queue, entry, reason, targets, content, then, refused)
            return None
        lsn, entries = self._put(targets, content, entry, queue, reason)
        queue.count_dequeued([entry])
        self._core.commits.show(lsn, entries, ignore)
        return lsn

    def _order(
        self, queue: SourceQueue, entry: Entry, reason: str, targets: Sequence[TargetQueue], content: bytes,
        then: Callable[[], None],
        refused: Callable[[], None],
    ) -> None:  # fmt: skip
        """Move a message by way of the cluster, which has *queue* or some of *targets*."""
        commits, members = self._core.commits, self._members
        ordered, others = shared(targets), own(targets)
        queue.contents.delayed[entry] = None
        if shared([queue]):  # the message is on the other targets before it is off the queue
            lsn, entries = self._put(others, content, entry)
            queue.locked[entry] = None  # it belongs to this member, even if another member leads the queue meanwhile

            def kept() -> None:
                queue.locked.pop(entry, None)
                members.move(queue, entry, ordered, content, REASONS[reason], then, refused)

            commits.show(lsn, entries, kept)
            return

        def there() -> None:
            queue.contents.delayed.pop(entry, None)
            commits.when_durable(self._take_off(queue, entry, reason), then)

        def nowhere() -> None:
            if reason or others:
                there()
                return
            queue.contents.delayed.pop(entry, None)
            if not entry.is_dequeued:
                queue.contents.give_back(entry)
                self._core.schedule_dispatch(queue)
            refused()

        members.enqueue(ordered, Kept([(content, bool(entry.message_id))], True), there, nowhere)

    def rewrite(self, queue: SourceQueue, entry: Entry, content: bytes) -> int:
        """Replace the content of a message that no consumer has; return the LSN to wait for. Raises `CairnError`.

        The message keeps its place until the next start, which puts it behind the others.
        """
        now_us, lsn, message_id = self._core.clock.wall_us(), 0, 0
        if entry.message_id:
            transaction = self._core.store.transactions.begin(now_us)
            try:
                transaction.dequeue(entry.message_id, queue.queue_id, now_us, DequeueReason.MOVED)
                transaction.put(queue.queue_id, content, now_us)
                lsn = transaction.commit(now_us)
            except CairnError:
                transaction.rollback(now_us)
                raise
            (message_id,) = transaction.message_ids
        queue.replace_content(entry, message_id, content)
        return lsn

    def _take_off(self, queue: SourceQueue, entry: Entry, reason: str) -> int:
        """Dequeue a message permanently; return the LSN to wait for."""
        if entry.is_dequeued or queue.is_deleted:
            return 0
        queue.count_dequeued([entry])
        if not entry.message_id:
            return 0
        return self._core.store.dequeue(entry.message_id, queue.queue_id, self._core.clock.wall_us(), REASONS[reason])

    def _put(
        self, targets: Sequence[TargetQueue], content: bytes, entry: Entry, source: SourceQueue | None = None,
        reason: str = "",
    ) -> tuple[int, Shown]:  # fmt: skip
        """Put the message of *entry* on *targets*, and take it off *source*, if given, in one transaction.

        Return the LSN to wait for, and the entries to show.
        """
        now_us = self._core.clock.wall_us()
        lasting = [target for target in targets if entry.message_id and target.queue_id]
        transaction = self._core.store.transactions.begin(now_us)
        try:
            if source is not None and entry.message_id:
                transaction.dequeue(entry.message_id, source.queue_id, now_us, REASONS[reason])
            for target in lasting:
                transaction.put(target.queue_id, content, now_us)
            lsn = transaction.commit(now_us)
        except CairnError:
            transaction.rollback(now_us)
            raise
        ids = dict(zip(lasting, transaction.message_ids, strict=True))
        return lsn, [
            (target, target.new_entries([(content, target in ids)], [ids[target]] if target in ids else (), True))
            for target in targets
        ]


def shown(
    queue: SourceQueue, entry: Entry, failures: int, reason: str, targets: Sequence[TargetQueue], content: bytes,
    now_us: int,
) -> bytes:  # fmt: skip
    """Return the content on *targets* of a message that leaves *queue* for that reason, or by an operator's action."""
    if not targets:
        return content
    try:
        if reason:
            with suppress(CairnError):  # above the bound: the message is moved without them, as it must leave
                content = combined(content, getattr(entry, "annotations", b""))
            error = getattr(entry, "error", None) if reason == REJECTION else None
            content = _with_death_record(queue, failures, reason, content, now_us // 1000, error)
        return carried(content, now_us, always=any(target.policy.message_ttl_ms for target in targets))
    except Malformed:  # it is passed on, with any meaning of its sender
        return content


def combined(content: bytes, annotations: bytes) -> bytes:
    """Return *content* with message annotations that its receiver added, an encoded map (3.4.5).

    Raises `Malformed`, and `CairnError` if the sections before the body grow above `MOST_ENVELOPE_BYTES`.
    """
    if not annotations:
        return content
    given = decode.read_map(annotations, 0, plain=False)
    entries = {str(name): value for name, value in given.items() if isinstance(name, str)}
    annotated = sections.annotated(
        content, {name: value for name, value in entries.items() if name not in death_history.WRITTEN_BY_BROKER}
    )
    if len(annotated) > len(content) and len(sections.envelope(annotated)) > MOST_ENVELOPE_BYTES:
        raise CairnError("annotations of modified", f"more than {MOST_ENVELOPE_BYTES} bytes", "use fewer of them")
    return annotated


def _with_death_record(
    queue: SourceQueue, failures: int, reason: str, content: bytes, now_ms: int, error: tuple[str, str] | None
) -> bytes:
    head = header.parse(content)
    content = (
        sections.header_section(head._replace(delivery_count=head.delivery_count + failures, ttl_ms=None))
        + content[head.size_bytes :]
    )
    entries = death_history.extended(death_history.read(content), queue.name, reason, now_ms, error)
    return sections.annotated(content, entries, without=(ENQUEUED, DELIVERY_TIME, DELIVERY_DELAY))
