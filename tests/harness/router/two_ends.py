"""A client, a broker and another container with one common link, in one thread; the test forwards frames in transit.

Both ends follow the specification to the letter (2.6.7), more exactly than any library: the sender's credit is derived
from the last flow that it has read, and the receiver counts the messages that it requested.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from cairnmq.amqp.codec.types import Described, Ubyte, Uint, Ushort
from cairnmq.amqp.connector_target import Target
from cairnmq.broker.outbound.link_routes import parse
from cairnmq.router.connections.client_terminal import ClientTerminal
from cairnmq.router.connections.terminal import Terminal
from tests.fuzz.site import Site, written_by
from tests.harness.router.raw import (
    AMQP,
    ATTACH,
    BEGIN,
    FLOW,
    SOURCE,
    TARGET,
    Frame,
    _parse,
    attach,
    begin,
    frame,
    opening,
    transfer,
)

WINDOW = 2048
MOST_CREDIT = (1 << 31) - 1
PAYLOAD = b"\x00\x53\x77\xa1\x01x"


class End:
    """One end of the link, and its connection with the broker."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self.said: deque[bytes] = deque()
        """Frames in transit to the broker."""
        self._told = b""
        self._header = 8
        self.received: deque[Frame] = deque()
        """Frames in transit from the broker."""
        self.count = 0
        """The link's delivery-count in this end's view."""
        self.limit = 0
        """The link's limit in this end's view: delivery-count plus credit."""
        self.drain = False
        self.messages = 0
        self.transfers = 0
        self.window = 0
        """The number of transfers that the session permits."""
        self.ends: list[Frame] = []
        """The detach, end and close frames of the broker."""

    @property
    def credit(self) -> int:
        return self.limit - self.count

    def pull(self) -> None:
        """Take the frames that the broker has to send."""
        while said := written_by(self.terminal):
            self._told += said
        if self._header and len(self._told) >= 8:
            assert self._told[:8] == AMQP
            self._told, self._header = self._told[8:], 0
        while len(self._told) >= 4 and len(self._told) >= (size := int.from_bytes(self._told[:4])):
            if size > 8:
                self.received.append(_parse(self._told[:size]))
            self._told = self._told[size:]

    def say(self, most: int) -> None:
        """Transfer at most *most* frames in transit to the broker."""
        data = b"".join(self.said.popleft() for _ in range(min(most, len(self.said))))
        if data:
            self.terminal.receive(data)

    def hear(self, most: int) -> None:
        for _ in range(min(most, len(self.received))):
            found = self.received.popleft()
            if found.name in ("detach", "end", "close"):
                self.ends.append(found)
            elif found.name == "flow" and len(found.fields) > 6 and found.fields[4] is not None:
                self.on_flow(*(found.fields + [None] * 9)[:9])
            elif found.name == "transfer":
                self.on_transfer(len(found.fields) > 5 and bool(found.fields[5]))

    def on_flow(self, next_incoming: Any, window: int, *rest: Any) -> None:
        raise NotImplementedError

    def on_transfer(self, more: bool) -> None:
        raise NotImplementedError

    def flow(self, credit: int) -> None:
        in_, out = (0, self.transfers) if isinstance(self, Sender) else (self.transfers, 0)
        self.said.append(
            frame(
                FLOW, Uint(in_), Uint(WINDOW + in_), Uint(out), Uint(WINDOW), Uint(0), Uint(self.count), Uint(credit),
                None, self.drain,
            )
        )  # fmt: skip


