"""The messages dispatched in a transaction: acquired with it, requeued without it (part 4, 4.4.3). Core only.

A receiver's flow names the transaction in which its credit is spent. Messages dispatched with this credit belong to the
receiver, as its other deliveries do. After a commit they stay acquired, unless they got an outcome in the transaction.
If the transaction fails, the acquisition and the outcome fail with it: the receiver's worker recalls the message,
whether it was sent completely, partly or not yet, and the message is requeued only when no further outcome can arrive.
It counts as a failed delivery if its receiver had sent an outcome, also if it was only settled in a transaction;
otherwise as released.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Protocol

from ...amqp.native.proton_ffi import MODIFIED, RELEASED
from ...amqp.ports import Outcome, TerminalEnd
from ..messages.entry import Entry
from ..queues.ends import SourceQueue
from .context import Claimant, TransactionContext


class AcquiringLink(Protocol):
    """A link whose messages a transaction takes."""

    acquires: Acquisition | None
    unsettled: dict[Entry, None]

    @property
    def terminal(self) -> TerminalEnd: ...

    @property
    def queue(self) -> SourceQueue: ...

    def over(self, entry: Entry) -> None:
        """Forget a message that is settled."""

    def take_back(self, outcomes: Sequence[Outcome]) -> object:
        """Put messages back on the queue, or dead-letter them."""


class Acquisition:
    """The messages that links acquire in one transaction."""

    def __init__(self, context: TransactionContext, owner: Claimant) -> None:
        self.id = owner.id
        self.acquirers: dict[AcquiringLink, None] = {}
        """The links whose credit is spent in the transaction."""
        self._context = context
        self._owner = owner
        self._acquired: dict[Entry, AcquiringLink] = {}
        """Messages that were dispatched in the transaction and have no outcome yet, with their receivers."""
        self._recalled: dict[Entry, bool] = {}
        """Entries that are being recalled, and whether each counts as a failed delivery."""

    @property
    def failure(self) -> tuple[str, str] | None:
        """Return the AMQP error of a transaction that cannot acquire more."""
        return self._owner.failure

    def acquire(self, consumer: AcquiringLink, entries: Sequence[Entry]) -> None:
        """Acquire *entries* in the transaction."""
        for entry in entries:
            self._acquired[entry] = consumer
            self._context.taken[entry] = self._owner

    def has_acquired(self, entry: Entry) -> bool:
        """Return whether *entry* was dispatched in the transaction and has no outcome yet."""
        return entry in self._acquired

    def recalls(self, entry: Entry) -> bool:
        """Return whether *entry* is being recalled: outcomes that still arrive for it were sent before."""
        return entry in self._recalled

    def settle(self, entry: Entry) -> bool:
        """Note that *entry* has an outcome in the transaction; return whether it was acquired in it."""
        return self._acquired.pop(entry, None) is not None

    def keep(self) -> None:
        """Keep the dispatched messages acquired by their receivers, independent of any transaction."""
        self._context.settled(self._acquired)
        self._acquired = {}

    def stop(self) -> None:
        """Stop acquiring after the discharge: later dispatches are in no transaction, until another one is named."""
        acquirers, self.acquirers = self.acquirers, {}
        for consumer in acquirers:
            consumer.acquires = None
            self._context.core.schedule_dispatch(consumer.queue)

    def lose(self, entry: Entry, *, lost: bool) -> bool:
        """Handle that the receiver's link is closed. Return False if the message can be requeued at once."""
        if entry in self._recalled:
            self._recalled[entry] = self._recalled[entry] or lost
            return True
        if entry in self._acquired:
            del self._acquired[entry]
            self._context.settled((entry,))
            return False
        self._owner.left(entry)
        return True

    def forget(self, entry: Entry) -> None:
        """Remove *entry*, which is requeued by other code."""
        self._acquired.pop(entry, None)
        self._recalled.pop(entry, None)
        self._context.settled((entry,))

    def recall(
        self, consumer: AcquiringLink, locked: dict[Entry, None], entries: Iterable[Entry], *, failed: bool
    ) -> None:
        """Recall *entries* from *consumer* after the transaction has failed; *locked*: those of their queue."""
        entries = [entry for entry in entries if not entry.is_dequeued]
        for entry in entries:
            self._recalled[entry] = failed
            self._context.taken[entry] = self._owner
            locked[entry] = None
            consumer.unsettled.pop(entry, None)
        if entries:
            consumer.terminal.recall({*entries}, partial(self._back, consumer, locked, entries))

    def recall_all(self) -> None:
        """Recall all messages without an outcome after the transaction has failed."""
        by_consumer: dict[AcquiringLink, list[Entry]] = {}
        acquired, self._acquired = self._acquired, {}
        self._context.settled(acquired)
        for entry, consumer in acquired.items():
            by_consumer.setdefault(consumer, []).append(entry)
        for consumer, entries in by_consumer.items():
            self.recall(consumer, consumer.queue.locked, entries, failed=False)

    def _back(self, consumer: AcquiringLink, locked: dict[Entry, None], entries: Sequence[Entry]) -> None:
        """Return messages that the worker has recalled."""
        outcomes: list[Outcome] = []
        for entry in entries:
            locked.pop(entry, None)
            if entry not in self._recalled:
                continue
            failed = self._recalled.pop(entry)
            self._context.settled((entry,))
            if not entry.is_dequeued:
                outcomes.append(Outcome(None, entry, MODIFIED if failed else RELEASED, failed))
        consumer.take_back(outcomes)
