"""What is handed out in a transaction: acquired with it, and back on its queue without it (part 4, 4.4.3). Core only.

A receiver's flow says in which transaction its credit is spent. What is handed out then is its receiver's, as anything
else it has. If the transaction is committed it stays so, where no outcome was told in it. If it fails, the
acquisition fails with it, and the outcome: the receiver's worker takes the message back, whole, half, or not sent yet,
and only when nothing more can be heard of it does it stand on its queue again. It counts as a failed delivery if its
receiver had told an outcome, as it does of what is only settled in a transaction; else nobody has tried, and it was
released.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..amqp.proton import MODIFIED, RELEASED
from ..channel.words import Outcome
from .entry import Entry
from .posting import Posting
from .queue import Queue

if TYPE_CHECKING:
    from .consumer import Consumer
    from .transactions import Controller, Transactions


class Acquiring(Posting):
    """That part of a transaction."""

    def __init__(self, owner: Transactions, controller: Controller, id: bytes) -> None:
        super().__init__(owner, controller, id)
        self.acquirers: dict[Consumer, None] = {}
        """Whose credit is spent in it."""
        self._acquired: dict[Entry, Consumer] = {}
        """Messages that were handed out in it, and that their receivers have said nothing of."""
        self._recalled: dict[Entry, bool] = {}
        """Those that are being taken back, and whether that counts as a failed delivery."""

    def acquire(self, consumer: Consumer, entries: Sequence[Entry]) -> None:
        """These are handed out in it."""
        for entry in entries:
            self._acquired[entry] = consumer
            self._owner.taken[entry] = self  # type: ignore[assignment]

    def has_acquired(self, entry: Entry) -> bool:
        """Whether it was handed out in it, and no outcome was told."""
        return entry in self._acquired

    def recalls(self, entry: Entry) -> bool:
        """Whether it is being taken back: what is heard of it was said before."""
        return entry in self._recalled

    def keep_acquired(self) -> None:
        """What was handed out in it is so for good: its receivers', and no transaction's."""
        self._owner.settled(self._acquired)
        self._acquired = {}

    def stop_acquiring(self) -> None:
        """It is discharged: what is handed out from now on is in no transaction, until another one is named."""
        acquirers, self.acquirers = self.acquirers, {}
        for consumer in acquirers:
            consumer.acquires = None
            consumer.wants_more()

    def lose(self, entry: Entry, *, lost: bool) -> bool:
        """The link of its receiver is gone. False if the message is the transaction's no more, and can go back."""
        if entry in self._recalled:
            self._recalled[entry] = self._recalled[entry] or lost
            return True
        if entry in self._acquired:
            del self._acquired[entry]
            self._owner.settled((entry,))
            return False
        self.left(entry)
        return True

    def forget(self, entry: Entry) -> None:
        """Somebody else gives it back."""
        self._acquired.pop(entry, None)
        self._recalled.pop(entry, None)
        self._owner.settled((entry,))

    def left(self, entry: Entry) -> None:
        """The receiver of a message that was taken in it says nothing more of it."""
        raise NotImplementedError

    def recall(self, consumer: Consumer, queue: Queue, entries: Iterable[Entry], *, failed: bool) -> None:
        """The transaction has failed, and these are *consumer*'s no more."""
        entries = [entry for entry in entries if not entry.gone]
        for entry in entries:
            self._recalled[entry] = failed
            self._owner.taken[entry] = self  # type: ignore[assignment]
            queue.locked[entry] = None
            consumer.unsettled.pop(entry, None)
        if entries:
            consumer.terminal.recall({*entries}, partial(self._back, consumer, queue, entries))

    def _recall_acquired(self) -> None:
        by_consumer: dict[Consumer, list[Entry]] = {}
        acquired, self._acquired = self._acquired, {}
        self._owner.settled(acquired)
        for entry, consumer in acquired.items():
            by_consumer.setdefault(consumer, []).append(entry)
        for consumer, entries in by_consumer.items():
            self.recall(consumer, consumer.queue, entries, failed=False)

    def _back(self, consumer: Consumer, queue: Queue, entries: Sequence[Entry]) -> None:
        """The worker has taken them back."""
        outcomes: list[Outcome] = []
        for entry in entries:
            queue.locked.pop(entry, None)
            if entry not in self._recalled:
                continue
            failed = self._recalled.pop(entry)
            self._owner.settled((entry,))
            if not entry.gone:
                outcomes.append(Outcome(None, entry, MODIFIED if failed else RELEASED, failed))
        consumer.take_back(outcomes)
