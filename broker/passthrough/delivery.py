"""Messages that pass through without being stored: an incoming delivery and its outgoing ones (router guide C20-C25).

A `ForwardedDelivery` ties them together. The receiver that has an outgoing delivery gets it back as its tag
with the outcome, so a peer is found without looking for it. Core only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ...amqp.codec.hop_annotations import Hop
from ...amqp.native.proton_ffi import ACCEPTED, MODIFIED, REJECTED, RELEASED
from ...amqp.ports import ABORTED, MORE, Answer, Delivery, Fragment, Outcome, StreamCursor, TerminalEnd
from ..kernel.idle_driver import IdleDriver
from ..transactions.registry import Transactions

_WEIGHTS = {RELEASED: 0, MODIFIED: 1, ACCEPTED: 2, REJECTED: 3}
"""The order of outcomes: of several, the sender gets the one with the greatest weight."""

NO_TRANSACTIONS = "messages that pass through without being stored can't be part of a transaction"
ACCEPTANCE = Outcome(None, None, ACCEPTED)
"""The outcome of receivers with settled deliveries, and of messages that arrived settled."""


class SenderPort(Protocol):
    """The sender of messages, as these and their address see it."""

    def finish(self, passages: Sequence[ForwardedDelivery]) -> None:
        """Report the outcomes of messages to the client."""

    def routable_again(self) -> None:
        """Grant the credit that was withheld while the address had no receiver."""


class UnstoredDriver(IdleDriver):
    """The driver of a link whose messages pass through, and can't be part of a transaction."""

    terminal: TerminalEnd
    _transactions: Transactions

    def _credit(self, wanted: int) -> int:
        """Return the credit that the client gets back for *wanted* messages."""
        return wanted

    def receive_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        transaction = self._transactions.find(connection, txn_id)
        for delivery, _, flags in fragments:
            if flags & ABORTED:
                self.terminal.release((delivery,), self._credit(1))
            elif not flags & MORE:
                credit = self._credit(1)
                transaction.refuse(self.terminal, (delivery,), credit, "amqp:not-implemented", NO_TRANSACTIONS)

    def outcomes_in(self, connection: object, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        for txn_id, outcome in provisional:
            self._transactions.find(connection, txn_id).fail(NO_TRANSACTIONS)
            if outcome.delivery is None:
                self.outcomes([outcome._replace(state=MODIFIED, failed=True)])


class ForwardedDelivery:
    """A message that is being forwarded."""

    __slots__ = ("answer", "arriving", "delivery", "done", "legs", "sender", "settled", "size_bytes")

    def __init__(self, sender: SenderPort, delivery: Delivery, size_bytes: int, *, settled: bool) -> None:
        self.sender = sender
        self.delivery = delivery
        self.settled = settled
        """True if the sender awaits no outcome."""
        self.size_bytes = size_bytes
        """Bytes that the message counts for in the memory budget."""
        self.arriving: StreamingMessage | None = None
        """The content, while it is still arriving."""
        self.legs = 0
        """Receivers whose outcome is awaited."""
        self.answer: Outcome | None = None
        """The highest-ranking outcome so far."""
        self.done = False
        """True if the sender has its answer, or aborted the message: further outcomes are ignored."""

    def hear(self, outcome: Outcome) -> bool:
        """Apply the *outcome* of a receiver. Return whether it was the last one that is awaited."""
        if self.done:
            return False
        if self.answer is None or _WEIGHTS.get(outcome.state, 0) > _WEIGHTS.get(self.answer.state, 0):
            self.answer = outcome
        self.legs -= 1
        return self.legs <= 0

    def outcome_for_sender(self, *, settled: bool = True) -> Answer:
        """Return the answer to the sender; a receiver that settles without an outcome has released it."""
        answer = self.answer
        if answer is None or answer.state not in _WEIGHTS:
            return Answer(self.delivery, RELEASED, settled=settled)
        _, _, state, failed, undeliverable, error, annotations = answer
        return Answer(self.delivery, state, failed, undeliverable, error, annotations, settled)

    @property
    def was_accepted(self) -> bool:
        return self.answer is not None and self.answer.state == ACCEPTED


class TransitDelivery(ForwardedDelivery):
    """A message that arrived from another broker."""

    __slots__ = ("targets", "trace")

    def __init__(self, sender: SenderPort, delivery: Delivery, size_bytes: int, said: Hop, *, settled: bool) -> None:
        super().__init__(sender, delivery, size_bytes, settled=settled)
        self.trace = said.trace
        """The brokers that the message has passed."""
        self.targets = frozenset(said.targets or ())
        """The brokers that a multicast message is for."""


class StreamReceiver(Protocol):
    """A receiver that has a copy of a message that is still arriving."""

    presettled: bool
    tells_of_settled: bool
    """True if the receiver gives an outcome also for a message that its sender sent settled."""

    @property
    def terminal(self) -> TerminalEnd:
        """Return the terminal that sends the copy."""

    def taken_back(self) -> None:
        """Handle that the message was aborted."""


class StreamingMessage:
    """The content of a message that is still arriving: the parts that its copies have not read yet."""

    def __init__(self, take_back: Callable[[ForwardedDelivery], None], report: Callable[[], None]) -> None:
        """*take_back* drops an unfinished message at its address; *report*: see `StreamCursor`."""
        self.take_back = take_back
        self.copies: dict[StreamCursor, StreamReceiver | None] = {}
        """The copies and the receiver of each; None while it has none."""
        self.ended = False
        self._report = report

    def copy(self) -> StreamCursor:
        """Return one more copy. Call it before the first byte is added."""
        cursor = StreamCursor(self._report)
        self.copies[cursor] = None
        return cursor

    def write(self, data: bytes, *, last: bool) -> None:
        for cursor in self.copies:
            if data:
                cursor.write(data)
            if last:
                cursor.end()
        self.ended = last

    def wake(self) -> None:
        """Have the receivers' workers send the content that arrived."""
        for receiver in self.copies.values():
            if receiver is not None:
                receiver.terminal.more()

    def abort(self) -> None:
        """End the content early: the rest will never arrive."""
        for cursor in self.copies:
            cursor.abort()
        self.wake()

    def drop(self, receiver: StreamReceiver) -> None:
        """Remove the copy of *receiver*, which is closed. The sender may have waited for it."""
        for cursor in [cursor for cursor, one in self.copies.items() if one is receiver]:
            self.drop_copy(cursor)

    def drop_copy(self, cursor: StreamCursor) -> None:
        """Remove a copy whose receiver has left."""
        if cursor in self.copies:
            del self.copies[cursor]
            self._report()

    @property
    def backlog_bytes(self) -> int:
        """Return the backlog of the copy that is farthest behind."""
        return max((cursor.backlog_bytes for cursor in self.copies), default=0)

    def tell_when_read(self) -> None:
        """Request a notification of each copy that is read to the end."""
        for cursor in self.copies:
            cursor.is_behind(0)

    def is_behind(self) -> bool:
        """Return whether a copy has content to send. Each copy that has reports when half of it is sent."""
        behind = [cursor.is_behind(cursor.backlog_bytes // 2) for cursor in self.copies]  # each of them must report
        return any(behind)
