"""Clients that resume their links as in part 2, 2.6.13, and read and write frames directly."""

from __future__ import annotations

from typing import Any, NamedTuple

from proton import Message

from cairnmq.amqp.codec.types import Described, Symbol, Ubyte, Uint, Ulong
from tests.harness.router.raw import (
    ATTACH,
    DISPOSITION,
    FLOW,
    SOURCE,
    TARGET,
    TRANSFER,
    Frame,
    Raw,
    begin,
    frame,
    opening,
)
from tests.harness.security.wire import message

ACCEPTED = Ulong(0x24)
SECOND = Ubyte(1)
LASTING = Uint(2)
"""The durability of a terminus whose unsettled state lasts."""


def body(text: str) -> bytes:
    return message(text, durable=True)


def transfer_begun(tag: bytes, number: int, part: bytes, *, more: bool = True, resume: bool = False) -> bytes:
    """Return a transfer frame with a part of a message."""
    fields = Uint(0), Uint(number), tag, Uint(0), False, more, None, None, resume
    return frame(TRANSFER, *fields, payload=part)


def attach_receiver(name: str, address: str, unsettled: dict[bytes, Any] | None, **options: Any) -> bytes:
    """Return an attach frame. *options*: `handle`, `mode`; `durability`, `timeout` and `selector` of the source."""
    source = [address, options.get("durability", LASTING), None, Uint(options.get("timeout", 0))]
    if "selector" in options:
        selector = Described(Symbol("apache.org:selector-filter:string"), options["selector"])
        source += [False, None, None, {Symbol("selector"): selector}]
    return frame(
        ATTACH, name, Uint(options.get("handle", 0)), True, Ubyte(0), options.get("mode", SECOND),
        Described(Ulong(SOURCE), source), Described(Ulong(TARGET), ["me"]), unsettled, options.get("incomplete"),
    )  # fmt: skip


def attach_sender(
    name: str, address: str | None, unsettled: dict[bytes, Any] | None, *, incomplete: bool = False, **options: Any
) -> bytes:
    """Return an attach frame. *options*: `handle`, `mode`; `durability` and `timeout` of the target."""
    target = [address, options.get("durability", LASTING), None, Uint(options.get("timeout", 0))]
    return frame(
        ATTACH, name, Uint(options.get("handle", 0)), False, Ubyte(0), options.get("mode", SECOND),
        Described(Ulong(SOURCE), ["me"]), Described(Ulong(TARGET), target), unsettled, incomplete or None, Uint(0),
    )  # fmt: skip


class ResumingSender:
    """A sender whose state outlives its connections, and which sends each message exactly once."""

    def __init__(self, address: str, *, name: str = "orders", container: str = "shop") -> None:
        self.address, self.name, self.container = address, name, container
        self.unsettled: dict[bytes, str] = {}
        """Messages without a known outcome, by delivery tag."""
        self.done: list[str] = []
        """Messages that are known to be stored."""
        self.told: dict[bytes, Any] = {}
        """The unsettled map of the broker's last attach frame."""
        self.attached: Frame | None = None
        self.wire: Raw | None = None
        self._number = 0

    def connect(self, port: int, **options: Any) -> None:
        """Connect, attach with the complete unsettled map, and wait for credit."""
        self.wire = Raw(port, opening(self.container, max_frame=options.pop("max_frame", 65536)), begin())
        self.wire.until("begin")
        self.attach(**options)

    def attach(self, **options: Any) -> None:
        assert self.wire is not None
        states = dict.fromkeys(self.unsettled) or None
        self.wire.say(attach_sender(self.name, self.address, states, **options))
        self.attached = self.wire.until("attach")
        fields = self.attached.fields + [None] * 9
        self.told, self.incomplete = fields[7] or {}, bool(fields[8])
        while len(self.wire.until("flow").fields) < 7:
            pass

    def cut(self) -> None:
        """Break the connection."""
        assert self.wire is not None
        self.wire.sock.close()
        self._number = 0

    def send(self, tag: bytes, text: str, content: bytes = b"") -> None:
        """Begin a delivery of *content*, or of a message with *text*; its outcome is unknown from now on."""
        self.unsettled[tag] = text
        self._transfer(tag, content or body(text))

    def hear(self, tag: bytes, number: int) -> None:
        """Wait until delivery *number* of this connection is accepted."""
        assert self.wire is not None
        while True:
            fields = self.wire.until("disposition").fields
            last = fields[1] if fields[2] is None else fields[2]
            if fields[1] <= number <= last:
                break
        assert fields[4].descriptor == ACCEPTED
        assert not fields[3], "the broker settles when the client has"

    def settle(self, tag: bytes, number: int) -> None:
        """Settle an accepted delivery."""
        assert self.wire is not None
        self.done.append(self.unsettled.pop(tag))
        self.wire.say(frame(DISPOSITION, False, Uint(number), Uint(number), True, Described(ACCEPTED, [])))

    def resume(self) -> list[bytes]:
        """Settle the deliveries that the broker has stored according to its attach; return the tags to resend."""
        for tag in list(self.unsettled):
            if tag in self.told:
                assert self.told[tag].descriptor == ACCEPTED
                self.done.append(self.unsettled.pop(tag))
                self._transfer(tag, b"", settled=True, resume=True)
        return list(self.unsettled)

    def say_again(self, tag: bytes, payload: bytes, *, resume: bool) -> int:
        """Transfer a known delivery again; return its new number."""
        return self._transfer(tag, payload, resume=resume)

    def _transfer(self, tag: bytes, payload: bytes, *, settled: bool = False, resume: bool = False) -> int:
        assert self.wire is not None
        number, self._number = self._number, self._number + 1
        self.wire.say(
            frame(
                TRANSFER, Uint(0), Uint(number), tag, Uint(0), settled, False, None, None, resume, payload=payload
            )
        )
        return number


