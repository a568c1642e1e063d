"""The work of a transaction of this broker alone; `ReplicatedWork` has the same methods. Core only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...amqp.native.proton_ffi import ACCEPTED, REJECTED
from ...amqp.ports import Fragment, Outcome
from ...store.contract.dequeue_reason import DequeueReason
from ..queues.ends import SourceQueue, TargetQueue
from .context import Claimant, TransactionContext
from .moves import REASONS
from .staging import StagingArea
from .taken_messages import Taken, TakenMessages, is_off


class LocalWork:
    """The work of a transaction of this broker alone: its store does it with the commit."""

    operations = 0
    """The number of operations besides those in the staging area."""

    def __init__(
        self, context: TransactionContext, staging: StagingArea, taken: TakenMessages, owner: Claimant
    ) -> None:
        self._staging = staging
        self._owner = owner

    def stage(self, queues: Sequence[TargetQueue], fragments: Sequence[Fragment]) -> None:
        """Enqueue complete messages, each on all of *queues*."""
        self._staging.stage_all(queues, fragments)

    def take_off(self, queue: SourceQueue, outcomes: Sequence[Outcome]) -> None:
        """Dequeue messages from *queue*, as far as they leave it permanently."""
        off = [one for one in outcomes if one.tag.message_id and is_off(queue, one.state)]
        for state, reason in ((ACCEPTED, DequeueReason.ACCEPTED), (REJECTED, DequeueReason.REJECTED)):
            ids = [one.tag.message_id for one in off if one.state == state]
            if ids and self._owner.failure is None:
                self._staging.dequeue(ids, queue.queue_id, reason)

    def move(self, taken: Taken, targets: Sequence[TargetQueue], content: bytes) -> None:
        """Move a message to *targets*, with *content* there."""
        message_id = taken.entry.message_id
        if message_id:
            self._staging.dequeue([message_id], taken.queue.queue_id, REASONS[taken.move_reason()])
        self._staging.move(targets, content, is_stored=message_id > 0)
        if self._owner.failure is None:
            taken.is_off = True
            self._staging.count()

    def check(self) -> None:
        """Do nothing: the store checks its part."""

    def submit(self, began: Callable[[], None], is_safe: Callable[[], None], is_refused: Callable[[], None]) -> bool:
        """Return False: no part of the work is for other members."""
        return False

    def drop(self) -> None:
        """Do nothing: the staging area has the work."""
