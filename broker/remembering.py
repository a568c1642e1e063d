"""Producers that remember what they took: a client whose connection broke learns what is stored, and sends it once.

Core only. The tag of a delivery is recorded in one transaction with its message, so that after a crash there are both
or neither, and is forgotten when the client has settled. Deliveries that were refused are not remembered: to send such
a one again does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..channel.words import ABORTED, MORE, SETTLED, Arrival, Delivery, Fragment
from ..store.transaction import Put, Transaction
from .growing import Growing
from .line import Shown
from .producer import Producer, Queues
from .senders import ExchangeProducer, QueueProducer
from .suspended import LinkEnd


class Remembering(Producer):
    """What both kinds have in common."""

    end: LinkEnd
    is_stolen = False
    """The client has attached anew elsewhere: what still comes here was not taken, and nobody is told of it."""
    _tag: bytes | None = None
    """Of the delivery that is being looked at."""
    _refused = False

    def post_resuming(self, arrivals: Sequence[Arrival]) -> None:
        for fragment, tag, resumed in arrivals:
            if self.is_stolen:
                return
            if resumed or (self._growing is None and tag in self.end.tags):
                self._resume(fragment, tag)
            else:
                self._tag = None if fragment[2] & SETTLED else tag
                self.post((fragment,))
                self._tag = None

    def forget(self, tag: bytes) -> None:
        if not self.is_stolen:  # else the client may have used that tag again, where it is now
            self.end.forget(tag)

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        super().close(returned, lost, for_good)
        self.end.left(self, for_good=for_good)

    def _resume(self, fragment: Fragment, tag: bytes) -> None:
        """A delivery again, or its end alone: what is stored is not stored again, and the rest is not taken."""
        delivery, _, flags = fragment
        if flags & MORE:
            return
        if flags & (SETTLED | ABORTED):  # an aborted delivery is settled, too
            self.end.forget(tag)
            self.terminal.release((delivery,), 1)
        elif tag in self.end.tags:
            self.terminal.confirm((delivery,), 1)
        else:
            self.terminal.hand_back((delivery,), 1)

    # ---- what is taken --------------------------------------------------------------------------------------------

    def _record(self, queues: Queues, fragments: Sequence[Fragment]) -> None:
        self._refused = False
        super()._record(queues, fragments)
        self._note_taken()

    def _put_nowhere(self, fragments: Sequence[Fragment]) -> None:
        self._refused = False
        super()._put_nowhere(fragments)
        self._note_taken()

    def _reject(self, deliveries: Sequence[Delivery], credit: int, condition: str, why: str) -> None:
        self._refused = True
        super()._reject(deliveries, credit, condition, why)

    def _note_taken(self) -> None:
        """What was taken and is not stored is remembered as long as the broker runs."""
        if self._tag is not None and not self._refused and self._transaction is None:
            self.end.tags.setdefault(self._tag, 0)

    def _write(self, queues: Queues, contents: list[bytes], now_us: int) -> tuple[Sequence[int], int]:
        if self._tag is None:
            return super()._write(queues, contents, now_us)
        transaction = self._store.transactions.begin(now_us)
        for content in contents:
            if len(queues) == 1:
                transaction.put(queues[0].queue_id, content, now_us)
            else:
                transaction.put_on([queue.queue_id for queue in queues], content, now_us)
        lsn = self._commit(transaction, self._tag, now_us)
        return list(dict.fromkeys(_ids(transaction)[:-1])), lsn

    def _put_grown(self, growing: Growing, now_us: int) -> tuple[int, Shown]:
        if self._tag is None:
            return super()._put_grown(growing, now_us)
        transaction = self._store.transactions.begin(now_us)

        def enqueue(message_id: int, queue_id: int, time_us: int) -> int:
            transaction.enqueue(message_id, queue_id, time_us)
            return 1

        lsn, shown = growing.finish(enqueue, now_us)
        if lsn:
            lsn = self._commit(transaction, self._tag, now_us)
        else:
            transaction.rollback(now_us)
            if shown:
                self.end.tags[self._tag] = 0
        return lsn, shown

    def _commit(self, transaction: Transaction, tag: bytes, now_us: int) -> int:
        """Commit it together with the tag."""
        transaction.put(self.end.queue_id, tag, now_us)
        lsn = transaction.commit(now_us)
        self.end.tags[tag] = _ids(transaction)[-1]
        return lsn


class RememberingQueueProducer(Remembering, QueueProducer):
    """To one queue."""


class RememberingExchangeProducer(Remembering, ExchangeProducer):
    """Through one exchange."""


def _ids(transaction: Transaction) -> list[int]:
    """The ids of the messages that a committed transaction put on queues, by its operations."""
    staged = {*transaction.staged}
    made = iter([message_id for message_id in transaction.message_ids if message_id not in staged])
    return [next(made) if isinstance(one, Put) else one.message_id for one in transaction.operations]
