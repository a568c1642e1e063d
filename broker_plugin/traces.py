"""Traces of messages: spans around the calls between router and broker, for messages whose trace context is sampled.

`docs/how-to/monitoring.md` lists the spans. The context is the `traceparent` (W3C Trace Context) in the annotations or
application properties; the message itself does not change. Without tracing, none of this is between router and broker.
With tracing, a message costs one search in its first transfer or piece. Content in pieces is searched by the worker,
when it reads the first piece to send it: the core reads nothing from the store. Browsers, and links that are routed
elsewhere, are not traced.

A client that marks each message as sampled costs at most `TraceOptions.limit` traced messages per second, and at most
`MOST_OPEN` unfinished and `MOST_WAITING` finished spans. Messages beyond these limits are counted, and not traced.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from random import getrandbits, random
from time import time_ns
from typing import Any, NamedTuple, cast

from ..amqp.links.resume_state import Arrival, Resumable
from ..amqp.links.values import Content
from ..amqp.ports import ABORTED, MORE, Delivery, DriverEnd, Drivers, Forward, Fragment, Open, Outcome, TerminalEnd
from ..broker.links.consumer import Consumer
from ..broker.links.producer import Producer

Then = Callable[[int], None]
SCAN_BYTES = 4096
MOST_OPEN, MOST_WAITING = 10_000, 10_000
_SECOND_NS = 1_000_000_000
_CONTEXT = re.compile(
    rb"traceparent(?:[\xa1\xa3]\x37|\xb1\0\0\0\x37)(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})"
    rb"-([0-9a-f]{2})"
)


@dataclass(frozen=True)
class TraceOptions:
    """The options of tracing."""

    url: str
    """The OTLP/HTTP endpoint that gets the spans."""
    ratio: float = 0.0
    """The share of messages without a trace context that are traced."""
    limit: int = 1000
    """The maximum number of messages per second whose publishing or delivery is traced."""


class Context(NamedTuple):
    """The trace of a message, and the span that the spans of the broker have as their parent; 0 for none."""

    trace_id: int
    parent_id: int


class Span(NamedTuple):
    """A finished span."""

    name: str
    context: Context
    span_id: int
    start_ns: int
    end_ns: int
    place: str
    """The address or the queue."""
    error: str = ""


class _Searched:
    """Content in pieces, in the first of which the worker searches the context when it reads the piece to send it."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self.pieces = content.pieces
        self.found: bytes | None = None
        """The bytes of the context, empty without one; None until they were searched. The core reads it later."""

    def piece(self, number: int) -> bytes:
        piece = self._content.piece(number)
        if not number:
            match = _CONTEXT.search(piece, 0, SCAN_BYTES)
            self.found = b"" if match is None else match[0]
        return piece


class _Open(NamedTuple):
    """The unfinished spans of a message: of `name`, and of a child that begins at `middle_ns`."""

    context: Context
    start_ns: int
    middle_ns: int = 0
    error: str = ""


class Tracing:
    """Chooses messages and collects their spans. The core adds spans; one other thread takes them."""

    def __init__(self, options: TraceOptions) -> None:
        self._options = options
        self.finished: deque[Span] = deque()
        self.spans = 0
        """The number of finished spans, including those that were dropped later."""
        self.dropped = 0
        """The number of messages that were not traced, and of spans that were dropped, due to a limit or an error."""
        self.open = 0
        """The number of messages with unfinished spans."""
        self.settling: dict[Any, Context] = {}
        """The contexts of messages whose outcomes are being applied, by entry: only the store may have the content."""
        self._second = self._in_second = 0

    def context(self, content: object, now_ns: int) -> Context | None:
        """Return the context of a message that is to be traced; None if it is not."""
        if not isinstance(content, bytes):
            return None
        found = _CONTEXT.search(content, 0, SCAN_BYTES)
        if found is None:
            if random() >= self._options.ratio:
                return None
            context = Context(getrandbits(128) or 1, 0)
        elif int(found[3], 16) & 1:
            context = Context(int(found[1], 16), int(found[2], 16))
        else:
            return None
        if now_ns // _SECOND_NS != self._second:
            self._second, self._in_second = now_ns // _SECOND_NS, 0
        if self._in_second >= self._options.limit or self.open >= MOST_OPEN:
            self.dropped += 1
            return None
        self._in_second += 1
        return context

    def add(self, name: str, context: Context, start_ns: int, end_ns: int, place: str, error: str = "") -> Context:
        """Add a finished span; return the context of its children."""
        span = Span(name, context, getrandbits(64) or 1, start_ns, end_ns, place, error)
        self.spans += 1
        if len(self.finished) >= MOST_WAITING:
            self.dropped += 1
        else:
            self.finished.append(span)
        return Context(context.trace_id, span.span_id)

    def wrap_burial(self, queue: Any, entry: Any, reason: str, then: Then) -> Then:
        """Return *then* with the end of a span; *entry* is moved off *queue* for *reason*."""
        start_ns = time_ns()
        context = self.settling.get(entry) or self.context(entry.content, start_ns)
        return then if context is None else partial(self._dead_lettered, context, start_ns, queue.name, reason, then)

    def _dead_lettered(self, context: Context, start_ns: int, place: str, reason: str, then: Then, lsn: int) -> None:
        self.add("dead-letter", context, start_ns, time_ns(), place, reason)
        then(lsn)


