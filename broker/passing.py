"""Messages that pass through without being stored: an incoming delivery and its outgoing ones (router guide C20-C25).

A `Passage` ties them together. An outgoing delivery is known by the receiver that has it, which gets the passage back
as its tag with the outcome; so a peer is found without looking for it. Core only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ..amqp.hop import Hop
from ..amqp.proton import ACCEPTED, MODIFIED, REJECTED, RELEASED
from ..channel.words import Answer, Cursor, Delivery, Outcome, TerminalEnd

if TYPE_CHECKING:
    from .direct import Direct
    from .direct_sender import DirectSender

_WEIGHTS = {RELEASED: 0, MODIFIED: 1, ACCEPTED: 2, REJECTED: 3}
"""Of several outcomes the sender hears the weightiest: a rejection is an error; who accepted has the message."""

NO_TRANSACTIONS = "messages that pass through without being stored can't be part of a transaction"
ACCEPTANCE = Outcome(None, None, ACCEPTED)
"""Of receivers that are sent messages settled, and of messages that came so."""


class Passage:
    """One message on its way."""

    __slots__ = ("answer", "arriving", "delivery", "done", "legs", "sender", "settled", "size_bytes")

    def __init__(self, sender: DirectSender, delivery: Delivery, size_bytes: int, *, settled: bool) -> None:
        self.sender = sender
        self.delivery = delivery
        self.settled = settled
        """The sender wants no outcome."""
        self.size_bytes = size_bytes
        """What it counts for in the memory budget."""
        self.arriving: Arriving | None = None
        """While it still comes in."""
        self.legs = 0
        """Receivers whose outcome is awaited."""
        self.answer: Outcome | None = None
        """The weightiest so far."""
        self.done = False
        """Its sender has the answer, or gave it up: what still comes is not heard."""

    def hear(self, outcome: Outcome) -> bool:
        """A receiver gave *outcome*. Whether it was the last one that is awaited."""
        if self.done:
            return False
        if self.answer is None or _WEIGHTS.get(outcome.state, 0) > _WEIGHTS.get(self.answer.state, 0):
            self.answer = outcome
        self.legs -= 1
        return self.legs <= 0

    def outcome_for_sender(self, *, settled: bool = True) -> Answer:
        """A receiver that settles without an outcome has not taken it, as on a queue: released."""
        answer = self.answer
        if answer is None or answer.state not in _WEIGHTS:
            return Answer(self.delivery, RELEASED, settled=settled)
        _, _, state, failed, undeliverable, error, annotations = answer
        return Answer(self.delivery, state, failed, undeliverable, error, annotations, settled)

    @property
    def was_accepted(self) -> bool:
        return self.answer is not None and self.answer.state == ACCEPTED


class Crossing(Passage):
    """One that came from another broker."""

    __slots__ = ("targets", "trace")

    def __init__(
        self, sender: DirectSender, delivery: Delivery, size_bytes: int, said: Hop, *, settled: bool
    ) -> None:
        super().__init__(sender, delivery, size_bytes, settled=settled)
        self.trace = said.trace
        """The brokers it has come by."""
        self.targets = frozenset(said.targets or ())
        """Of multicast: those it is for."""


class Taker(Protocol):
    """Who has a copy of a message that still comes in."""

    presettled: bool
    tells_of_settled: bool
    """It gives an outcome, too, of a message whose sender wants none."""

    @property
    def terminal(self) -> TerminalEnd:
        """Where it goes out."""
        ...

    def taken_back(self) -> None:
        """The message was aborted."""
        ...


class Arriving:
    """The content of a message that still comes in: what each of its copies has yet to read of it."""

    def __init__(self, place: Direct, tell: Callable[[], None]) -> None:
        """*tell*: as of `Cursor`, for each copy."""
        self.place = place
        self.copies: dict[Cursor, Taker | None] = {}
        """And who has each; None if nobody has yet."""
        self.ended = False
        self._tell = tell

    def copy(self) -> Cursor:
        """One more copy. Before the first byte."""
        cursor = Cursor(self._tell)
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
        """Have the receivers' workers send what came."""
        for receiver in self.copies.values():
            if receiver is not None:
                receiver.terminal.more()

    def abort(self) -> None:
        """The rest will never come."""
        for cursor in self.copies:
            cursor.abort()
        self.wake()

    def drop(self, receiver: Taker) -> None:
        """*receiver* is gone."""
        for cursor in [cursor for cursor, one in self.copies.items() if one is receiver]:
            del self.copies[cursor]

    @property
    def backlog_bytes(self) -> int:
        """Of the copy that is farthest behind."""
        return max((cursor.backlog_bytes for cursor in self.copies), default=0)

    def tell_when_read(self) -> None:
        """Have each copy tell when it has been read to the end."""
        for cursor in self.copies:
            cursor.is_behind(0)

    def is_behind(self) -> bool:
        """Whether a copy has something to read. Each that has tells when it is half as much."""
        behind = [cursor.is_behind(cursor.backlog_bytes // 2) for cursor in self.copies]  # each of them is to tell
        return any(behind)
