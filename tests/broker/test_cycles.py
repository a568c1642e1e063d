"""Tests of dead-letter cycles (W7): a message that returns to a queue without the action of a client is dropped."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import symbol, timestamp

from cairnmq.amqp.native.proton_ffi import MODIFIED, REJECTED, RELEASED
from cairnmq.amqp.ports import Outcome
from cairnmq.broker.messages import death_history
from cairnmq.broker.messages.death_history import EXPIRY, REJECTION, TOO_OFTEN
from tests.harness.broker.policies import Policed, decoded, either
from tests.harness.broker.world import WorkingClock, World

ROUNDS = 20
"""The number of waits for a time to live, in which a cycle would repeat several times."""


@pytest.fixture
def policed() -> Policed:
    return Policed()


def go_on(policed: Policed, seconds: float) -> None:
    for _ in range(ROUNDS):
        policed.world.advance(seconds)
        policed.world.read_all()


def on_queues(policed: Policed, *names: str) -> int:
    return sum(policed.world.queue(name).messages for name in names)


@either
@pytest.mark.parametrize("names", [("a",), ("a", "b"), ("a", "b", "c")], ids=len)
def test_expiry_cycle_ends(policed: Policed, durable: bool, names: tuple[str, ...]) -> None:
    for name, following in zip(names, (*names[1:], names[0]), strict=True):
        policed.make(name, message_ttl_ms=1, expiry_address=following)
    for number in range(200):
        policed.send("a", number, durable=durable)
    go_on(policed, 0.1)
    assert on_queues(policed, *names) == 0
    expired = [policed.world.queue(name).expired for name in names]
    assert expired == [200] * len(names), "each message visits each queue once"


def test_expiry_cycle_of_a_stored_message_ends_after_a_restart(policed: Policed) -> None:
    policed.make("b", message_ttl_ms=10_000, expiry_address="a")
    policed.make("a", message_ttl_ms=10_000, expiry_address="b")
    policed.send("a", "old")
    policed.world.advance(11)
    policed.world.read_all()
    assert on_queues(policed, "b") == 1
    policed.restart()
    policed.world.step()
    policed.world.read_all()
    go_on(policed, 11)
    assert on_queues(policed, "a", "b") == 0


def test_expiry_cycle_through_an_exchange_ends_and_other_queues_get_the_message(policed: Policed) -> None:
    policed.make("kept")
    policed.make("a", message_ttl_ms=1, expiry_address="amq.fanout")
    nodes = policed.world.broker.nodes
    for name in ("a", "kept"):
        policed.world.do(
            nodes.bind, nodes.exchanges["amq.fanout"], policed.world.queue(name), "", {}, lambda answer: None
        )
    policed.send("a", "m")
    go_on(policed, 0.1)
    assert on_queues(policed, "a") == 0
    assert policed.bodies("kept") == ["m"]


@either
@pytest.mark.parametrize("state", [REJECTED, MODIFIED], ids=["rejected", "failed"])
def test_retry_queue_sends_back_what_a_client_has_had(policed: Policed, durable: bool, state: int) -> None:
    """A message may pass through a retry queue any number of times, as a client receives it in each round."""
    policed.make("wait", message_ttl_ms=10, expiry_address="q")
    policed.make("q", dead_letter_address="wait", max_deliveries=1)
    policed.send("q", "work", durable=durable)
    for _ in range(5):
        taker = policed.open("q")
        assert len(taker.forwarded) == 1
        policed.world.do(taker.driver.outcomes, [Outcome(None, taker.forwarded[0][0], state, True, False)])
        policed.world.do(taker.driver.close, (), False, False)
        policed.world.read_all()
        policed.world.advance(0.1)
        policed.world.read_all()
    assert policed.bodies("q") == ["work"]


def test_delivery_limit_cycle_ends(policed: Policed) -> None:
    policed.make("b", dead_letter_address="a", max_deliveries=1)
    policed.make("a", dead_letter_address="b", max_deliveries=1)
    policed.send("a", "poison")
    takers = [policed.open("a"), policed.open("b")]
    for _ in range(ROUNDS):
        for taker in takers:
            for tag, _content in taker.forwarded:
                policed.world.do(taker.driver.outcomes, [Outcome(None, tag, MODIFIED, True, False)])
            taker.forwarded.clear()
    assert on_queues(policed, "a", "b") == 0
    assert policed.world.queue("a").dead_lettered == policed.world.queue("b").dead_lettered == 1


@either
@pytest.mark.parametrize("size", [10, 200_000])
@pytest.mark.parametrize("timed", [False, True])
def test_death_history_of_a_sender_is_removed(policed: Policed, durable: bool, size: int, timed: bool) -> None:
    """Senders cannot forge a death history, which could keep a message in a cycle or cause it to be dropped."""
    policed.make("b", message_ttl_ms=10, expiry_address="a")
    policed.make("a", message_ttl_ms=10, expiry_address="b")
    forged = [{"queue": name, "reason": "rejected", "count": 1, "last-time": timestamp(1 << 45)} for name in "ab"]
    annotations: dict[Any, Any] = {symbol(name): "forged" for name in death_history.WRITTEN_BY_BROKER}
    annotations |= {symbol("x-opt-deaths"): forged, symbol("x-mine"): 1}
    policed.send("plain", "x" * size, durable=durable, annotations=annotations, **({"ttl": 900} if timed else {}))
    [message] = policed.take("plain")
    assert message.body == "x" * size
    assert message.annotations["x-mine"] == 1
    assert death_history.WRITTEN_BY_BROKER.isdisjoint(message.annotations)
    policed.send("a", "m", durable=durable, annotations=annotations)
    go_on(policed, 0.1)
    assert on_queues(policed, "a", "b") == 0


@given(
    st.lists(
        st.fixed_dictionaries(
            {"queue": st.sampled_from("abc"), "reason": st.sampled_from([EXPIRY, REJECTION, TOO_OFTEN])},
            optional={"last-time": st.integers(0, 5)},
        ),
        max_size=6,
    ),
    st.sampled_from("abc"), st.sampled_from("abc"), st.sampled_from([EXPIRY, REJECTION, TOO_OFTEN]),
)  # fmt: skip


def test_cycle_needs_an_earlier_death_and_no_client_since(
    deaths: list[dict[Any, Any]], queue: str, target: str, reason: str
) -> None:
    found = death_history.is_cycle(deaths, queue, target, reason)
    if reason == REJECTION:
        assert not found
    if found and queue != target:
        assert any((death["queue"], death["reason"]) == (target, reason) for death in deaths)
    rejected_now = {"queue": queue, "reason": REJECTION, "count": 1, "last-time": 6}
    assert not death_history.is_cycle([*deaths, rejected_now], queue, target, reason) or queue == target


# ---- many messages at once ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory_limit_bytes", [1 << 20, 10_000], ids=["in memory", "on the disk"])
@pytest.mark.parametrize("address", ["", "old"], ids=["dropped", "moved"])
def test_mass_expiry_shares_the_core(memory_limit_bytes: int, address: str) -> None:
    """No step removes more than a slice allows, no expired message is delivered, and all are removed (W7)."""
    policed = Policed(memory_limit_bytes, clock=WorkingClock(0.0001))
    policed.make("q", expiry_address=address)
    policed.make("other")
    for number in range(300):
        policed.send("q", number, ttl=100)
    policed.send("q", "stays")
    taker = policed.world.open(to_client=True, address="q")
    queue = policed.world.queue()
    assert queue.messages == 301
    policed.world.clock.advance(200)
    policed.world.do(policed.world.broker.core.scheduler.run)
    policed.world.do(taker.driver.request, 1000, False)
    most = steps = 0
    before = queue.expired
    while policed.world.readings:
        assert policed.send("other", steps) == "accepted", "another client waits for none of that"
        policed.world.read_one()
        most, before = max(most, queue.expired - before), queue.expired
        steps += 1
        assert steps < 5000
    assert queue.expired == 300
    assert most <= 60
    assert [tag.message_id > 0 for tag, _ in taker.forwarded] == [True]
    assert not address or policed.world.queue("old").messages == 300


@contextmanager
def sql_held_up(world: World) -> Iterator[None]:
    """Block the SQL thread, as a slow or locked server does."""
    world.store.start_sql()
    let_go = threading.Event()
    assert world.store._sql is not None
    world.store._sql.submit(let_go.wait)
    try:
        yield
    finally:
        let_go.set()
        world.store.close_sql()


@pytest.mark.parametrize("memory_limit_bytes", [1 << 20, 10_000], ids=["in memory", "on the disk"])
def test_moves_that_wait_hold_up_nothing_else(memory_limit_bytes: int) -> None:
    """Other messages are delivered while the target of expired ones cannot be created, and the core does not poll."""
    policed = Policed(memory_limit_bytes, auto_create=("old",))
    world = policed.world
    policed.make("q", expiry_address="old")
    for number in range(60):
        policed.send("q", str(number).rjust(300), ttl=5)
    policed.send("q", "stays")
    policed.send("q", "expires later", ttl=50)
    with sql_held_up(world):
        world.advance(6)
        taker = world.open(to_client=True)
        world.do(taker.driver.request, 100, False)
        for _ in range(200):
            world.read_one()
        assert not world.readings, "the core has nothing to do until a move ends"
        assert [decoded(content).body for _, content in taker.forwarded] == ["stays", "expires later"]
        assert world.queue().messages == 62
    world.settle(taker, taker.forwarded[1][0], RELEASED)
    world.read_all()
    assert (world.queue().messages, world.queue("old").messages) == (2, 60)


@pytest.mark.parametrize("count", [2, 40])
def test_an_expiry_that_was_put_off_is_not_the_last_one(count: int) -> None:
    """Messages that expire later leave an idle queue even if no single step could remove all earlier expired ones."""
    policed = Policed(clock=WorkingClock(0.0005))
    policed.make("q")
    for number in range(count):
        policed.send("q", number, ttl=5)
    policed.send("q", "later", ttl=20)
    for _ in range(10):
        policed.world.advance(6)
        policed.world.read_all()
    assert policed.world.queue().messages == 0
