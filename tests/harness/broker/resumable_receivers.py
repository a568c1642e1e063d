"""Receivers with resumable links, on a broker in memory."""

from __future__ import annotations

from collections import Counter
from typing import Any

from cairnmq.amqp.links.resume_state import Claims
from cairnmq.amqp.native.proton_ffi import ACCEPTED
from cairnmq.amqp.ports import Open, Outcome, Resumable, Terminus
from tests.harness.broker.world import FakeTerminal, World, message, number_of


class Receiver:
    """A client that resumes links as in part 2, 2.6.13: its unsettled deliveries survive its connections."""

    def __init__(self, world: World, address: str = "q", *, reads_at_once: bool = True) -> None:
        """Create the client. *reads_at_once*: run the broker's disk reads right after an attach or new credit."""
        self.world = world
        self._reads_at_once = reads_at_once
        self.terminus = Terminus(address=address, durability=2, timeout_s=60)
        self.states: dict[bytes, int] = {}
        """The state of each unsettled delivery by tag: 0, or the outcome that the client has chosen."""
        self.numbers: dict[bytes, int] = {}
        self.entries: dict[bytes, Any] = {}
        self.processed: Counter[int] = Counter()
        self.terminal: FakeTerminal | None = None
        self.seen = self.received = 0

    def attach(self, claims: Claims | None = None, *, credit: int = 100, name: str = "link") -> None:
        opening = Open(True, self.terminus, False, self, name, "box", claims=claims or Claims(dict(self.states), True))
        self.terminal = FakeTerminal()
        self.seen = self.received = 0
        self.entries = {}
        self.world.do(self.world.broker.drivers.open, opening, self.terminal)
        self.read()
        kept = self.terminal.kept
        if kept is not None:
            for tag in [tag for tag in self.states if tag not in kept.states]:
                del self.states[tag]  # the broker has settled it
            if claims is None:
                assert {*kept.states} <= {*self.states}, "what the client does not know went back"
            self.ask(credit)

    def ask(self, credit: int, *, drain: bool = False) -> None:
        assert self.terminal is not None
        self.world.do(self.terminal.driver.request, credit, drain)
        self.read()

    def read(self) -> None:
        if self._reads_at_once:
            self.world.read_all()

    def receive(self) -> Resumable | None:
        """Receive the next message, None if there is none; check that exactly the known deliveries are resumed."""
        if self.terminal is None or self.seen == len(self.terminal.resumable):
            return None
        found = self.terminal.resumable[self.seen]
        if found.tag in self.states and not found.is_resumed:  # released, and delivered again
            while self.received < self.terminal.settled_before[self.seen]:
                self.hear()
        self.seen += 1
        if found.is_resumed:
            assert self.states[found.tag] == 0
            assert self.numbers[found.tag] == number_of(found.content)
        else:
            assert found.tag not in self.states
        self.states[found.tag] = 0
        self.numbers[found.tag] = number_of(found.content)
        self.entries[found.tag] = found.entry
        return found

    def decide(self, state: int = ACCEPTED, *, flushed: bool = True) -> None:
        """Choose *state* as the outcome of the oldest undecided message, and send it to the broker."""
        tag = next((tag for tag in self.entries if self.states.get(tag) == 0), None)
        if tag is None or self.terminal is None or self.terminal.driver is None:
            return
        self.states[tag] = state
        if state == ACCEPTED:
            self.processed[self.numbers[tag]] += 1
        outcome = Outcome(tag, self.entries[tag], state)
        if flushed:
            self.world.do(self.terminal.driver.outcomes, [outcome])
        else:
            self.terminal.driver.outcomes([outcome])

    def hear(self) -> None:
        """Receive the next settlement, and check that it confirms the outcome that was chosen."""
        if self.terminal is not None and self.received < len(self.terminal.settled):
            tag, state = self.terminal.settled[self.received]
            self.received += 1
            assert self.states.pop(tag) == state

    def leave(self, *, for_good: bool = False) -> None:
        if self.terminal is not None and self.terminal.driver is not None:
            returned = [one.entry for one in self.terminal.resumable if self.states.get(one.tag) == 0]
            self.world.do(self.terminal.driver.close, returned, not for_good, for_good)
        self.terminal = None


def world_with(count: int, **arguments: Any) -> World:
    world = World(1 << 24)
    made: list[Any] = []
    world.do(world.broker.nodes.create_queue, "q", arguments, made.append)
    put(world, *range(1, count + 1))
    return world


def put(world: World, *numbers: int, durable: bool = True) -> None:
    sender = world.open(to_client=False)
    for number in numbers:
        world.send(sender, (number, message(number, 90_000 if number % 5 == 4 else 10, durable), 0))


def others_get(world: World, credit: int = 100, *, accept: int = 0) -> list[int]:
    """Return the messages that another consumer receives; it accepts the first *accept* ones, and releases the rest."""
    receiver = world.open(to_client=True)
    world.do(receiver.driver.request, credit, False)
    world.read_all()
    numbers = [number_of(content) for _, content in receiver.forwarded]
    for entry, _ in receiver.forwarded[:accept]:
        world.settle(receiver, entry, ACCEPTED)
    world.do(receiver.driver.close, [entry for entry, _ in receiver.forwarded[accept:]], False, True)
    return numbers