class Receiver(End):
    """The receiving end of the link."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(terminal)
        self.most = 0
        """The highest limit so far: the sender may not have read lower limits of later flows."""
        self._inside = False
        """True if the last transfer has `more` set."""

    def ask(self, more: int, *, drain: bool = False) -> None:
        self.limit = max(self.limit + more, self.count)
        self.most = max(self.most, self.limit)
        self.drain = drain
        self.flow(self.credit)

    def on_transfer(self, more: bool) -> None:
        self.transfers += 1
        begins, self._inside = not self._inside, more
        if not begins:
            return
        self.messages += 1
        self.count += 1
        assert self.count <= self.most, f"message {self.count} came, up to {self.most} were asked for"
        self.limit = max(self.limit, self.count)

    def on_flow(self, next_incoming: Any, window: int, *rest: Any) -> None:
        _, _, _, count, _, _, _ = rest
        if count > self.count:  # the sender has returned credit
            self.count = count
            self.limit = max(self.limit, self.count)


class Sender(End):
    """The sending end of the link, with a message for each credit."""

    def on_flow(self, next_incoming: Any, window: int, *rest: Any) -> None:
        _, _, _, count, credit, _, drain = rest
        assert credit <= MOST_CREDIT, f"{credit} messages are asked for"
        self.window = (next_incoming or 0) + window
        self.limit = (count or 0) + credit
        self.drain = bool(drain)

    def on_transfer(self, more: bool) -> None:
        raise AssertionError("a message came from a receiver")

    def send(self, most: int, *, unasked: bool = False) -> None:
        for _ in range(min(most if unasked else min(most, self.credit), self.window - self.transfers)):
            self.said.append(transfer(0, self.transfers, PAYLOAD))
            self.count += 1
            self.messages += 1
            self.transfers += 1

    def give_back(self) -> None:
        """Answer a drain: return all credit."""
        if self.drain and self.credit > 0:
            self.count = self.limit
            self.flow(0)


class _Lines:
    def dial(self, target: Target) -> None: ...

    def hang_up(self, name: str) -> None: ...


class TwoEnds:
    """A context manager: an open link of a client over a link route."""

    def __init__(self, *, to_client: bool) -> None:
        self.site = site = Site(container_id="near")
        site.broker.remote.link_routes.start((parse("far.*=far"),))
        target = Target("far", "127.0.0.1", 1, sasl=False)
        site.core.post(site.broker.remote.connectors.start, _Lines(), (target,), "")
        dialled = ClientTerminal(site.context, target, wake=site.woken.append, over=lambda: None)
        near = site.terminal()
        self.receiver = Receiver(near if to_client else dialled)
        self.sender = Sender(dialled if to_client else near)
        self.client: Any = self.receiver if to_client else self.sender
        self.far: Any = self.sender if to_client else self.receiver
        self.far.said.append(AMQP + opening("there"))
        self.quieten()
        self.client.said.append(AMQP + opening("here") + begin() + attach("link", 0, "far.q", receives=to_client))
        self._settle(self.client, self.far)
        fields = next(one for one in self.far.received if one.name == "attach").fields
        self.far.received.clear()
        ours = [Described(Uint(code), ["far.q"]) for code in (SOURCE, TARGET)]
        answer = frame(ATTACH, fields[0], Uint(0), not to_client, Ubyte(2), Ubyte(0), *ours, None, None, Uint(0))
        self.far.said.append(frame(BEGIN, Ushort(0), Uint(0), Uint(WINDOW), Uint(WINDOW)) + answer)
        self.quieten()
        self.sender.window = 16

    def work(self) -> None:
        """Run the core of the broker, and one worker that has work to do."""
        self.site.core.run_all()
        if self.site.failure is not None:
            raise self.site.failure
        if self.site.woken:
            self.site.woken.popleft().do_work()

    def _settle(self, *ends: End) -> None:
        """Transfer all frames of *ends* to the broker, and take all its frames, until it has no work left."""
        while True:
            for end in ends:
                end.say(len(end.said))
            self.work()
            for end in ends:
                end.pull()
            if not (self.site.woken or self.site.core.waiting or any(end.said for end in ends)):
                return

    def quieten(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Transfer frames in both directions until none is in transit."""
        ends = self.client, self.far
        while True:
            self._settle(*ends)
            meanwhile()
            if not any(end.received or end.said for end in ends):
                return
            for end in ends:
                end.hear(len(end.received))
                meanwhile()

    def __enter__(self) -> TwoEnds:
        return self

    def __exit__(self, *error: object) -> None:
        for end in (self.client, self.far):
            end.terminal.end_input()
            self.site.settle_down_without(end.terminal)
            end.terminal.free()
            self.site.settle_down_without(end.terminal)
