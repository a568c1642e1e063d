"""Tests of queue policies in one thread: limits, times, dead letters, duplicates, purges and restarts."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Message, symbol, timestamp

from cairnmq.amqp.codec import sections
from cairnmq.amqp.native.proton_ffi import ACCEPTED, MODIFIED, REJECTED
from cairnmq.amqp.ports import Outcome
from cairnmq.broker.nodes.access_control import parse
from tests.harness.broker.policies import Policed, decoded, either, policed

__all__ = ["policed"]

# ---- limits ---------------------------------------------------------------------------------------------------------


@either
@pytest.mark.parametrize("how", [{"max_messages": 3}, {"max_bytes": 400}], ids=["messages", "bytes"])
def test_a_full_queue_refuses_until_there_is_room(policed: Policed, durable: bool, how: dict[str, int]) -> None:
    policed.make("q", overflow="reject", **how)
    body = "x" * 100
    assert [policed.send("q", body, durable=durable) for _ in range(3)] == ["accepted"] * 3
    assert policed.send("q", body, durable=durable) == "amqp:resource-limit-exceeded"
    if durable:
        policed.restart()
        assert policed.send("q", body) == "amqp:resource-limit-exceeded"
    assert len(policed.take("q")) == 3
    assert policed.send("q", body, durable=durable) == "accepted"


@either
def test_a_ring_drops_its_oldest(policed: Policed, durable: bool) -> None:
    policed.make("q", max_messages=3, overflow="ring")
    assert [policed.send("q", n, durable=durable) for n in range(10)] == ["accepted"] * 10
    assert policed.world.queue().messages == 3
    if durable:
        policed.restart()
    assert policed.bodies("q") == [7, 8, 9]


def test_a_ring_of_a_deep_queue_drops_what_is_not_in_memory(policed: Policed) -> None:
    policed = Policed(20_000)
    policed.make("q", max_messages=100, overflow="ring")
    for n in range(300):
        policed.send("q", str(n).rjust(500))
    assert policed.world.queue().contents.backlog.count > 0
    assert [int(body) for body in policed.bodies("q")] == list(range(200, 300))


def test_a_dropping_queue_keeps_what_it_has(policed: Policed) -> None:
    policed.make("q", max_messages=2, overflow="drop")
    assert [policed.send("q", n) for n in range(5)] == ["accepted"] * 5
    assert policed.bodies("q") == [0, 1]


def test_a_blocking_queue_gives_no_credit_until_there_is_room(policed: Policed) -> None:
    policed.make("q", max_messages=4, overflow="block")
    policed.send("q", 0)
    grants = policed.senders["q"].granted
    assert [policed.send("q", n) for n in range(1, 6)] == ["accepted"] * 5
    assert grants == []
    taker = policed.open("q", 1)
    policed.world.settle(taker, taker.forwarded[0][0], ACCEPTED)
    assert grants == []  # five messages, with a limit of four
    policed.world.do(taker.driver.request, 3, False)
    for tag, _ in taker.forwarded[1:]:
        policed.world.settle(taker, tag, ACCEPTED)
    assert grants == [3]  # the credit of the first three messages was returned at once


# ---- duplicates -----------------------------------------------------------------------------------------------------


def test_a_message_id_is_taken_once(policed: Policed) -> None:
    policed.make("q", duplicate_window=3)
    assert [policed.send("q", n, id=n // 2) for n in range(6)] == ["accepted"] * 6
    assert policed.bodies("q") == [0, 2, 4]
    policed.restart()
    assert policed.send("q", "again", id=2) == "accepted"
    assert policed.bodies("q") == []
    policed.send("q", 7, id=7)
    policed.send("q", "forgotten", id=0)
    policed.send("q", "none")
    policed.send("q", "none")
    policed.send("q", "another type", id="7")
    assert policed.bodies("q") == [7, "forgotten", "none", "none", "another type"]


# ---- dead letters ---------------------------------------------------------------------------------------------------


@either
def test_a_rejected_message_goes_to_the_dead_letters_with_its_history(policed: Policed, durable: bool) -> None:
    policed.make("dead", dead_letter_address="q")
    policed.make("q", dead_letter_address="dead")
    policed.send("q", "poison", durable=durable, id=7, annotations={symbol("x-mine"): 1})
    for queue in ("q", "dead", "q"):
        taker = policed.open(queue)
        policed.world.settle(taker, taker.forwarded[0][0], REJECTED)
        policed.world.do(taker.driver.close, (), False, False)
        assert policed.world.queue(queue).messages == 0
    if durable:
        policed.restart()
    [message] = policed.take("dead")
    assert (message.body, message.id, message.annotations["x-mine"]) == ("poison", 7, 1)
    deaths = message.annotations["x-opt-deaths"]
    assert [(death["queue"], death["reason"], death["count"]) for death in deaths] == [
        ("q", "rejected", 2),
        ("dead", "rejected", 1),
    ]
    assert message.annotations["x-opt-first-death-queue"] == "q"


def test_a_delivery_limit(policed: Policed) -> None:
    policed.make("dead")
    policed.make("q", max_deliveries=3, dead_letter_address="dead")
    policed.send("q", "poison")
    taker = policed.open("q")
    for _ in range(3):
        tag, _ = taker.forwarded.pop()
        policed.world.do(taker.driver.outcomes, [Outcome(None, tag, MODIFIED, True, False)])
    assert taker.forwarded == []
    [message] = policed.take("dead")
    assert message.annotations["x-opt-last-death-reason"] == "delivery_limit"
    assert message.delivery_count == 3


def test_dead_letters_may_go_through_an_exchange_or_nowhere(policed: Policed) -> None:
    policed.make("a")
    policed.make("b")
    nodes = policed.world.broker.nodes
    for queue in ("a", "b"):
        policed.world.do(nodes.bind, nodes.exchanges["amq.fanout"], nodes.queues[queue], "", {}, lambda error: None)
    policed.make("q", dead_letter_address="amq.fanout")
    policed.make("lost", dead_letter_address="amq.direct/nobody")
    for queue in ("q", "lost"):
        policed.send(queue, queue)
        taker = policed.open(queue)
        policed.world.settle(taker, taker.forwarded[0][0], REJECTED)
    policed.restart()
    assert policed.bodies("a") == policed.bodies("b") == ["q"]
    assert policed.bodies("lost") == []


def test_dead_letters_move_by_the_broker_s_own_right(policed: Policed) -> None:
    """Dead-lettering ignores user permissions; the permission to send was checked when the queue was created."""
    policed.make("q", dead_letter_address="dead")
    policed.send("q", "poison")
    taker = policed.open("q")
    policed.world.broker.resolver.access = parse(b'[[rules]]\nwho = ["*"]\nmay_not = ["*"]\n', "rules")
    policed.world.settle(taker, taker.forwarded[0][0], REJECTED)
    policed.world.broker.resolver.access = None
    assert policed.bodies("dead") == ["poison"]


def test_a_failed_message_waits_longer_each_time(policed: Policed) -> None:
    policed.make("q", retry_delay_ms=100, max_retry_delay_ms=300)
    policed.send("q", "later")
    taker = policed.open("q")
    for delay_s in (0.1, 0.2, 0.3, 0.3):
        tag, _ = taker.forwarded.pop()
        policed.world.do(taker.driver.outcomes, [Outcome(None, tag, MODIFIED, True, False)])
        policed.world.advance(delay_s - 0.001)
        assert taker.forwarded == []
        policed.world.advance(0.002)
    assert len(taker.forwarded) == 1


# ---- times ----------------------------------------------------------------------------------------------------------


@either
def test_a_message_expires(policed: Policed, durable: bool) -> None:
    policed.make("late")
    policed.make("q", expiry_address="late")
    policed.send("q", "short", ttl=1, durable=durable)
    policed.send("q", "long", ttl=100, durable=durable)
    policed.send("q", "ever", durable=durable)
    policed.world.advance(2)
    assert policed.world.queue().messages == 2
    if durable:
        policed.restart()
        policed.world.advance(1)
    [message] = policed.take("late")
    assert (message.body, message.ttl) == ("short", 0)
    assert message.annotations["x-opt-last-death-reason"] == "expired"
    assert policed.bodies("q") == ["long", "ever"]


def test_time_goes_on_while_the_broker_is_down(policed: Policed) -> None:
    policed.make("q", message_ttl_ms=10_000)
    policed.send("q", "one", ttl=100)
    policed.world.clock.advance(6)
    policed.send("q", "two")
    policed.restart()
    policed.world.clock.advance(6)
    assert policed.bodies("q") == ["two"]


def test_what_expires_while_a_consumer_has_it_expires_when_it_comes_back(policed: Policed) -> None:
    policed.make("q")
    policed.send("q", "held", ttl=1)
    taker = policed.open("q")
    policed.world.advance(5)
    assert policed.world.queue().messages == 1
    policed.world.do(taker.driver.outcomes, [Outcome(None, taker.forwarded[0][0], MODIFIED, True, False)])
    assert len(taker.forwarded) == 1
    assert policed.world.queue().messages == 0


def test_a_deep_queue_without_consumers_shrinks_as_its_messages_expire() -> None:
    policed = Policed(20_000)
    policed.make("q")
    for n in range(200):
        policed.send("q", str(n).rjust(500), ttl=10 if n < 150 else 1000)
    assert policed.world.queue().contents.backlog.count > 100
    policed.world.advance(11)
    policed.world.read_all()
    assert policed.world.queue().messages == 50
    assert [int(body) for body in policed.bodies("q")] == list(range(150, 200))


@either
@pytest.mark.parametrize("how", ["delay", "time"])
def test_a_message_is_delivered_later(policed: Policed, durable: bool, how: str) -> None:
    policed.make("q")
    now_ms = policed.world.clock.wall_us() // 1000
    value = 5000 if how == "delay" else timestamp(now_ms + 5000)
    policed.send("q", "later", durable=durable, annotations={symbol(f"x-opt-delivery-{how}"): value})
    policed.send("q", "now", durable=durable)
    taker = policed.open("q")
    assert [decoded(content).body for _, content in taker.forwarded] == ["now"]
    policed.world.settle(taker, taker.forwarded[0][0], ACCEPTED)
    if durable:
        policed.restart()
        taker = policed.open("q")
        assert taker.forwarded == []
    taker.forwarded.clear()
    policed.world.advance(4.9)
    assert taker.forwarded == []
    policed.world.advance(0.2)
    assert [decoded(content).body for _, content in taker.forwarded] == ["later"]


def test_later_and_deep(policed: Policed) -> None:
    policed = Policed(20_000)
    policed.make("q")
    for n in range(100):
        annotations = {symbol("x-opt-delivery-delay"): 5000} if n % 3 == 0 else None
        policed.send("q", str(n).rjust(500), annotations=annotations)
    taker = policed.open("q", 1000)
    seen = [int(decoded(content).body) for _, content in taker.forwarded]
    assert seen == [n for n in range(100) if n % 3]
    policed.world.advance(6)
    policed.world.read_all()
    assert sorted(int(decoded(content).body) for _, content in taker.forwarded) == list(range(100))


# ---- purging and deleting -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deep", [False, True], ids=["in memory", "deep"])
def test_a_purge_leaves_what_consumers_have(deep: bool) -> None:
    policed = Policed(20_000 if deep else 1 << 20)
    policed.make("q")
    for n in range(100):
        policed.send("q", str(n).rjust(500))
    taker = policed.open("q", 5)
    purged: list[Any] = []
    policed.world.do(policed.world.queue().order.purge, purged.append, "")
    policed.world.read_all()
    assert purged == [95]
    policed.send("q", "after")
    policed.world.settle(taker, taker.forwarded[0][0], ACCEPTED)
    policed.world.do(taker.driver.close, [tag for tag, _ in taker.forwarded[1:]], False, False)
    policed.restart()
    assert policed.bodies("q") == [str(n).rjust(500) for n in range(1, 5)] + ["after"]


def test_a_deleted_queue_is_gone_and_its_name_free(policed: Policed) -> None:
    policed.make("q")
    policed.send("q", "old")
    taker, other = policed.open("q"), policed.senders["q"]
    done: list[Any] = []
    policed.world.do(policed.world.broker.nodes.delete_queue, policed.world.queue(), done.append)
    assert done == [None]
    assert taker.failures == other.failures == ["amqp:resource-deleted"]
    policed.world.settle(taker, taker.forwarded[0][0], ACCEPTED)  # a settlement that crosses the deletion
    policed.restart()
    assert "q" not in policed.world.broker.nodes.queues
    assert not list(policed.world.store.going_queues())
    policed.make("q")
    assert policed.bodies("q") == []


def test_annotations_keep_everything_else_as_it_was() -> None:
    """Annotations change neither the body nor the properties of a message."""
    content = bytes(Message(body=b"x" * 100, id="i", properties={"a": 1}).encode())
    found = decoded(sections.annotated(content, {"x-opt-a": 1}))
    assert (found.body, found.id, found.properties) == (b"x" * 100, "i", {"a": 1})
