"""Consumers: the ends of channels on which a client receives."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol

from ...amqp.codec.primitives import Malformed
from ...amqp.native.proton_ffi import ACCEPTED, MODIFIED, REJECTED
from ...amqp.ports import Content, ContentRemoved, DriverEnd, Forward, Outcome, StreamCursor
from ...amqp091.arguments import queue_address
from ...amqp091.conversion import Departure, outgoing
from ...base.errors import CairnError
from .end import End, Host

WINDOW = 1000
"""Messages without a prefetch limit that the core may send ahead of what the client has taken."""
MOST_UNSETTLED = 100_000
"""Messages that one consumer without a prefetch limit may have without an outcome."""
MOST_START_BYTES = 256 << 10
"""The size of the sections before the body of a long message; beyond it, the message is passed over."""
_PIECE_BYTES = 64 << 10


class Receiving(Protocol):
    """The channel of a consumer."""

    number: int

    def consumer_opened(self, consumer: Consumer) -> None:
        """Handle that a consumer was opened."""

    def consumer_failed(self, consumer: Consumer, condition: str, description: str) -> None:
        """Handle that a consumer could not be opened, or was closed."""

    def deliver(self, consumer: Consumer, tag: Any, start: Departure) -> None:
        """Begin the delivery of a message, whose body follows."""

    def send_body(self, piece: bytes) -> None:
        """Send a part of the body."""

    def has_messages(self, consumer: Consumer) -> None:
        """Have *consumer* send its messages, when there is room."""

    def drained(self, consumer: Consumer) -> None:
        """Handle that a queue had no message for a `basic.get`."""


class _Body(NamedTuple):
    """The rest of the body of a long message."""

    rest: Content | StreamCursor
    next_piece: int
    left_bytes: int


class Consumer(End):
    """The end of one channel from a queue."""

    def __init__(self, host: Host, channel: Receiving, tag: str, queue: str, *, no_ack: bool, prefetch: int) -> None:
        """*prefetch*: messages that may be unsettled; 0 for no limit."""
        super().__init__(host)
        self.tag, self.queue = tag, queue
        self.no_ack = no_ack
        self.prefetch = prefetch
        self.unsettled = 0
        """Messages that the client has."""
        self.outcomes: list[Outcome] = []
        """Outcomes since the last flush."""
        self.is_leaving = False
        """The client cancelled it; its unsettled messages may still be settled."""
        self.gets = False
        """True for the one message of a `basic.get`."""
        self.has_got = False
        """True if it was sent a message."""
        self.is_announced = False
        """The client knows that it consumes, or asked for no answer."""
        self.outbox: deque[Forward] = deque()
        self._channel = channel
        self._settled = self._sent = self._limit = 0
        self._body: _Body | None = None
        self._on_sent: deque[tuple[int, Callable[[], None]]] = deque()

    def start(self) -> None:
        self.open(
            to_client=True, address=queue_address(self.queue), session=self._channel.number, presettled=self.no_ack
        )

    @property
    def has_output(self) -> bool:
        return bool(self.outbox) or self._body is not None

    @property
    def is_within_body(self) -> bool:
        """Return whether a part of the body of a message was sent, and the rest was not."""
        return self._body is not None

    def unsent(self) -> list[Any]:
        """Return the tags of messages that were not sent to the client."""
        return [tag for tag, _ in self.outbox]

    def give_back(self, tags: Sequence[Any]) -> None:
        """Give messages back that were not sent to the client."""
        if tags and self.driver is not None and not self.is_closed:
            self.host.core.post(self.driver.outcomes, [Outcome(None, tag, MODIFIED) for tag in tags])

    # ---- on the core: queue it ------------------------------------------------------------------------------------

    def forward(self, messages: Sequence[Forward]) -> None:
        self.host.note(self._do_forward, messages)

    def more(self) -> None:
        self.host.note(self._channel.has_messages, self)

    def when_sent(self, done: Callable[[], None]) -> None:
        self.host.note(self._do_when_sent, done)

    def recall(self, tags: Collection[Any], done: Callable[[], None]) -> None:
        self.host.note(self._do_recall, tags, done)

    def drained(self, spent: int) -> None:
        self.host.note(self._do_drained, spent)

    # ---- on the worker: do it -------------------------------------------------------------------------------------

    def _do_opened(self, driver: DriverEnd, credit: int) -> None:
        if self.take(driver):
            self._channel.consumer_opened(self)
            self.request()

    def _do_fail(self, condition: str, description: str) -> None:
        self.close()
        self._channel.consumer_failed(self, condition, description)

    def request(self) -> None:
        """Request as many messages as the client may have."""
        if self.driver is None or self.is_closed or self.is_leaving or self.gets:
            return
        if self.no_ack:
            wanted = self._sent + WINDOW
        else:
            wanted = self._settled + (self.prefetch or min(self._sent - self._settled + WINDOW, MOST_UNSETTLED))
        if wanted > self._limit + (0 if self.prefetch else WINDOW // 2) or not self._limit:
            self._limit = wanted
            self.host.core.post(self.driver.request, wanted, False)

    def get(self) -> None:
        """Request one message; `drained` reports an empty queue."""
        assert self.driver is not None
        self._limit += 1
        self.host.core.post(self.driver.request, self._limit, True)

    def stop(self) -> list[Any]:
        """Request nothing more; return the tags of messages that were not sent to the client."""
        self.is_leaving = True
        unsent = self.unsent()
        self.outbox.clear()
        if self.driver is not None and not self.is_closed:
            self.host.core.post(self.driver.request, 0, False)
        return unsent

    def settled(self, tag: Any, *, accepted: bool, requeue: bool) -> None:
        """Take the outcome of a message."""
        self.unsettled -= 1
        self._settled += 1
        state = ACCEPTED if accepted else MODIFIED if requeue else REJECTED
        self.outcomes.append(Outcome(None, tag, state, failed=requeue))

    def flush(self) -> None:
        """Pass on the outcomes, and request more messages for them."""
        outcomes, self.outcomes = self.outcomes, []
        if self.driver is not None and not self.is_closed:
            if outcomes:
                self.host.core.post(self.driver.outcomes, outcomes)
            self.request()

    def _do_forward(self, messages: Sequence[Forward]) -> None:
        if self.is_closed or self.host.closed or self.is_leaving:
            assert self.driver is not None
            tags = [tag for tag, _ in messages]
            if self.is_leaving and not self.is_closed:  # they were on their way when the client cancelled
                self.give_back(tags)
            else:
                self.host.core.post(self.driver.close, tags, False, True)
            return
        self.outbox.extend(messages)
        self._channel.has_messages(self)

    def _do_when_sent(self, done: Callable[[], None]) -> None:
        waiting = len(self.outbox) + (self._body is not None)
        if waiting:
            self._on_sent.append((self._sent + len(self.outbox), done))
        else:
            self.host.core.post(done)

    def _do_recall(self, tags: Collection[Any], done: Callable[[], None]) -> None:
        wanted = set(tags)
        self.outbox = deque([message for message in self.outbox if message[0] not in wanted])
        self.host.core.post(done)

    def _do_drained(self, spent: int) -> None:
        self._channel.drained(self)

    def pump(self, most_bytes: int) -> int:
        """Send waiting messages to the client, about *most_bytes*; return the number of bytes of their content."""
        sent_bytes = 0
        while sent_bytes < most_bytes and not self.is_closed:
            if self._body is not None:
                size = self._send_body()
                if not size:
                    break
                sent_bytes += size
            elif self.outbox:
                tag, content = self.outbox.popleft()
                sent_bytes += self._begin(tag, content)
            else:
                break
        while self._on_sent and self._sent >= self._on_sent[0][0] and self._body is None:
            self.host.core.post(self._on_sent.popleft()[1])
        if sent_bytes and not self.prefetch:
            self.request()
        return sent_bytes

    def _begin(self, tag: Any, content: bytes | Content | StreamCursor) -> int:
        """Begin the delivery of a message; return the number of bytes that were sent."""
        try:
            if isinstance(content, bytes):
                data, rest, piece = content, None, 0
            else:
                data, rest, piece = self._first_pieces(content)
            start = outgoing(data)
        except (Malformed, CairnError, ContentRemoved) as error:
            assert self.driver is not None
            outcome = Outcome(None, tag, MODIFIED, undeliverable=True, failed=True)
            if not self.no_ack:
                self.host.core.post(self.driver.outcomes, [outcome])
            self._channel.consumer_failed(self, "amqp:internal-error", f"a message can't be sent: {error}")
            return 0
        if start.body_bytes < 0:
            if rest is not None:
                data, rest = self._whole(data, rest, piece), None
            start = start._replace(body_bytes=len(data) - start.body_at)
        self._sent += 1
        self.unsettled += not self.no_ack
        body = data[start.body_at : start.body_at + start.body_bytes]
        self._channel.deliver(self, tag, start)
        if body:
            self._channel.send_body(body)
        left = start.body_bytes - len(body)
        if left and rest is not None:
            self._body = _Body(rest, piece, left)
        return len(data)

    def _first_pieces(self, content: Content | StreamCursor) -> tuple[bytes, Content | StreamCursor, int]:
        """Return the beginning of a long message up to its body, the rest, and the number of its next piece."""
        data, number = b"", 0
        while True:
            if isinstance(content, StreamCursor):
                piece = content.take(_PIECE_BYTES)
            else:
                piece = content.piece(number)
                number += 1
            data += piece
            try:
                if outgoing(data).body_at < len(data):
                    return data, content, number
            except Malformed:
                if not piece or len(data) > MOST_START_BYTES:
                    raise
            if not piece:
                raise Malformed("the message ends before its body")

    def _whole(self, data: bytes, rest: Content | StreamCursor, number: int) -> bytes:
        parts = [data]
        if isinstance(rest, StreamCursor):
            while not rest.at_end:
                parts.append(rest.take(_PIECE_BYTES))
        else:
            parts += [rest.piece(one) for one in range(number, rest.pieces)]
        return b"".join(parts)

    def _send_body(self) -> int:
        """Send the next part of the body of a long message; return its size, 0 if it is not there yet."""
        assert self._body is not None
        rest, number, left = self._body
        try:
            piece = rest.take(_PIECE_BYTES) if isinstance(rest, StreamCursor) else rest.piece(number)
        except (CairnError, ContentRemoved) as error:
            self._body = None
            self._channel.consumer_failed(self, "amqp:internal-error", f"a message can't be sent: {error}")
            return 0
        piece = piece[:left]
        if piece:
            self._channel.send_body(piece)
            left -= len(piece)
            self._body = _Body(rest, number + 1, left) if left else None
        return len(piece)
