"""Receivers from addresses that messages pass through: drivers of channels on which a client receives. Core only."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from ...amqp.native.proton_ffi import MODIFIED, RELEASED
from ...amqp.ports import Delivery, Forward, Outcome, StreamCursor, TerminalEnd
from ..links.consumer import ReceivingDriver
from ..links.context import LinkContext
from .address import PassthroughAddress, PassthroughCopy, PassthroughTable, finish
from .delivery import ACCEPTANCE, ForwardedDelivery, UnstoredDriver


class PassthroughReceiver(UnstoredDriver, ReceivingDriver):
    """Receives messages from one passthrough address."""

    tells_of_settled = False

    def __init__(
        self,
        links: LinkContext,
        addresses: PassthroughTable,
        terminal: TerminalEnd,
        place: PassthroughAddress,
        *,
        presettled: bool,
        user: str,
    ) -> None:
        super().__init__(links.core, terminal, user)
        self.presettled = presettled
        """True if the receiver gives no outcomes: deliveries count as accepted."""
        self.unsettled = 0
        self.served = 0
        """The sequence number of the last message that it received."""
        self.pending: deque[PassthroughCopy] = deque()
        """Multicast copies for which the receiver has no credit yet (C33)."""
        self._addresses = addresses
        self._transactions = links.transactions
        self._place = place
        self._is_full = self._draining = False

    def join(self) -> None:
        """Join the address, which is routable now; the channel is open."""
        self._addresses.use(self._place)
        self._place.add(self)

    def room(self) -> int:
        return 0 if self._is_full else self._limit - self._forwarded

    @property
    def credit(self) -> int:
        return max(0, self.room())

    def request(self, limit: int, drain: bool) -> None:
        self._limit = limit
        self._draining = drain
        self._send_more()

    def _send_more(self) -> None:
        """Send what waits, then return the credit if the client drains."""
        if self._place.multicast:
            self.send_pending()
        else:
            self._place.hand_out()
        if self._draining and not self._is_full:
            self._draining = False
            self.terminal.drained(self._spend(self._limit))

    def _go_on(self) -> None:
        """Send more, as the client has read what was sent ahead."""
        self._is_full = False
        self._send_more()

    def send_pending(self) -> None:
        """Send as many messages as it has credit for."""
        count = min(self.room(), len(self.pending))
        if count > 0:
            self.take([self.pending.popleft() for _ in range(count)])

    def take(self, messages: Sequence[PassthroughCopy]) -> None:
        """Send these."""
        self._forwarded += len(messages)
        if not self.presettled:
            self.unsettled += len(messages)
        forward: list[Forward] = []
        finished: list[ForwardedDelivery] = []
        ahead_bytes = 0
        for passage, content in messages:
            forward.append((passage, content))
            arriving = passage.arriving
            if isinstance(content, StreamCursor) and arriving is not None:
                arriving.copies[content] = self
                if not arriving.ended:
                    continue
            if self.presettled or passage.settled:
                ahead_bytes += passage.size_bytes
                if passage.hear(ACCEPTANCE):
                    finished.append(passage)
        self.terminal.forward(forward)
        if ahead_bytes:
            self._is_full = not self._sent_ahead.add(ahead_bytes, self._go_on)
        finish(finished)

    def taken_back(self) -> None:
        """Handle that a message in pieces was aborted."""
        if not self.presettled:
            self.unsettled -= 1

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Pass the client's outcomes on to the senders (C12, C57, C58)."""
        self.unsettled -= len(outcomes)
        settle: list[tuple[Delivery, int]] = []
        finished: list[ForwardedDelivery] = []
        for outcome in outcomes:
            delivery, passage = outcome.delivery, outcome.tag
            if passage.hear(outcome):
                finished.append(passage)
            if delivery is not None:
                settle.append((delivery, outcome.state))
        finish(finished)
        if settle:
            self.terminal.settle(settle)

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        """Close the receiver: its unsettled messages are modified, or released if it detached properly."""
        self._sent_ahead.close()
        self._place.remove(self)
        left = Outcome(None, None, MODIFIED, True) if lost else Outcome(None, None, RELEASED)
        finished: list[ForwardedDelivery] = []
        for passage in returned:
            if passage.arriving is not None:
                passage.arriving.drop(self)
            if passage.hear(left):
                finished.append(passage)
        while self.pending:
            passage, content = self.pending.popleft()
            if passage.arriving is not None and isinstance(content, StreamCursor):
                passage.arriving.drop_copy(content)
            if passage.hear(Outcome(None, None, RELEASED)):
                finished.append(passage)
        finish(finished)
        self._addresses.look_whether_over(self._place)
