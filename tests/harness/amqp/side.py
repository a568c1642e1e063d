"""An engine with links in both directions, which receives frames as bytes and records everything that it reports."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from cairnmq.amqp.engine.engine import Engine
from cairnmq.amqp.links import terminus, transaction_state
from cairnmq.amqp.links.credit import grant
from cairnmq.amqp.links.events import EventKind, Limits
from cairnmq.amqp.links.link import Link
from cairnmq.amqp.links.values import MORE
from cairnmq.amqp.native.buffer_pool import Buckets
from cairnmq.amqp.native.proton_ffi import lib
from tests.harness.security import wire
from tests.harness.security.wire import AMQP, NULL, attach, frame, performative, string, uint

MANY = uint(1 << 30)
SENDERS, RECEIVERS = ("a", "b"), ("x", "y")
FORWARDED = 60
"""The number of messages sent to each receiver."""


class Side:
    """An engine, and all events and deliveries that it has reported."""

    def __init__(self) -> None:
        self.engine = Engine("broker", Limits(max_message_bytes=1 << 20), Buckets(1 << 24))
        self.links: dict[str, Link] = {}
        self.seen: dict[str, list[Any]] = {}
        self.ends: list[tuple[EventKind, str]] = []
        begin = performative(wire.BEGIN, NULL, uint(0), MANY, MANY)
        self.say(AMQP, frame(performative(wire.OPEN, string("client"), NULL, uint(1 << 16))), frame(begin))
        for number, name in enumerate((*SENDERS, *RECEIVERS)):
            self.say(frame(attach(name, number, "q", sends=name in SENDERS)))
        for name in SENDERS:
            grant(self.links[name], 1000)
        for number, name in enumerate(RECEIVERS, len(SENDERS)):
            self.say(frame(performative(wire.FLOW, uint(0), MANY, uint(0), MANY, uint(number), uint(0), MANY)))
            self.links[name].outbox.extend((f"{name}{count}", b"\x00\x53\x75\xa0\x01x") for count in range(FORWARDED))
            self.engine.outgoing.pump(self.links[name])
        self.write()

    def say(self, *said: bytes) -> None:
        """Push bytes, and record everything that the engine reports for them."""
        for data in said:
            self.engine.push(data)
        self.engine.digest()
        events, self.engine.endpoints.events = self.engine.endpoints.events, []
        for event in events:
            if event.kind is EventKind.OPENED:
                self.engine.endpoints.open()
            elif event.kind is EventKind.ATTACHED:
                assert event.link is not None
                self.links[event.link.name], self.seen[event.link.name] = event.link, []
                self.engine.endpoints.open_link(event.link, terminus.asked_for(event.link).address)
            elif event.kind is not EventKind.BEGUN:
                self.ends.append((event.kind, event.text))
        for link in self.engine.touched:
            link.touched = False
            seen = self.seen[link.name]
            for txn_id, run in transaction_state.runs(link, link.inbox) if link.runs else [(b"", link.inbox)]:
                for _, data, flags in run:  # parts of a message may arrive together or separately
                    begun = seen.pop()[0] if seen and seen[-1][-1] == MORE else b""
                    seen.append((begun + data, txn_id, flags))
            seen += [outcome[1:] for outcome in link.outcomes]
            seen += [outcome[1:] for _, outcome in link.provisional]
            for of in (link.inbox, link.outcomes, link.provisional):
                of.clear()
        self.engine.touched.clear()
        self.write()

    def entered(self, said: bytes) -> Counter[str]:
        """Push bytes as `say` does; return the number of calls of each function."""
        found: Counter[str] = Counter()
        sys.setprofile(lambda frame, event, _: found.update([frame.f_code.co_name]) if event == "call" else None)
        try:
            self.say(said)
        finally:
            sys.setprofile(None)
        return found

    def write(self) -> None:
        while output := self.engine.output():
            self.engine.consumed(len(output))

    def state(self) -> Any:
        """Return the complete state that a comparison covers."""
        credit = {name: link.closed or lib.pn_link_credit(link.pn) for name, link in self.links.items()}
        return self.seen, self.ends, credit, {name: link.unsent() for name, link in self.links.items()}
