"""Receivers from addresses that messages pass through: drivers of channels on which a client receives. Core only."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..amqp.proton import MODIFIED, RELEASED
from ..channel.words import Cursor, Delivery, Forward, Fragment, Outcome, TerminalEnd
from .direct import Direct, Passing, finish
from .passing import ACCEPTANCE, NO_TRANSACTIONS, Passage

if TYPE_CHECKING:
    from .broker import Broker


class DirectReceiver:
    """Gets messages that pass through one address."""

    tells_of_settled = False

    def __init__(self, broker: Broker, terminal: TerminalEnd, place: Direct, *, presettled: bool) -> None:
        self.terminal = terminal
        self.presettled = presettled
        """It gives no outcomes: what was sent to it is accepted."""
        self.unsettled = 0
        self.served = 0
        """When it got something last, as a number that only rises."""
        self.pending: deque[Passing] = deque()
        """Of multicast: what it has no credit for yet (C33)."""
        self._addresses = broker.direct
        self._transactions = broker.transactions
        self._place = place
        self._limit = 0
        self._forwarded = 0

    def join(self) -> None:
        """The channel is open: the address is routable."""
        self._addresses.use(self._place)
        self._place.add(self)

    def room(self) -> int:
        return self._limit - self._forwarded

    def post(self, fragments: Sequence[Fragment]) -> None:
        """A client that receives sends nothing."""

    def post_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        """The same."""

    def request(self, limit: int, drain: bool) -> None:
        self._limit = limit
        if self._place.multicast:
            self.send_pending()
        else:
            self._place.hand_out()
        if drain:
            spent = max(0, limit - self._forwarded)
            self._forwarded += spent
            self.terminal.drained(spent)

    def send_pending(self) -> None:
        """Send what it has credit for."""
        count = min(self.room(), len(self.pending))
        if count > 0:
            self.take([self.pending.popleft() for _ in range(count)])

    def take(self, messages: Sequence[Passing]) -> None:
        """Send these."""
        self._forwarded += len(messages)
        if not self.presettled:
            self.unsettled += len(messages)
        forward: list[Forward] = []
        finished: list[Passage] = []
        for passage, content in messages:
            forward.append((passage, content))
            arriving = passage.arriving
            if isinstance(content, Cursor) and arriving is not None:
                arriving.copies[content] = self
                if not arriving.ended:
                    continue
            if (self.presettled or passage.settled) and passage.hear(ACCEPTANCE):
                finished.append(passage)
        self.terminal.forward(forward)
        finish(finished)

    def taken_back(self) -> None:
        """A message that was still coming in was aborted."""
        if not self.presettled:
            self.unsettled -= 1

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """What the client said goes to the senders (C12, C57, C58)."""
        self.unsettled -= len(outcomes)
        settle: list[tuple[Delivery, int]] = []
        finished: list[Passage] = []
        for outcome in outcomes:
            delivery, passage = outcome.delivery, outcome.tag
            if passage.hear(outcome):
                finished.append(passage)
            if delivery is not None:
                settle.append((delivery, outcome.state))
        finish(finished)
        if settle:
            self.terminal.settle(settle)

    def outcomes_in(self, connection: object, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        """An outcome that depends on a transaction can't be passed on: what was settled so has failed."""
        for txn_id, outcome in provisional:
            self._transactions.find(connection, txn_id).fail(NO_TRANSACTIONS)
            if outcome.delivery is None:
                self.outcomes([outcome._replace(state=MODIFIED, failed=True)])

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        """Nobody knows what it made of the messages it has: modified, or released if it left properly."""
        self._place.remove(self)
        left = Outcome(None, None, MODIFIED, True) if lost else Outcome(None, None, RELEASED)
        finished: list[Passage] = []
        for passage in returned:
            if passage.arriving is not None:
                passage.arriving.drop(self)
            if passage.hear(left):
                finished.append(passage)
        while self.pending:
            passage, content = self.pending.popleft()
            if passage.arriving is not None and isinstance(content, Cursor):
                passage.arriving.copies.pop(content, None)
            if passage.hear(Outcome(None, None, RELEASED)):
                finished.append(passage)
        finish(finished)
        self._addresses.look_whether_over(self._place)
