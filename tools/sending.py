"""Messages sent to a broker as they are, byte for byte, each confirmed: what a re-send and a replay have in common.

They go out in order, over one connection, a link per address, at their time or as fast as they are taken; so many at
once may be unconfirmed. Whatever ends it early, what is told is the first message that has no outcome yet: all before
it have one.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, NamedTuple

from proton import Delivery, SSLDomain
from proton.handlers import MessagingHandler
from proton.reactor import Container

from ..base.errors import CairnError

WINDOW_MESSAGES = 1000
WINDOW_BYTES = 64 << 20
"""So many messages, or bytes, may be without an outcome; one message may have more."""
SILENCE_S = 60.0
"""A broker that says nothing for so long, though it is to, is given up."""
_LOOK_S = 0.2
"""How long it takes at most to notice an interruption."""
_OUTCOMES = {
    Delivery.ACCEPTED: "accepted", Delivery.REJECTED: "rejected", Delivery.RELEASED: "released",
    Delivery.MODIFIED: "modified",
}  # fmt: skip


class Target(NamedTuple):
    """Which broker, and as whom."""

    url: str
    user: str | None = None
    password: str | None = None
    ca: str | None = None


class Outgoing(NamedTuple):
    """A message to be sent."""

    token: int
    """What its place in the source is called, rising."""
    address: str
    content: bytes
    due_s: float = 0.0
    """Since the begin."""


@dataclass
class Sent:
    """What became of them."""

    outcomes: Counter[str] = field(default_factory=Counter)
    sent_bytes: int = 0
    refused: list[tuple[int, str]] = field(default_factory=list)
    """The tokens of the first of them that were not accepted, and what the broker said."""
    next_token: int | None = None
    """The first message without an outcome; None if all have one."""
    failure: str = ""
    """What ended it early."""
    seconds: float = 0.0
    late_s: float = 0.0
    """How far it was behind its times at the worst."""
    latencies_s: array[float] = field(default_factory=lambda: array("f"))

    @property
    def accepted(self) -> int:
        return self.outcomes["accepted"]

    @property
    def is_complete(self) -> bool:
        return not self.failure and self.next_token is None and self.outcomes.total() == self.accepted

    def percentile_ms(self, share: float) -> float:
        """Of the time from sending a message to its outcome."""
        ordered = sorted(self.latencies_s)
        return 1000 * ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


class Sending(MessagingHandler):  # type: ignore[misc]
    """One run. `run` returns when all have an outcome, or something has ended it."""

    def __init__(self, target: Target, source: Iterator[Outgoing], tell: Callable[[int], None]) -> None:
        """*tell* gets, now and then, how many have an outcome."""
        super().__init__(auto_accept=False)
        self.result = Sent()
        self._target = target
        self._source = source
        self._tell = tell
        self._next: Outgoing | None = None
        self._is_over = False
        self._senders: dict[str, Any] = {}
        self._waiting: dict[str, tuple[int, float, int]] = {}  # tag to token, when it was sent, and its size
        self._waiting_bytes = 0
        self._numbers = 0
        self._connection: Any = None
        self._container: Any = None
        self._begun_s = self._heard_s = monotonic()
        self._is_scheduled = self._is_interrupted = self._was_open = False
        self._tasks: dict[str, Any] = {}

    def run(self) -> Sent:
        container = self._container = Container(self)
        container.timeout = _LOOK_S
        container.start()
        try:
            while container.process():
                if self._is_interrupted and not self._is_over:
                    self._is_over = True
                    self.result.failure = "interrupted"
                    self._close_if_over()
            container.stop()
            container.process()
        except OSError as error:  # where the name of a host is looked up, say
            self.result.failure = self.result.failure or f"{self._target.url}: {error.strerror or error}"
        self._finish()
        return self.result

    def interrupt(self) -> None:
        """Send no more, and end when what was sent has its outcome. For signal handlers, and any thread."""
        self._is_interrupted = True

    def _finish(self) -> None:
        tokens = [token for token, _, _ in self._waiting.values()]
        if self._next is not None:
            tokens.append(self._next.token)
        self.result.next_token = min(tokens, default=None)
        self.result.seconds = monotonic() - self._begun_s

    # ---- proton's events ------------------------------------------------------------------------------------------

    def on_start(self, event: Any) -> None:
        target = self._target
        options: dict[str, Any] = {}
        if target.user is not None:
            options |= {"user": target.user, "password": target.password}
        if target.url.startswith("amqps:"):
            domain = SSLDomain(SSLDomain.MODE_CLIENT)
            if target.ca is not None:
                domain.set_trusted_ca_db(target.ca)
                domain.set_peer_authentication(SSLDomain.VERIFY_PEER)
            options["ssl_domain"] = domain
        self._connection = event.container.connect(target.url, reconnect=False, **options)
        self._tasks["watch"] = event.container.schedule(1.0, self._Watch(self))

    def on_connection_opened(self, event: Any) -> None:
        self._was_open = True
        self._begun_s = self._heard_s = monotonic()
        self._pump()

    def on_sendable(self, event: Any) -> None:
        self._heard_s = monotonic()
        self._pump()

    def on_accepted(self, event: Any) -> None:
        self._settled(event.delivery)

    on_rejected = on_released = on_modified = on_accepted

    def on_transport_error(self, event: Any) -> None:
        condition = event.transport.condition
        self._end(f"the connection broke: {condition.description or condition.name}" if condition else "it broke")

    def on_disconnected(self, event: Any) -> None:
        if not self._is_over or self._waiting or self._next is not None:
            self._end("the broker went away" if self._was_open else "it can't be reached; is a broker running there?")

    def on_link_error(self, event: Any) -> None:
        condition = event.link.remote_condition
        address = event.link.target.address or next((one for one, link in self._senders.items() if link == event.link))
        self._end(f"{address}: the broker refuses it: {condition.description or condition.name}")

    def on_connection_error(self, event: Any) -> None:
        condition = event.connection.remote_condition
        self._end(f"the broker closed the connection: {condition.description or condition.name}")

    # ---- what is sent ---------------------------------------------------------------------------------------------

    class _Due:
        """Wakes it when a message is due."""

        def __init__(self, sending: Sending) -> None:
            self._sending = sending

        def on_timer_task(self, event: Any) -> None:
            self._sending._is_scheduled = False
            self._sending._pump()

    class _Watch:
        """Looks once a second whether the broker is still there, and for ends that come too late."""

        def __init__(self, sending: Sending) -> None:
            self._sending = sending

        def on_timer_task(self, event: Any) -> None:
            sending = self._sending
            if sending._is_over and not sending._waiting:
                return
            sending._tell(sending.result.outcomes.total())
            idle = not sending._waiting and sending._is_scheduled
            if not idle and monotonic() - sending._heard_s > SILENCE_S:
                sending._end(f"the broker says nothing for {SILENCE_S:.0f} s: it takes no more, or is stuck")
                return
            sending._tasks["watch"] = event.container.schedule(1.0, self)

    def _pump(self) -> None:
        result = self.result
        while not self._is_over_or_failed and len(self._waiting) < WINDOW_MESSAGES:
            if self._next is None:
                self._next = self._draw()
            following = self._next
            if following is None:
                break
            now_s = monotonic() - self._begun_s
            if following.due_s > now_s:
                if not self._is_scheduled:
                    self._is_scheduled = True
                    self._tasks["due"] = self._container.schedule(following.due_s - now_s, self._Due(self))
                return
            if self._waiting and self._waiting_bytes + len(following.content) > WINDOW_BYTES:
                return
            sender = self._sender(following.address)
            if sender.credit <= 0:
                return
            if following.due_s:
                result.late_s = max(result.late_s, now_s - following.due_s)
            self._send(sender, following)
            self._next = None
        self._close_if_over()

    @property
    def _is_over_or_failed(self) -> bool:
        return bool(self.result.failure) or (self._is_over and self._next is None)

    def _draw(self) -> Outgoing | None:
        if self._is_over:
            return None
        try:
            found = next(self._source, None)
        except CairnError as error:
            self._end(str(error))
            return None
        self._is_over = found is None
        return found

    def _sender(self, address: str) -> Any:
        if address not in self._senders:
            self._senders[address] = self._container.create_sender(self._connection, address)
        return self._senders[address]

    def _send(self, sender: Any, message: Outgoing) -> None:
        self._numbers += 1
        tag = str(self._numbers)
        sender.delivery(tag)
        sender.stream(message.content)
        sender.advance()
        if not self._waiting:
            self._heard_s = monotonic()
        self._waiting[tag] = message.token, monotonic(), len(message.content)
        self._waiting_bytes += len(message.content)

    def _settled(self, delivery: Any) -> None:
        known = self._waiting.pop(delivery.tag, None)
        if known is None:
            return
        token, sent_s, size_bytes = known
        self._heard_s = now_s = monotonic()
        self._waiting_bytes -= size_bytes
        result = self.result
        result.sent_bytes += size_bytes
        result.latencies_s.append(now_s - sent_s)
        outcome = _OUTCOMES.get(delivery.remote_state, "unknown")
        result.outcomes[outcome] += 1
        if outcome != "accepted" and len(result.refused) < 100:
            condition = delivery.remote.condition
            result.refused.append((token, f"{outcome}: {condition.description}" if condition else outcome))
        self._pump()

    def _close_if_over(self) -> None:
        if self._is_over and not self._waiting and (self._next is None or self._is_interrupted):
            self._tell(self.result.outcomes.total())
            if self._connection is not None:
                self._connection.close()
            self._forget_tasks()

    def _forget_tasks(self) -> None:
        """Else the container would wait for them."""
        for task in self._tasks.values():
            task.cancel()

    def _end(self, why: str) -> None:
        if not self.result.failure:
            self.result.failure = why
        if self._connection is not None:
            self._connection.close()
        self._forget_tasks()
        self._container.stop()
