"""Two linked links: a client's, and the one to another container that was requested for it (router guide C60, C52).

Each is one `LinkHalf`, which passes on the actions of its peer to the other: messages, complete or in pieces; credit
and drain; outcomes and settlement, in both directions; the end, with its error. Nothing is stored or decided here.

The bytes by which a sender is ahead of the outgoing link are limited: beyond `AHEAD_BYTES` its link is held, as in
`passthrough.sender`. Marks measure the progress of the other link: a message in every `MARK_BYTES` reports that it was
sent. Core only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...amqp.codec.annotated_message import AnnotatedMessage
from ...amqp.links.attach import ABSENT, SECOND
from ...amqp.native.proton_ffi import MODIFIED, RELEASED
from ...amqp.ports import (
    ABORTED,
    MORE,
    SETTLED,
    Answer,
    Attach,
    Delivery,
    Error,
    Forward,
    Fragment,
    Open,
    Outcome,
    OutwardEnd,
    StreamCursor,
    TerminalEnd,
)
from ..links.context import LinkContext
from ..passthrough.delivery import UnstoredDriver

AHEAD_BYTES = 1 << 20
MARK_BYTES = 64 << 10


class LinkHalf(UnstoredDriver):
    """One half of a pair of links (`amqp.ports.RoutedEnd`)."""

    other: LinkHalf

    def __init__(self, joint: LinkPair, links: LinkContext) -> None:
        self.is_closed = False
        self._joint = joint
        self._core = links.core
        self._transactions = links.transactions
        self._limit = 0
        """Messages that the peer of this link has requested from the other link since the beginning."""
        self._drain = False
        self._unanswered: dict[Delivery, tuple[Delivery, int]] = {}
        """Deliveries with an outcome of the peer that are not settled yet, by the delivery on the other link."""
        self._cursor: StreamCursor | None = None
        """The message that is arriving in pieces on this link."""
        self._streams: list[StreamCursor] = []
        self._sent_bytes = self._marked_bytes = self._taken_bytes = 0
        """Bytes of complete messages: passed on; up to the last mark; up to the last mark that was sent."""
        self._ahead_bytes = 0
        """The bytes ahead, as counted in the memory budget."""
        self._held = False

    def receive(self, fragments: Sequence[Fragment]) -> None:
        if self.other.is_closed:
            return
        forward: list[Forward] = []
        done: list[Delivery] = []
        for delivery, data, flags in fragments:
            if flags & (MORE | ABORTED) or self._cursor is not None:
                if forward:
                    self.other.terminal.forward(forward)
                    forward = []
                self._grow(delivery, data, flags, done)
            elif flags & SETTLED:
                forward.append((None, AnnotatedMessage(b"", data, settled=True, on_taken=self._mark(len(data)))))
                done.append(delivery)
            else:
                mark = self._mark(len(data))
                forward.append((delivery, data if mark is None else AnnotatedMessage(b"", data, on_taken=mark)))
        if forward:
            self.other.terminal.forward(forward)
        if done:
            self.terminal.release(done, 0)
        self._look()

    def _mark(self, size_bytes: int) -> Callable[[], None] | None:
        """Count a complete message that is passed on; return its callback for when it is sent, if it has a mark."""
        sent_bytes = self._sent_bytes = self._sent_bytes + size_bytes
        if sent_bytes - self._marked_bytes < MARK_BYTES:
            return None
        self._marked_bytes = sent_bytes
        post, taken = self._core.post, self._taken
        return lambda: post(taken, sent_bytes)

    def _taken(self, sent_bytes: int) -> None:
        self._taken_bytes = sent_bytes
        self._look()

    def _grow(self, delivery: Delivery, data: bytes, flags: int, done: list[Delivery]) -> None:
        """Pass on one more piece of a message that arrives in pieces."""
        cursor = self._cursor
        if flags & ABORTED:
            done.append(delivery)
            if cursor is not None:
                self._abort(cursor)
            return
        if cursor is None:
            cursor = self._cursor = StreamCursor(lambda: self._core.post(self._look))
            self._streams.append(cursor)
            self.other.terminal.forward([(delivery, cursor)])
        if data:
            cursor.write(data)
        if not flags & MORE:
            self._cursor = None
            if flags & SETTLED:
                cursor.settled = True
                done.append(delivery)
            cursor.end()
        self.other.terminal.more()

    def _abort(self, cursor: StreamCursor) -> None:
        self._cursor = None
        self._streams.remove(cursor)
        cursor.abort()
        self.other.terminal.more()

    def drained(self, given_back: int) -> None:
        self.other.terminal.drained(given_back)

    def settled(self, delivery: Delivery) -> None:
        found = self.other._unanswered.pop(delivery, None)
        if found is not None:
            self.other.terminal.settle([found])

    def _look(self) -> None:
        """Hold the link if it is too far ahead of the other one, and resume it otherwise."""
        if self.is_closed or self.other.is_closed:
            return
        held = self._count() > (AHEAD_BYTES // 2 if self._held else AHEAD_BYTES)
        while held and self._marked_bytes == self._taken_bytes:  # no mark reports progress: a stream has to
            behind = [stream.is_behind(stream.backlog_bytes // 2) for stream in self._streams]
            if any(behind):
                break
            held = self._count() > AHEAD_BYTES // 2
        if held != self._held:
            self._held = held
            if held:
                self.terminal.hold()
            else:
                self.terminal.go_on()

    def _count(self) -> int:
        """Return the bytes by which the link is ahead of the other one, and account for them in the memory budget."""
        self._streams = [one for one in self._streams if one is self._cursor or one.backlog_bytes]
        ahead_bytes = self._sent_bytes - self._taken_bytes + sum(one.backlog_bytes for one in self._streams)
        self._core.memory.used_bytes += ahead_bytes - self._ahead_bytes
        self._ahead_bytes = ahead_bytes
        return ahead_bytes

    def request(self, limit: int, drain: bool) -> None:
        more = limit - self._limit
        if more or drain != self._drain:
            self._limit, self._drain = limit, drain
            self.other.terminal.ask(more, drain=drain)

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Pass outcomes to the sender on the other link; deliveries are settled when the sender settles (C58)."""
        answers: list[Answer] = []
        settle: list[tuple[Delivery, int]] = []
        for delivery, tag, state, failed, undeliverable, error, its_annotations in outcomes:
            answers.append(Answer(tag, state, failed, undeliverable, error, its_annotations))
            if delivery is None:
                continue
            if self._joint.settles_second and not self.other.is_closed:
                self._unanswered[tag] = delivery, state
            else:
                settle.append((delivery, state))
        if not self.other.is_closed:
            self.other.terminal.tell(answers, 0)
        if settle:
            self.terminal.settle(settle)

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        """Close the pair: return messages to the sender on the other link, and close that link, too."""
        if returned and not self.other.is_closed:
            state = MODIFIED if lost else RELEASED
            self.other.terminal.tell([Answer(tag, state, failed=lost) for tag in returned], 0)
        if self.is_closed:
            return
        self.is_closed = True
        self._core.memory.used_bytes -= self._ahead_bytes
        self._ahead_bytes = 0
        if not self.other.is_closed:
            if self._cursor is not None:
                self._abort(self._cursor)
            self._joint.ended(self, lost=lost, for_good=for_good)