class Delivery(NamedTuple):
    """A received message, with the fields of the first transfer of its delivery."""

    number: int
    tag: bytes
    is_resumed: bool
    state: Any
    text: str


class ResumingReceiver:
    """A receiver whose state outlives its connections, and which processes each message exactly once."""

    def __init__(self, address: str, *, name: str = "orders", container: str = "shop") -> None:
        self.address, self.name, self.container = address, name, container
        self.unsettled: dict[bytes, Any] = {}
        """States of unsettled deliveries by tag; None for no state."""
        self.texts: dict[bytes, str] = {}
        self.told: dict[bytes, Any] = {}
        """The unsettled map of the broker's last attach frame."""
        self.processed: list[str] = []
        self._frames: list[Frame] = []
        """Frames that were skipped while waiting for another one."""
        self.attached: Frame | None = None
        self.wire: Raw | None = None

    def connect(self, port: int, *, credit: int = 10, max_frame: int = 65536, **options: Any) -> None:
        """Connect, attach with the complete unsettled map, and grant credit."""
        self._frames = []
        self.wire = Raw(port, opening(self.container, max_frame=max_frame), begin())
        self.wire.until("begin")
        self.attach(credit=credit, **options)

    def attach(self, *, credit: int = 10, **options: Any) -> None:
        assert self.wire is not None
        self._frames = []
        self.wire.say(attach_receiver(self.name, self.address, self.unsettled or None, **options))
        self.attached = self.wire.until("attach")
        fields = self.attached.fields + [None] * 9
        self.told, self.incomplete = fields[7] or {}, bool(fields[8])
        if not self.incomplete:
            self.unsettled = {tag: state for tag, state in self.unsettled.items() if tag in self.told}
        self.flow(credit)

    def flow(self, credit: int) -> None:
        assert self.wire is not None
        window = Uint(0), Uint(2048), Uint(0), Uint(2048)
        self.wire.say(frame(FLOW, *window, Uint(0), Uint(0), Uint(credit)))

    def cut(self) -> None:
        """Break the connection."""
        assert self.wire is not None
        self.wire.sock.close()

    def _next(self, name: str) -> Frame:
        """Return the next frame with that name; keep the frames before it for later calls."""
        assert self.wire is not None
        found = next((one for one in self._frames if one.name == name), None)
        if found is not None:
            self._frames.remove(found)
            return found
        while (one := self.wire.hear()) is not None and one.name != name:
            self._frames.append(one)
        assert one is not None, f"the connection ended before a {name} came"
        return one

    def receive(self) -> Delivery:
        """Return the next message; check that it is resumed if and only if it is known."""
        assert self.wire is not None
        first = self._next("transfer")
        fields, content = first.fields + [None] * 11, first.payload
        more = fields[5]
        while more:
            rest = self._next("transfer")
            more, content = (rest.fields + [None] * 6)[5], content + rest.payload
        tag = fields[2]
        assert bool(fields[8]) == (tag in self.unsettled)
        self.unsettled.setdefault(tag, None)
        message = Message()
        message.decode(content)
        text = str(message.body)
        assert self.texts.setdefault(tag, text) == text
        return Delivery(fields[1], tag, bool(fields[8]), fields[7], text)

    def accept(self, found: Delivery) -> None:
        """Process *found*, and send the outcome `accepted` unsettled."""
        assert self.wire is not None
        assert self.unsettled[found.tag] is None
        self.processed.append(found.text)
        self.unsettled[found.tag] = Described(ACCEPTED, [])
        number = Uint(found.number)
        self.wire.say(frame(DISPOSITION, True, number, number, False, self.unsettled[found.tag]))

    def hear(self, found: Delivery) -> None:
        """Wait until the broker has settled *found*."""
        assert self.wire is not None
        while found.tag in self.unsettled:
            fields = self._next("disposition").fields
            last = fields[1] if fields[2] is None else fields[2]
            if fields[3] and fields[1] <= found.number <= last:
                del self.unsettled[found.tag]
