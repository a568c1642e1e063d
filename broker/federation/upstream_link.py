"""The common part of drivers of links to downstreams at other sites. Core only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...amqp.codec import encode
from ...amqp.codec.types import Symbol, Ulong
from ...amqp.native.proton_ffi import ACCEPTED
from ...amqp.ports import Outcome, TerminalEnd
from ..contents.ports import QueueState
from ..kernel.idle_driver import CreditDriver
from ..scheduling.scheduler import Scheduler
from .upstream_states import TABLE, UpstreamEvent, UpstreamState

TICK_S = 1.0
"""Seconds between messages to a downstream while nothing changes."""


LINE, PLACE, AFTER, FOLLOWER = "cairnmq:line", "cairnmq:place", "cairnmq:after", "cairnmq:follower"
"""Properties of a downstream's attach: the position up to which it has the queue, and its name."""


class ReplicaPosition(NamedTuple):
    """The position that a downstream's attach states."""

    line: str
    """The history of the queue that it has; empty for none."""
    place: int
    """The position in that history."""
    after: int
    """The position of an incomplete copy, see `wire_format`."""
    follower: str
    """The name of the downstream."""

    def to_properties(self) -> bytes:
        """Return the encoded properties of the downstream's attach."""
        said = {LINE: self.line, PLACE: Ulong(self.place), AFTER: Ulong(self.after), FOLLOWER: self.follower}
        return encode.value({Symbol(key): one for key, one in said.items()})


class DownstreamLink(CreditDriver):
    """The driver of a link to a downstream broker, independent of the source of its messages."""

    def __init__(
        self,
        scheduler: Scheduler,
        ended: Callable[[DownstreamLink], None],
        terminal: TerminalEnd,
        queue: QueueState,
        follower: str,
        place: int,
    ) -> None:
        super().__init__()
        self.terminal = terminal
        self.queue = queue
        self.follower = follower
        self.place = place
        """The position up to which the downstream has the queue on disk."""
        self._scheduler = scheduler
        self._ended = ended
        self._phase = UpstreamState.PREPARING

    @property
    def behind_bytes(self) -> int:
        """Return the bytes of the log, of all queues, that are not sent yet; 0 where the feed does not read the log."""
        return 0

    @property
    def behind_messages(self) -> int:
        """Return how many enqueues and dequeues of a replicated queue are not sent yet; 0 for other queues."""
        return 0

    def go_on(self) -> None:
        """Send more, if there is more and the downstream has room."""
        raise NotImplementedError

    def _idle_message(self) -> bytes | None:
        """Return the message that reports that nothing has changed; None if something has."""
        raise NotImplementedError

    def _moved(self) -> None:
        """Handle that the downstream has made progress: nothing to do for a feed that keeps no messages for it."""

    def _forget(self) -> None:
        """Release what is kept for the downstream, which does not come back: nothing, unless the feed keeps state."""

    def _begin(self) -> None:
        """Begin the feed."""
        self.terminal.opened(self, None, 0)
        self._scheduler.after(TICK_S, self._tick)

    def _forward(self, messages: Sequence[tuple[int, bytes]]) -> None:
        """Forward messages, each with the place of the step that ends with it; 0 if none does."""
        if messages:
            self._forwarded += len(messages)
            self.terminal.forward([*messages])

    def _handle(self, event: UpstreamEvent) -> None:
        self._phase = TABLE.get((self._phase, event), self._phase)

    def _tick(self) -> None:
        if self._phase is UpstreamState.OVER:
            return
        if self._forwarded < self._limit and (said := self._idle_message()) is not None:
            self._forward([(0, said)])
        self._scheduler.after(TICK_S, self._tick)

    def _end(self) -> None:
        self._handle(UpstreamEvent.ENDED)
        self._ended(self)

    def request(self, limit: int, drain: bool) -> None:
        self._limit = limit
        if drain:
            self.terminal.drained(self._spend(limit))
        self.go_on()

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Advance the position past accepted messages, which the downstream has on disk, and settle them."""
        for outcome in outcomes:
            if outcome.state == ACCEPTED:
                self.place = max(self.place, outcome.tag)
        super().outcomes(outcomes)
        self._moved()

    def outcomes_in(self, connection: object, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        self.terminal.failure("amqp:not-allowed", "deliveries to a downstream broker can't be part of a transaction")

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        if for_good and self._phase is not UpstreamState.OVER:  # it does not come back
            self._forget()
        self._end()
