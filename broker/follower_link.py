"""The driver of a link to a follower at another site: what all of them have in common. Core only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..amqp.proton import ACCEPTED
from ..channel.words import Fragment, Outcome, TerminalEnd
from .queue import Queue

if TYPE_CHECKING:
    from .broker import Broker

TICK_S = 1.0
"""How often a follower hears that there is nothing new."""


class Said(NamedTuple):
    """What a follower's attach says."""

    line: str
    """Which history of which queue it has; empty for none."""
    place: int
    """Up to where."""
    after: int
    """See `following_words`."""
    follower: str
    """What it is called."""


class FollowerLink:
    """One of them, wherever what it sends comes from."""

    def __init__(self, broker: Broker, terminal: TerminalEnd, queue: Queue, follower: str, place: int) -> None:
        self.terminal = terminal
        self.queue = queue
        self.follower = follower
        self.place = place
        """Up to where the follower has it on its disk."""
        self._broker = broker
        self._limit = self._forwarded = 0
        self._is_over = False

    @property
    def behind_bytes(self) -> int:
        """Of the log, of all queues, that the follower has not got; 0 where it is not fed from the log."""
        raise NotImplementedError

    @property
    def behind_messages(self) -> int:
        """How many that came or went it has not been sent, of a queue of a cluster; 0 of others."""
        raise NotImplementedError

    def go_on(self) -> None:
        """Send more, if there is more and the follower has room."""
        raise NotImplementedError

    def _idle_message(self) -> bytes | None:
        """What says that there is nothing new, if there is not."""
        raise NotImplementedError

    def _moved(self) -> None:
        """The follower has come further."""
        raise NotImplementedError

    def _forget(self) -> None:
        """The follower does not come back: nothing need be kept for it."""
        raise NotImplementedError

    def _begin(self) -> None:
        """It is fed from now on."""
        self.terminal.opened(self, None, 0)
        self._broker.timers.after(TICK_S, self._tick)

    def _forward(self, messages: Sequence[tuple[int, bytes]]) -> None:
        """Each with the place of the step that ends with it; 0 if none does."""
        if messages:
            self._forwarded += len(messages)
            self.terminal.forward([*messages])

    def _tick(self) -> None:
        if self._is_over:
            return
        if self._forwarded < self._limit and (said := self._idle_message()) is not None:
            self._forward([(0, said)])
        self._broker.timers.after(TICK_S, self._tick)

    def _end(self) -> None:
        self._is_over = True
        self._broker.streams.feeders.pop(self, None)

    # ---- the follower ----------------------------------------------------------------------------------------------

    def post(self, fragments: Sequence[Fragment]) -> None:
        """A follower sends nothing."""

    def post_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        """The same."""

    def request(self, limit: int, drain: bool) -> None:
        self._limit = limit
        if drain:
            spent = max(0, limit - self._forwarded)
            self._forwarded += spent
            self.terminal.drained(spent)
        self.go_on()

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """What the follower has accepted is on its disk."""
        for outcome in outcomes:
            if outcome.state == ACCEPTED:
                self.place = max(self.place, outcome.tag)
        settle = [(outcome.delivery, outcome.state) for outcome in outcomes if outcome.delivery is not None]
        if settle:
            self.terminal.settle(settle)
        self._moved()

    def outcomes_in(self, connection: object, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        self.terminal.failure("amqp:not-allowed", "what a follower gets takes part in no transaction")

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        if for_good and not self._is_over:  # it does not come back
            self._forget()
        self._end()