class _Spans:
    """The unfinished spans of one link, by delivery or entry."""

    def __init__(self, tracing: Tracing, names: tuple[str, str, str], place: str) -> None:
        """*names*: of the span, and of its first and second part; an empty name omits a part."""
        self.tracing = tracing
        self._names = names
        self._place = place
        self.open: dict[Any, _Open] = {}
        self.unread: dict[Any, tuple[_Searched, int]] = {}
        """Messages on their way to a client whose contexts are not known yet, and when they were dispatched."""

    def begin(self, key: Any, content: object, now_ns: int, start_ns: int = 0) -> None:
        context = self.tracing.context(content, now_ns)
        if context is not None and key not in self.open:
            self.open[key] = _Open(context, start_ns or now_ns)
            self.tracing.open += 1

    def begin_sending(self, key: Any, content: Any, now_ns: int) -> Any:
        """Begin the spans of a message to a client; return the content to send."""
        if isinstance(content, bytes):
            self.begin(key, content, now_ns)
            return content
        searched = _Searched(content)
        self.unread[key] = searched, now_ns
        return searched

    def pass_middle(self, key: Any, now_ns: int, new_key: Any, error: str = "") -> None:
        """Mark the end of the first part of a message, which is known as *new_key* from now on."""
        searched, start_ns = self.unread.pop(key, (None, 0))
        if searched is not None:
            self.begin(key, searched.found, now_ns, start_ns)
        opened = self.open.pop(key, None)
        if opened is not None:
            self.open[new_key] = opened._replace(middle_ns=now_ns, error=error)

    def end(self, keys: Iterable[Any], error: str = "") -> None:
        if not self.open:
            return
        now_ns = time_ns()
        for key in keys:
            opened = self.open.pop(key, None)
            if opened is None:
                continue
            complete, first, second = self._names
            context, start_ns, middle_ns, reason = opened
            middle_ns = middle_ns or now_ns
            end_ns = now_ns if first else middle_ns
            inner = self.tracing.add(complete, context, start_ns, end_ns, self._place, error or reason)
            if first:
                self.tracing.add(first, inner, start_ns, middle_ns, self._place)
            self.tracing.add(second, inner, middle_ns, now_ns, self._place)
            self.tracing.open -= 1

    def drop(self) -> None:
        self.tracing.open -= len(self.open)
        self.open.clear()
        self.unread.clear()


