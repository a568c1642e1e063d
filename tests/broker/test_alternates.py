"""Tests of alternate exchanges, which receive the unroutable messages of an exchange, however they reach it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Message

from cairnmq.amqp.native.proton_ffi import REJECTED
from cairnmq.amqp.ports import MORE
from cairnmq.broker.nodes.exchanges import MOST_HOPS
from cairnmq.broker.nodes.targets import ExchangeTarget
from cairnmq.management.protocol import replies
from tests.harness.broker.policies import Policed

KEY = "key"
PIECE_BYTES = 70_000
PIECES = 10
Wired = tuple[list[int | None], list[bool]]
"""The number of the alternate, if any, of each exchange; and whether a queue is bound to each exchange."""


class Routed(Policed):
    """Exchanges `x0`, `x1`, ..., each with or without an alternate and a bound queue (`q0`, `q1`, ...)."""

    def __init__(self, alternates: Sequence[int | None], bound: Sequence[bool]) -> None:
        super().__init__()
        self.alternates, self.bound = alternates, bound
        nodes = self.world.broker.nodes
        for number, (alternate, has_queue) in enumerate(zip(alternates, bound, strict=True)):
            arguments = {} if alternate is None else {"alternate-exchange": f"x{alternate}"}
            exchange = nodes.add_exchange(f"x{number}", "direct", arguments)
            if has_queue:
                self.make(f"q{number}")
                self.world.do(nodes.bind, exchange, self.world.queue(f"q{number}"), KEY, {}, lambda error: None)

    def complete(self) -> None:
        self.send(f"x0/{KEY}", "m")

    def by_subject(self) -> None:
        self.send("x0", "m", subject=KEY)

    def relayed(self) -> None:
        relay = self.world.open(to_client=False, address=None)
        message = Message(body="m", durable=True, address=f"x0/{KEY}")
        self.world.send(relay, (1, bytes(message.encode()), 0))

    def long(self) -> None:
        goes_somewhere = first_with_a_queue(self.alternates, self.bound) is not None
        sender = self.world.open(to_client=False, address=f"x0/{KEY}")
        content = bytes(Message(body="m" * PIECE_BYTES * PIECES, durable=True).encode())
        for at in range(0, len(content), PIECE_BYTES):
            last = at + PIECE_BYTES >= len(content)
            self.world.send(sender, (1, content[at : at + PIECE_BYTES], 0 if last else MORE))
            if not last:
                held_bytes = self.world.broker.core.memory.used_bytes
                assert held_bytes < 3 * PIECE_BYTES, "all of it waits in memory for its end"
        assert not sender.rejected
        assert len(sender.confirmed) == goes_somewhere
        assert len(sender.handed_back) == (not goes_somewhere)
        assert sum(exchange.unrouted for exchange in self.world.broker.nodes.exchanges.values()) == (not goes_somewhere)
        assert self.world.broker.core.memory.used_bytes == 0 or goes_somewhere

    def dead(self) -> None:
        self.make("of-the-dead", dead_letter_address=f"x0/{KEY}")
        self.send("of-the-dead", "m")
        taker = self.open("of-the-dead")
        self.world.settle(taker, taker.forwarded[0][0], REJECTED)

    def dead_in_a_transaction(self) -> None:
        """Look up the dead-letter target as the discharge of a transaction does."""
        self.make("of-the-dead", dead_letter_address=f"x0/{KEY}")
        self.send("of-the-dead", "m")
        queue = self.world.queue("of-the-dead")
        [entry] = queue.contents.ready
        found: list[Any] = []
        self.world.do(self.world.broker.returns.look_up, queue, entry, "rejected", 1, found.append)
        for target in found[0][0]:
            self.send(target.name, "m")
        self.take("of-the-dead")

    def expired(self) -> None:
        self.make("of-the-late", expiry_address=f"x0/{KEY}")
        self.send("of-the-late", "m", ttl=1)
        self.world.advance(2)
        self.world.read_all()

    def moved(self) -> None:
        self.make("from")
        self.send("from", "m")
        [message] = self.world.queue("from").contents.ready
        place = ExchangeTarget(self.world.broker.nodes.exchanges["x0"], KEY)

        def move() -> None:
            self.world.broker.returns.move(self.world.queue("from"), message, place, message.complete(), print)

        self.world.do(move)

    def answered(self) -> None:
        """Store a message as management does with its replies."""
        broker = self.world.broker
        place = ExchangeTarget(broker.nodes.exchanges["x0"], KEY)
        content = bytes(Message(body="m").encode())
        self.world.do(
            replies.put, broker.nodes.exchanges, broker.core.commits, broker.links.members, place, content
        )


WAYS = ["complete", "by_subject", "relayed", "long", "dead", "dead_in_a_transaction", "expired", "moved", "answered"]


def first_with_a_queue(alternates: Sequence[int | None], bound: Sequence[bool]) -> int | None:
    at: int | None = 0
    for _ in range(MOST_HOPS + 1):
        if at is None or bound[at]:
            return at
        at = alternates[at]
    return None


@st.composite
def wirings(draw: st.DrawFn) -> Wired:
    count = draw(st.integers(1, 5))
    alternates = draw(st.lists(st.none() | st.integers(0, count - 1), min_size=count, max_size=count))
    return alternates, draw(st.lists(st.booleans(), min_size=count, max_size=count))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "wired",
    [
        ([1, None], [False, True]),
        ([1, None], [True, True]),
        ([1, 2, None], [False, False, True]),
        ([1, None], [False, False]),
        ([1, 0], [False, False]),
        ([0], [False]),
    ],
    ids=["alternate", "first", "alternate of the alternate", "nobody", "circle", "itself"],
)
def test_what_nobody_wants_goes_to_the_alternate(way: str, wired: Wired) -> None:
    """The search for a queue ends also for long chains and cycles of exchanges, and if no exchange has a queue."""
    alternates, bound = wired
    routed = Routed(alternates, bound)
    getattr(routed, way)()
    expected = first_with_a_queue(alternates, bound)
    for number in (number for number, has_queue in enumerate(bound) if has_queue):
        assert len(routed.take(f"q{number}")) == (number == expected), f"q{number}, and not q{expected}"
    left = sum(queue.messages for queue in routed.world.broker.nodes.queues.values())
    assert left == (way == "moved" and expected is None), "what is to be moved, and nobody wants, stays where it is"


@given(way=st.sampled_from(WAYS), wired=wirings())
def test_a_message_goes_to_the_first_that_has_a_queue_for_it(way: str, wired: Wired) -> None:
    test_what_nobody_wants_goes_to_the_alternate(way, wired)


def test_a_long_name_is_no_reason_to_lose_what_died_on_a_queue() -> None:
    """A queue name that is too long for a routing key does not prevent dead-lettering to a fanout exchange."""
    policed = Policed()
    name = "q" * 300
    policed.make("dead")
    nodes = policed.world.broker.nodes
    policed.world.do(nodes.bind, nodes.exchanges["amq.fanout"], policed.world.queue("dead"), "", {}, lambda error: None)
    policed.make(name, dead_letter_address="amq.fanout")
    policed.send(name, "m")
    taker = policed.open(name)
    policed.world.settle(taker, taker.forwarded[0][0], REJECTED)
    assert policed.bodies("dead") == ["m"]
