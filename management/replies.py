"""Where responses go: to the links that a client receives from `$management` on, or to a node. Core only."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..broker.entry import Entry
from ..broker.exchange import queues_through
from ..broker.memory import ENTRY_BYTES
from ..broker.places import ExchangePlace
from ..broker.queue import Queue
from ..channel.words import Fragment, Outcome, TerminalEnd

if TYPE_CHECKING:
    from ..broker.broker import Broker

log = logging.getLogger(__name__)

MOST_WAITING_BYTES = 8 << 20
"""Responses that a link may have waiting for its client's credit: beyond that no request is taken for it."""


class Receiver:
    """The driver of a link whose source is `$management`."""

    def __init__(self, terminal: TerminalEnd, gone: Callable[[Receiver], None]) -> None:
        self.terminal = terminal
        self.waiting_bytes = 0
        self._waiting: deque[bytes] = deque()
        self._limit = 0
        self._forwarded = 0
        self._gone = gone

    def reply(self, content: bytes) -> None:
        self._waiting.append(content)
        self.waiting_bytes += len(content)
        self._forward()

    def _forward(self) -> None:
        contents = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._limit - self._forwarded))]
        if contents:
            self.waiting_bytes -= sum(map(len, contents))
            self._forwarded += len(contents)
            self.terminal.forward([(self, content) for content in contents])

    # ---- the client -----------------------------------------------------------------------------------------------

    def post(self, fragments: Sequence[Fragment]) -> None:
        """A client that receives sends nothing."""

    def post_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        """The same."""

    def request(self, limit: int, drain: bool) -> None:
        self._limit = limit
        self._forward()
        if drain:
            spent = max(0, limit - self._forwarded)
            self._forwarded += spent
            self.terminal.drained(spent)

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """A response is gone with its delivery, whatever the client says of it."""
        settle = [(outcome.delivery, outcome.state) for outcome in outcomes if outcome.delivery is not None]
        if settle:
            self.terminal.settle(settle)

    def outcomes_in(self, connection: object, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        """The same, whatever becomes of the transaction."""
        settle = [
            (one.delivery, one.state, one.tag) for _, one in provisional if one.delivery is not None and one.state
        ]
        if settle:
            self.terminal.settle_in(settle, _nothing)

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        self._waiting.clear()
        self._gone(self)


def put(broker: Broker, place: Queue | ExchangePlace, content: bytes) -> None:
    """A response goes to a node, as a message that is not durable. If there is no room for it, it is dropped."""
    queues: Sequence[Queue]
    if isinstance(place, Queue):
        queues = (place,)
    else:
        queues = queues_through(broker.nodes.exchanges, place.exchange, place.key, content)
    size_bytes = len(content) + ENTRY_BYTES
    for queue in queues:
        if queue.going or queue.spare_bytes() < size_bytes:
            about = {"queue": queue.name}
            log.warning("queue %s: a response of management is dropped for lack of room", queue.name, extra=about)
        elif queue.gate is None or queue.gate.look_at(content, len(content)) == "":
            entry = Entry(0, next(queue.positions), content, size_bytes)
            broker.line.show(0, [(queue, [entry])], _nothing)


def _nothing() -> None:
    """Nobody waits to hear of it."""