class LinkPair:
    """A client's link, and the one to another container."""

    def __init__(
        self,
        links: LinkContext,
        connector: str,
        prefix: str,
        attach: Open,
        terminal: TerminalEnd,
        over: Callable[[LinkPair], None],
    ) -> None:
        """*prefix*: the prefix of the client's addresses that those of the other container lack."""
        self.connector = connector
        self._prefix = prefix
        self.attach = attach
        self.name = ""
        """The name of the link at the other container."""
        self.settles_second = False
        self._over = over
        self._near, self._far = LinkHalf(self, links), LinkHalf(self, links)
        self._near.other, self._far.other = self._far, self._near
        self._near.terminal = terminal
        self._answered = False

    def begin(self, connection: OutwardEnd, asked: Attach) -> None:
        """Ask the other container."""
        self.name = asked.name
        self._far.terminal = connection.attach(asked, self._far, self._opened, sends=not self.attach.to_client)

    def _opened(self, found: Attach) -> None:
        """Handle the peer's answer to the attach. If it refuses the link, its detach follows."""
        end = found.source if self.attach.to_client else found.target
        if self._far.is_closed or end.kind == ABSENT:
            return
        self._answered = True
        self.settles_second = found.rcv_settle_mode == SECOND
        if self._prefix and end.address:  # many clients take another address than they asked for as a refusal
            end = end._replace(address=self._prefix + end.address)
            found = found._replace(target=end) if not self.attach.to_client else found._replace(source=end)
        self._near.terminal.opened_as(self._near, found)

    def ended(self, half: LinkHalf, *, lost: bool, for_good: bool) -> None:
        """End the pair: one of its links is closed."""
        asked = self.attach.attach
        assert asked is not None
        end = asked.source if self.attach.to_client else asked.target
        for_good = for_good or (lost and not end.lasts)  # many clients wait forever after a detach without closed
        if half is self._far:
            broke = Error("amqp:link:detach-forced", f"the connection to {self.connector!r} broke")
            self._near.terminal.leave(broke if lost else half.terminal.error, for_good=for_good)
            self._near.is_closed = self._near.is_closed or not self._answered
        else:
            self._far.terminal.leave(half.terminal.error, for_good=for_good)
        self._over(self)
