"""The bases of drivers of links: one ignores all actions of the peer, the other one counts its credit. Core only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...amqp.ports import Fragment, Outcome, TerminalEnd
from ...base.callbacks import ignore


class IdleDriver:
    """A driver whose subclasses override only the actions that its peer may take (`amqp.ports.DriverEnd`)."""

    def receive(self, fragments: Sequence[Fragment]) -> None:
        """Ignore messages of a peer that receives."""

    def receive_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        """Ignore messages in a transaction of a peer that receives."""

    def request(self, limit: int, drain: bool) -> None:
        """Ignore the credit of a peer that sends."""

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Ignore outcomes where no message was forwarded."""

    def outcomes_in(self, connection: object, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        """Ignore outcomes in a transaction where no message was forwarded."""

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        """Ignore the end of a link on which nothing depends."""


class CreditDriver(IdleDriver):
    """A driver that forwards messages as far as the credit of its peer goes; any outcome of them is final."""

    terminal: TerminalEnd

    def __init__(self) -> None:
        self._limit = 0
        """The messages that the peer has requested since the link was opened."""
        self._forwarded = 0
        """The messages that were forwarded, and the credit that was returned."""

    def room(self) -> int:
        return self._limit - self._forwarded

    @property
    def credit(self) -> int:
        return max(0, self._limit - self._forwarded)

    def _spend(self, limit: int) -> int:
        """Use up the credit up to *limit*, for which no message was found, and return it."""
        spent = max(0, limit - self._forwarded)
        self._forwarded += spent
        return spent

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        settle = [(outcome.delivery, outcome.state) for outcome in outcomes if outcome.delivery is not None]
        if settle:
            self.terminal.settle(settle)

    def outcomes_in(self, connection: object, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        settle = [
            (one.delivery, one.state, one.tag) for _, one in provisional if one.delivery is not None and one.state
        ]
        if settle:
            self.terminal.settle_in(settle, ignore)
