"""A sender of messages to a broker, byte for byte, each confirmed: the common part of a re-send and a replay.

Messages are sent in order, over one connection with a link per address, at their due times or as fast as the broker
accepts them. The number of unconfirmed messages is limited. If sending ends early, the result names the first message
without an outcome: all earlier ones have one.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from os import getpid
from socket import gethostname
from time import monotonic
from typing import Any, NamedTuple

from ...amqp.client.links import Sender
from ...amqp.client.login import BrokerLogin
from ...amqp.client.loop import Loop
from ...amqp.client.management import require_node
from ...amqp.client.wire import LinkRefused, Wire, outcome_of
from ...amqp.codec.types import Described
from ...amqp.frames import performatives as p
from ...base.clock import now_ns
from ...base.errors import BrokerError, CairnError

WINDOW_MESSAGES = 1000
WINDOW_BYTES = 64 << 20
"""The maximum number and size of messages without an outcome; one message may exceed the size."""
SILENCE_S = 60.0
"""The timeout for a broker from which an answer is expected."""
_LOOK_MS = 200
"""The longest time until an interruption is noticed."""
_TELL_S = 1.0
_AHEAD_BYTES = 1 << 20
"""No more messages are sent while so many bytes wait for the socket."""
_OUTCOMES = {p.ACCEPTED: "accepted", p.REJECTED: "rejected", p.RELEASED: "released", p.MODIFIED: "modified"}


class OutgoingMessage(NamedTuple):
    """A message in the source of a bulk sender."""

    token: int
    """The name of its place in the source, rising."""
    address: str
    content: bytes
    due_s: float = 0.0
    """The due time since the start."""


@dataclass
class SendResult:
    """The outcomes of the messages."""

    outcomes: Counter[str] = field(default_factory=Counter)
    sent_bytes: int = 0
    refused: list[tuple[int, str]] = field(default_factory=list)
    """The tokens of the first of them that were not accepted, and what the broker said."""
    next_token: int | None = None
    """The first message without an outcome; None if all have one."""
    failure: str = ""
    """The error that ended it early."""
    seconds: float = 0.0
    late_s: float = 0.0
    """The longest delay behind the schedule."""
    latencies_s: array[float] = field(default_factory=lambda: array("f"))

    @property
    def accepted(self) -> int:
        return self.outcomes["accepted"]

    @property
    def is_complete(self) -> bool:
        return not self.failure and self.next_token is None and self.outcomes.total() == self.accepted

    def percentile_ms(self, share: float) -> float:
        """Return a percentile of the time from sending a message to its outcome."""
        ordered = sorted(self.latencies_s)
        return 1000 * ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


class BulkSender:
    """One run. `run` returns when all messages have an outcome, or an error has ended it."""

    def __init__(
        self, where: BrokerLogin, source: Iterator[OutgoingMessage], report: Callable[[int], None], required: str = ""
    ) -> None:
        """*report* gets, now and then, how many have an outcome. *required*: an address that must exist, if any."""
        self.result = SendResult()
        self._where = where
        self._source = source
        self._report = report
        self._required = required
        self._next: OutgoingMessage | None = None
        self._links: dict[str, Sender] = {}
        self._numbers = count()
        self._waiting: dict[int, OutgoingMessage] = {}
        """Messages that were sent and have no outcome, by number."""
        self._waiting_bytes = 0
        self._is_drawn = self._is_interrupted = False
        self._wire: Wire | None = None
        self._begun_s = self._received_s = monotonic()

    def run(self) -> SendResult:
        name = f"cairnmq-sending@{gethostname()}-{getpid()}"
        try:
            if self._required:
                require_node(self._where, name, self._required)
            self._run(name)
        except LinkRefused as error:
            self._fail(f"{error.address}: the broker refuses it: {error.reason}")
        except BrokerError as error:
            self._fail(str(error))
        finally:
            if self._wire is not None:
                self._wire.close()
        self._report(self.result.outcomes.total())
        tokens = [message.token for message in self._waiting.values()]
        if self._next is not None:
            tokens.append(self._next.token)
        self.result.next_token = min(tokens, default=None)
        self.result.seconds = monotonic() - self._begun_s
        return self.result

    def interrupt(self) -> None:
        """Send no more, and end when what was sent has its outcome. For signal handlers, and any thread."""
        self._is_interrupted = True

    def step(self) -> int:
        """Send what can be sent now (`client_loop.Client`)."""
        wire = self._wire
        assert wire is not None
        while not self._is_over and len(self._waiting) < WINDOW_MESSAGES:
            if wire.window <= 0 or wire.waiting_bytes > _AHEAD_BYTES:
                break
            if self._next is None:
                self._next = self._draw()
            message = self._next
            if message is None:
                break
            now_s = monotonic() - self._begun_s
            if message.due_s > now_s:
                return now_ns() + int((message.due_s - now_s) * 1e9)
            if self._waiting and self._waiting_bytes + len(message.content) > WINDOW_BYTES:
                break
            link = self._link_to(wire, message.address)
            if not link.attached or link.credit <= 0:
                break
            if message.due_s:
                self.result.late_s = max(self.result.late_s, now_s - message.due_s)
            self._send(link, message)
        return 0

    def _run(self, name: str) -> None:
        wire = self._wire = Wire(self._where, name)
        loop = Loop()
        loop.add(wire, [self])
        self._begun_s = self._received_s = reported_s = monotonic()
        while not self._is_done:
            loop.turn(_LOOK_MS)
            now_s = monotonic()
            if now_s - reported_s > _TELL_S:
                reported_s = now_s
                self._report(self.result.outcomes.total())
            message = self._next
            is_early = message is not None and message.due_s > now_s - self._begun_s
            if is_early and not self._waiting:
                self._received_s = now_s
            elif now_s - self._received_s > SILENCE_S:
                self._fail(f"no response from the broker for {SILENCE_S:.0f} s: it grants no credit, or is stuck")
        if self._is_interrupted and (self._next is not None or not self._is_drawn):
            self._fail("interrupted")

    @property
    def _is_over(self) -> bool:
        """No message is begun any more."""
        return bool(self.result.failure) or self._is_interrupted or (self._is_drawn and self._next is None)

    @property
    def _is_done(self) -> bool:
        return bool(self.result.failure) or (self._is_over and not self._waiting)

    def _fail(self, reason: str) -> None:
        self.result.failure = self.result.failure or reason

    def _draw(self) -> OutgoingMessage | None:
        try:
            found = next(self._source, None)
        except CairnError as error:
            self._fail(str(error))
            return None
        self._is_drawn = found is None
        return found

    def _link_to(self, wire: Wire, address: str) -> Sender:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = Sender(wire, f"cairnmq-sending-{address}", address)
            wire.attach(link)
            self._received_s = monotonic()
        return link

    def _send(self, link: Sender, message: OutgoingMessage) -> None:
        now_s = monotonic()
        if not self._waiting:
            self._received_s = now_s
        self._next = None
        number = next(self._numbers)
        self._waiting[number] = message
        self._waiting_bytes += len(message.content)
        link.post(message.content, partial(self._settled, number, now_s))

    def _settled(self, number: int, sent_s: float, state: Any) -> None:
        self._received_s = now_s = monotonic()
        message = self._waiting.pop(number)
        self._waiting_bytes -= len(message.content)
        result = self.result
        result.sent_bytes += len(message.content)
        result.latencies_s.append(now_s - sent_s)
        code, fields = outcome_of(state)
        outcome = _OUTCOMES.get(code, "unknown")
        result.outcomes[outcome] += 1
        if outcome != "accepted" and len(result.refused) < 100:
            error = fields[0] if code == p.REJECTED and fields else None
            reason = error.value[1] if isinstance(error, Described) and len(error.value) > 1 else ""
            result.refused.append((message.token, f"{outcome}: {reason}" if reason else outcome))
