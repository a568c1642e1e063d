"""Tests of resumable sender links in one thread: each message is stored once despite failures (G12)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers, lists, sampled_from, tuples

from cairnmq.amqp.links.resume_state import UNKNOWN, Claims
from cairnmq.amqp.ports import ABORTED, MORE, SETTLED, Open, Terminus
from cairnmq.broker.resume.registry import DEFAULT_S, PREFIX
from cairnmq.broker.transactions.transaction import ClientTransaction
from tests.harness.broker.world import FakeTerminal, World, message, number_of

PIECE_BYTES = 40_000


class Sender:
    """A client that resumes deliveries by part 2, 2.6.13, with tags as the delivery handles."""

    def __init__(self, world: World, address: str) -> None:
        self.world = world
        self.terminus = Terminus(address=address, durability=2, timeout_s=60)
        self.unsettled: dict[bytes, int] = {}
        """Numbers of messages with unknown outcomes, by tag."""
        self.terminal: FakeTerminal | None = None
        self.count = 0

    def attach(self, claims: Claims | None = None) -> None:
        if claims is None:
            claims = Claims(dict.fromkeys(self.unsettled, 0), True)
        opening = Open(False, self.terminus, False, None, "link", "box", claims=claims)
        self.terminal = FakeTerminal()
        self.world.do(self.world.broker.drivers.open, opening, self.terminal)
        self.world.read_all()

    def resume(self) -> None:
        assert self.terminal is not None
        assert self.terminal.kept is not None
        assert {*self.terminal.kept.states} <= {*self.unsettled}
        for tag, number in list(self.unsettled.items()):
            if tag in self.terminal.kept.states:
                del self.unsettled[tag]
                self._say([((tag, b"", SETTLED), tag, True)])
            else:
                self.post(tag, number)

    def send(self, *, durable: bool = True, flushed: bool = True) -> None:
        self.count += 1
        tag = b"%d" % self.count if self.count > 1 else b""
        self.unsettled[tag] = self.count
        self.post(tag, self.count, flushed=flushed)

    def post(self, tag: bytes, number: int, *, flushed: bool = True) -> None:
        size = 3 * PIECE_BYTES if number % 4 == 3 else 10
        content = message(number, size, number % 4 != 2)
        parts = [content[at : at + PIECE_BYTES] for at in range(0, len(content), PIECE_BYTES)]
        flags = [MORE] * (len(parts) - 1) + [0]
        arrivals = [((tag, part, flag), tag, False) for part, flag in zip(parts, flags, strict=True)]
        if flushed:
            self._say(arrivals)
        elif self.terminal is not None and self.terminal.driver is not None:
            self.terminal.driver.receive_resuming(arrivals)

    def _say(self, arrivals: list[Any]) -> None:
        if self.terminal is not None and self.terminal.driver is not None:
            self.world.do(self.terminal.driver.receive_resuming, arrivals)

    def settle_oldest(self) -> None:
        """Settle the oldest delivery whose outcome has arrived."""
        tag = next((tag for tag in self.unsettled if self.terminal and tag in self.terminal.confirmed), None)
        if tag is not None and self.terminal is not None:
            del self.unsettled[tag]
            self.world.do(self.terminal.driver.forget, tag)

    def leave(self, *, for_good: bool = False) -> None:
        if self.terminal is not None and self.terminal.driver is not None:
            self.world.do(self.terminal.driver.close, (), not for_good, for_good)
        self.terminal = None


def world_of(queues: int) -> World:
    """Return a world with *queues* queues bound to a fanout exchange."""
    world = World(1 << 24)
    made: list[Any] = []
    for number in range(queues):
        world.do(world.broker.nodes.create_queue, f"q{number}", {}, made.append)
        exchange = world.broker.nodes.exchanges["amq.fanout"]
        world.do(world.broker.nodes.bind, exchange, made[-1], "", {}, made.append)
    return world


def on(world: World, name: str) -> Counter[int]:
    """Return the number of copies of each message on the queue."""
    receiver = world.open(to_client=True, address=name)
    world.do(receiver.driver.request, 1000, False)
    world.read_all()
    found = Counter(number_of(content) for _, content in receiver.forwarded)
    world.do(receiver.driver.close, [entry for entry, _ in receiver.forwarded], False, True)
    return found


STEPS = ("send", "send unflushed", "settle", "break", "attach", "attach anew", "kill")


@settings(max_examples=60)
@given(integers(1, 2), lists(tuples(sampled_from(STEPS), integers(1, 3)), max_size=14))
def test_each_message_is_stored_once(queues: int, steps: list[tuple[str, int]]) -> None:
    world = world_of(queues)
    sender = Sender(world, "amq.fanout" if queues > 1 else "q0")
    sender.attach()
    for step, times in steps:
        for _ in range(times):
            if step.startswith("send"):
                sender.send(flushed=step == "send")
            elif step == "settle":
                sender.settle_oldest()
            elif step == "break":
                sender.leave()
            elif step == "attach anew" or (step == "attach" and sender.terminal is None):
                sender.attach()
                sender.resume()
            elif step == "kill":
                world.kill_and_start()
                sender.terminal = None
    world.step()
    sender.leave()
    for _ in range(2):  # the second pass finds no deliveries to resume
        sender.attach()
        sender.resume()
        while sender.terminal is not None and any(tag in sender.terminal.confirmed for tag in sender.unsettled):
            sender.settle_oldest()
    assert not sender.unsettled
    lasting = {number for number in range(1, sender.count + 1) if number % 4 != 2}
    for number in range(queues):
        found = on(world, f"q{number}")
        assert all(count == 1 for count in found.values())
        assert lasting <= {*found}, "none is lost, but for those that need not last"
    if sender.terminal is not None:
        assert sender.terminal.driver.end.tags == {}


@pytest.fixture
def sender() -> Sender:
    sender = Sender(world_of(1), "q0")
    sender.attach()
    return sender


def kept(sender: Sender) -> set[bytes]:
    assert sender.terminal is not None
    assert sender.terminal.kept is not None
    return {*sender.terminal.kept.states}


@pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "settled"])
@pytest.mark.parametrize("end", ["commit", "commit and kill", "roll back", "cut"])
def test_a_delivery_in_a_transaction_is_remembered_with_the_commit(sender: Sender, end: str, settled: bool) -> None:
    world = sender.world
    assert sender.terminal is not None
    transaction = world.broker.transactions.declare("connection", b"")
    arrivals = [((f"t{n}", message(n, 10, n != 2), 0), b"t%d" % n, False) for n in (1, 2)]
    world.do(sender.terminal.driver.receive_resuming_in, "connection", transaction.id, arrivals)
    if settled:
        world.do(sender.terminal.driver.forget, b"t1")
    if end.startswith("commit"):
        world.do(transaction.commit, lambda: None)
    elif end == "roll back":
        transaction.roll_back("", "")
    else:
        world.do(world.broker.drivers.connection_closed, "connection")
    if end == "commit and kill":
        world.kill_and_start()
    else:
        sender.leave()
    sender.attach(Claims({b"t1": 0, b"t2": 0}, True))
    stored = {b"t2"} if settled else {b"t1", b"t2"}
    assert kept(sender) == (stored if end.startswith("commit") else set())


def in_transaction(sender: Sender, *tags: bytes, has_failed: bool = False) -> ClientTransaction:
    """Send a message with each of *tags* in a transaction, which may have failed before."""
    assert sender.terminal is not None
    transaction = sender.world.broker.transactions.declare("connection", b"")
    if has_failed:
        transaction.fail("another message could not be stored")
    arrivals = [((tag, message(number, 10, True), 0), tag, False) for number, tag in enumerate(tags, 1)]
    sender.world.do(sender.terminal.driver.receive_resuming_in, "connection", transaction.id, arrivals)
    return transaction


@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
@pytest.mark.parametrize("expires", [False, True], ids=["closed", "expired"])
def test_transaction_is_committed_after_the_end_of_its_link(sender: Sender, expires: bool, killed: bool) -> None:
    world, done = sender.world, list[str]()
    transaction = in_transaction(sender, b"t1", b"t2")
    sender.leave(for_good=not expires)
    if expires:
        world.advance(61)
    assert ends(world) == 0
    world.do(transaction.commit, lambda: done.append("committed"))
    assert done == ["committed"]
    if killed:
        world.kill_and_start()
    assert on(world, "q0") == {1: 1, 2: 1}


@pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "settled"])
@pytest.mark.parametrize("end", ["commit", "roll back", "failed before"])
def test_endpoint_forgets_deliveries_of_transactions_that_ended(sender: Sender, end: str, settled: bool) -> None:
    assert sender.terminal is not None
    endpoint = sender.terminal.driver.end
    for number in range(5):
        tag = b"t%d" % number
        transaction = in_transaction(sender, tag, has_failed=end == "failed before")
        if settled:
            sender.world.do(endpoint.forget, tag)
        if end == "commit":
            sender.world.do(transaction.commit, lambda: None)
        else:
            transaction.roll_back("", "")
    assert endpoint.doubtful == {}
    assert len(endpoint.tags) == (5 if end == "commit" and not settled else 0)


@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
def test_tag_that_is_used_again_belongs_to_the_later_delivery(sender: Sender, killed: bool) -> None:
    """A reused tag belongs to the later delivery, also if the transaction of the first one is committed afterwards."""
    assert sender.terminal is not None
    endpoint = sender.terminal.driver.end
    first = in_transaction(sender, b"t")
    sender.world.do(endpoint.forget, b"t")
    second = in_transaction(sender, b"t")
    sender.world.do(first.commit, lambda: None)
    assert endpoint.tags == {}
    sender.world.do(second.commit, lambda: None)
    assert [*endpoint.tags] == [b"t"]
    sender.world.do(endpoint.forget, b"t")
    if killed:
        sender.world.kill_and_start()
    else:
        sender.leave()
    sender.attach(Claims({b"t": 0}, True))
    assert kept(sender) == set()


def ends(world: World) -> int:
    return sum(name.startswith(PREFIX) for name in world.broker.nodes.queues)


def test_an_end_that_nobody_comes_back_to_goes_with_its_time(sender: Sender) -> None:
    sender.send()
    sender.leave()
    sender.world.advance(59)
    sender.attach()
    assert kept(sender) == {b""}
    sender.world.advance(59)
    assert ends(sender.world) == 1, "while the link is there, no time passes"
    sender.leave()
    sender.world.advance(61)
    assert ends(sender.world) == 0
    sender.attach()
    assert not kept(sender)


def test_an_end_goes_with_its_time_after_a_crash_too(sender: Sender) -> None:
    sender.send()
    sender.world.kill_and_start()
    assert ends(sender.world) == 1
    sender.world.advance(61)
    sender.world.step()
    assert ends(sender.world) == 0


@pytest.mark.parametrize(("expiry", "expires_s"), [("never", 0), ("session-end", DEFAULT_S)])
def test_how_long_an_end_is_kept_without_a_time(expiry: str, expires_s: int) -> None:
    sender = Sender(world_of(1), "q0")
    sender.terminus = sender.terminus._replace(timeout_s=0, expiry=expiry)
    sender.attach()
    assert sender.terminal is not None
    assert sender.terminal.kept is not None
    assert sender.terminal.kept.expires_s == expires_s


def test_an_end_is_given_up_with_its_link(sender: Sender) -> None:
    sender.send()
    sender.leave(for_good=True)
    assert ends(sender.world) == 0
    sender.attach()
    assert not kept(sender)


@pytest.mark.parametrize("claims", [UNKNOWN, Claims({}, False)])
def test_nothing_is_forgotten_on_evidence_that_is_not_complete(sender: Sender, claims: Claims) -> None:
    sender.send()
    sender.leave()
    sender.attach(claims)
    assert kept(sender) == {b""}
    sender.leave()
    sender.attach(Claims({}, True))
    assert not kept(sender)


def test_a_delivery_that_is_aborted_is_settled(sender: Sender) -> None:
    sender.send()
    sender.leave()
    sender.attach()
    assert sender.terminal is not None
    sender.world.do(sender.terminal.driver.receive_resuming, [((b"", b"", ABORTED | SETTLED), b"", True)])
    assert not sender.terminal.driver.end.tags


def test_a_refused_message_is_not_remembered(sender: Sender) -> None:
    assert sender.terminal is not None
    broken = b"\x00\x53\x70\xc0\x03\x01\x50"
    sender.world.do(sender.terminal.driver.receive_resuming, [((b"t", broken, 0), b"t", False)])
    assert sender.terminal.rejected == {b"t": "amqp:decode-error"}
    assert not sender.terminal.driver.end.tags


@pytest.mark.parametrize("kill", [False, True], ids=["", "killed"])
@pytest.mark.parametrize("target", ["another", "made anew"])
def test_what_was_stored_is_not_stored_again_whatever_the_link_leads_to_now(target: str, kill: bool) -> None:
    """A stored message is reported as accepted, even if it was deleted with its queue."""
    world = world_of(2)
    sender = Sender(world, "q0")
    sender.attach()
    sender.send()
    sender.leave()
    if target == "another":
        sender.terminus = sender.terminus._replace(address="q1")
    else:
        world.do(world.broker.nodes.delete_queue, world.queue("q0"), lambda error: None)
        world.do(world.broker.nodes.create_queue, "q0", {}, lambda made: None)
    if kill:
        world.kill_and_start()
        world.step()
    sender.attach()
    sender.resume()
    assert sender.unsettled == {}
    sender.send()
    assert on(world, "q0") == ({1: 1} if target == "another" else {2: 1})
    assert on(world, "q1") == ({2: 1} if target == "another" else {})


def test_claims_are_dropped_once_they_are_compared(sender: Sender) -> None:
    sender.send()
    sender.leave()
    claims = Claims({b"": 0, b"other": 0}, True)
    sender.attach(claims)
    assert kept(sender) == {b""}
    assert claims.states == {}