class _Driver:
    """The driver of a producer or a consumer, with spans. Deliveries that a producer resumes have none."""

    def __init__(self, driver: Any, spans: _Spans) -> None:
        self._driver = driver
        self._spans = spans
        self._is_partial = False
        """True while a message arrives whose last frame is still to come."""
        self.acquire_in = getattr(driver, "acquire_in", None)  # a test of `AcquiringEnd` does not use __getattr__

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def receive(self, fragments: Sequence[Fragment]) -> None:
        self._received(fragments, self._driver.receive, fragments)

    def receive_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        self._received(fragments, self._driver.receive_in, connection, txn_id, fragments)

    def receive_resuming(self, arrivals: Sequence[Arrival]) -> None:
        new = [fragment for fragment, _, is_resumed in arrivals if not is_resumed]
        self._received(new, self._driver.receive_resuming, arrivals)

    def receive_resuming_in(self, connection: object, txn_id: bytes, arrivals: Sequence[Arrival]) -> None:
        new = [fragment for fragment, _, is_resumed in arrivals if not is_resumed]
        self._received(new, self._driver.receive_resuming_in, connection, txn_id, arrivals)

    def _received(self, fragments: Sequence[Fragment], receive: Callable[..., None], *arguments: Any) -> None:
        spans, now_ns = self._spans, time_ns()
        for delivery, content, flags in fragments:
            if flags & ABORTED:
                spans.end((delivery,), "aborted")
            elif not self._is_partial:
                spans.begin(delivery, content, now_ns)
            self._is_partial = flags & (MORE | ABORTED) == MORE
        receive(*arguments)
        if spans.open:
            now_ns = time_ns()
            for delivery, _, flags in fragments:
                if not flags & MORE:
                    spans.pass_middle(delivery, now_ns, delivery)

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        self._settled(outcomes, self._driver.outcomes, outcomes)

    def outcomes_in(self, connection: object, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        self._settled([outcome for _, outcome in provisional], self._driver.outcomes_in, connection, provisional)

    def _settled(self, outcomes: Sequence[Outcome], settle: Callable[..., None], *arguments: Any) -> None:
        spans, settling = self._spans, self._spans.tracing.settling
        if spans.open or spans.unread:
            now_ns = time_ns()
            for outcome in outcomes:
                key = outcome.tag if outcome.delivery is None else outcome.delivery
                reason = "" if outcome.error is None else outcome.error[0]
                spans.pass_middle(outcome.tag, now_ns, key, reason)
                if key in spans.open:
                    settling[outcome.tag] = spans.open[key].context
        settle(*arguments)
        settling.clear()
        spans.end([outcome.tag for outcome in outcomes if outcome.delivery is None])  # settled by the client

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        self._spans.drop()
        self._driver.close(returned, lost, for_good)


_ENDS: dict[str, Callable[..., tuple[Iterable[Delivery], str]]] = {
    "confirm": lambda deliveries, credit: (deliveries, ""),
    "release": lambda deliveries, credit: (deliveries, ""),
    "hand_back": lambda deliveries, credit: (deliveries, "released"),
    "reject": lambda deliveries, credit, condition, reason: (deliveries, condition),
    "refuse_relayed": lambda delivery, condition, reason, is_settled, txn_id=b"": ((delivery,), condition),
    "tell": lambda answers, credit: ([answer.delivery for answer in answers], "not accepted"),
    "accept_in": lambda txn_id, deliveries, credit: (deliveries, ""),
    "reject_in": lambda txn_id, deliveries, credit, condition, reason: (deliveries, condition),
    "settle": lambda settled: ([delivery for delivery, _ in settled], ""),
    "settle_in": lambda settled, done: ([delivery for delivery, _, _ in settled], ""),
}
"""The methods of a terminal that end spans: the deliveries in their arguments, and the error."""


class _Terminal:
    """The worker's end of a channel, as the broker sees it; all that is not here is passed on."""

    def __init__(self, terminal: TerminalEnd, tracing: Tracing, attach: Open) -> None:
        self._terminal = terminal
        names = ("deliver", "", "settle") if attach.to_client else ("publish", "route", "store")
        self._spans = _Spans(tracing, names, attach.terminus.address or attach.link_name)
        self._is_presettled = attach.presettled
        self.driver: DriverEnd | None = None
        for name, ends in _ENDS.items():
            setattr(self, name, partial(self._end, getattr(terminal, name), ends))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._terminal, name)

    def _end(self, method: Callable[..., None], ends: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        """Call *method* of the terminal, and end the spans of the deliveries that it settles."""
        method(*arguments, **options)
        if self._spans.open:
            self._spans.end(*ends(*arguments, **options))

    def opened(self, driver: DriverEnd, address: str | None, credit: int, **more: Any) -> None:
        self.driver = driver
        if isinstance(driver, Producer | Consumer):
            driver = cast(DriverEnd, _Driver(driver, self._spans))
        self._terminal.opened(driver, address, credit, **more)

    def forward(self, messages: Sequence[Forward]) -> None:
        now_ns, spans = time_ns(), self._spans
        if not isinstance(self.driver, Consumer):
            self._terminal.forward(messages)
        elif self._is_presettled:  # memory has all content
            for tag, content in cast(Sequence[tuple[Any, bytes | Content]], messages):
                spans.begin(tag, content if isinstance(content, bytes) else content.piece(0), now_ns)
            self._terminal.forward(messages)
            spans.end([tag for tag, _ in messages])
        else:
            self._terminal.forward([(tag, spans.begin_sending(tag, content, now_ns)) for tag, content in messages])

    def forward_resuming(self, messages: Sequence[Resumable]) -> None:
        now_ns, send = time_ns(), self._spans.begin_sending
        messages = [message._replace(content=send(message.entry, message.content, now_ns)) for message in messages]
        self._terminal.forward_resuming(messages)


class TracedDrivers:
    """Drivers whose links have spans; all that is not here is passed on."""

    def __init__(self, drivers: Drivers, tracing: Tracing) -> None:
        self._drivers = drivers
        self._tracing = tracing
        self._terminals: dict[TerminalEnd, TerminalEnd] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._drivers, name)

    def open(self, attach: Open, terminal: TerminalEnd) -> None:
        traced = cast(TerminalEnd, _Terminal(terminal, self._tracing, attach))
        self._terminals[terminal] = traced
        self._drivers.open(attach, traced)

    def link_closed(self, terminal: TerminalEnd) -> None:
        self._drivers.link_closed(self._terminals.pop(terminal, terminal))


def traced_drivers(drivers: Drivers, burials: list[Any], tracing: Tracing | None) -> Drivers:
    """Return drivers whose links have spans, and add the spans of dead letters; *drivers* without tracing."""
    if tracing is None:
        return drivers
    burials.append(tracing.wrap_burial)
    return cast(Drivers, TracedDrivers(drivers, tracing))
