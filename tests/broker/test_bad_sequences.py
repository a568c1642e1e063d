"""Tests of invalid requests in any order: the core rejects them or continues, and never fails."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from proton import Message

from cairnmq.amqp.codec import decode, encode
from cairnmq.amqp.codec.primitives import Malformed
from cairnmq.amqp.codec.types import Described, Symbol
from cairnmq.amqp.native.proton_ffi import REJECTED
from cairnmq.amqp.ports import Open, Terminus
from cairnmq.broker.nodes.exchanges import MAX_KEY_CHARACTERS
from tests.harness.amqp.encoding import message_annotations
from tests.harness.broker.policies import Policed
from tests.harness.broker.world import FakeTerminal

DURABLE = b"\x00\x53\x70\xc0\x02\x01\x41"
BODY = b"\x00\x53\x77\xa1\x01x"


@pytest.fixture
def policed() -> Policed:
    return Policed()


def attach(policed: Policed, *, to_client: bool, link_name: str = "link", **terminus: Any) -> FakeTerminal:
    terminal = FakeTerminal()
    opening = Open(to_client, Terminus(**terminus), link_name=link_name, container="client")
    policed.world.do(policed.world.broker.drivers.open, opening, terminal)
    return terminal


@pytest.mark.parametrize("descriptor", [[1], {}, Described([], {}), 43.0, None, b"x"])
def test_a_lifetime_policy_may_be_anything(policed: Policed, descriptor: Any) -> None:
    properties = encode.value({Symbol("lifetime-policy"): Described(descriptor, [])})
    assert attach(policed, to_client=True, dynamic=True, properties=properties).driver is not None


@pytest.mark.parametrize(
    "count", ["many", None, [1], 2**63 - 1, -5, float("inf"), float("nan"), 1.5, Described([1], {})], ids=repr
)
def test_what_a_sender_says_of_a_messages_deaths_is_not_believed(policed: Policed, count: Any) -> None:
    policed.make("dead")
    policed.make("q", dead_letter_address="dead")
    told = [{"queue": "q", "reason": "rejected", "count": count}, {"queue": [Described([1], 2)]}, 7]
    sender = attach(policed, to_client=False, address="q")
    annotations = message_annotations({"x-opt-deaths": told})
    policed.world.send(sender, (1, DURABLE + annotations + BODY, 0))
    taker = policed.open("q")
    policed.world.settle(taker, taker.forwarded[0][0], REJECTED)
    [message] = policed.take("dead")
    assert message.annotations["x-opt-deaths"][0]["count"] >= 1


@pytest.mark.parametrize("shared", [False, True])
def test_a_queue_with_a_subscriptions_name_is_none(policed: Policed, shared: bool) -> None:
    name = f"subscription:client:{'shared:' if shared else ''}link"
    capabilities = ("shared",) if shared else ()
    assert attach(policed, to_client=False, address=name).failures == ["amqp:not-found"], "none is made for a sender"
    for arguments in ({}, {"x-subscription": 7}, {"x-subscription": {"exchange": 1}}):
        made: list[Any] = []
        policed.world.do(policed.world.broker.nodes.create_queue, name, arguments, made.append)
        assert attach(policed, to_client=True, absent=True).failures == ["amqp:not-found"]
        wished: dict[str, Any] = {"address": "amq.topic", "durability": 2, "capabilities": capabilities}
        assert attach(policed, to_client=True, **wished).failures == ["amqp:not-allowed"]
        policed.world.do(policed.world.broker.nodes.delete_queue, made[0], made.append)
    assert attach(policed, to_client=True, **wished).failures == []


def test_a_subscriptions_name_is_no_longer_than_a_queues(policed: Policed) -> None:
    for durability in (0, 2):
        wished: dict[str, Any] = {"address": "amq.topic", "durability": durability, "capabilities": ("shared",)}
        refused = attach(policed, to_client=True, link_name="ü" * 20_000, **wished)
        assert refused.failures == ["amqp:invalid-field"]
    assert not policed.world.broker.nodes.queues


def test_a_long_key_is_refused_and_matches_nothing(policed: Policed) -> None:
    """Long keys are refused, as matching takes time in proportion to the lengths of the key and of the pattern."""
    pattern = "#." + "a.#." * 2000 + "#"
    assert attach(policed, to_client=True, address=f"amq.topic/{pattern}").failures == ["amqp:invalid-field"]
    attach(policed, to_client=True, address="amq.topic")
    for number, address in enumerate(("amq.topic", None, "amq.topic/" + "a." * 200, "topic://" + "a." * 200)):
        sender = attach(policed, to_client=False, address=address)
        message = Message(body=1, durable=True, subject="a." * MAX_KEY_CHARACTERS, address="amq.topic")
        policed.world.send(sender, (number, bytes(message.encode()), 0))
        assert sender.rejected == {number: "amqp:invalid-field"}
    exchange = policed.world.broker.nodes.exchanges["amq.topic"]
    assert exchange.routed == exchange.unrouted == 0


def test_a_map_with_keys_of_one_hash_is_refused_if_it_is_large() -> None:
    """A large map of UUIDs with one hash is refused, as a dictionary with many colliding keys takes quadratic time."""
    period = (1 << 61) - 1
    for count in (64, 65):
        entries = [encode.value(UUID(int=5 + number * period)) + b"\x40" for number in range(count)]
        encoded = encode.mapped_entries(entries)
        if count == 64:
            assert len(decode.read_map(encoded, 0)) == 64
        else:
            with pytest.raises(Malformed, match="UUID"):
                decode.read_map(encoded, 0)


def test_a_queue_forgets_its_duplicates_when_it_goes(policed: Policed) -> None:
    policed.make("q", duplicate_window=3)
    for number in range(5):
        policed.send("q", number, id=number)
    policed.restart()
    for number in range(5, 12):  # the IDs that were recovered have left the window
        policed.send("q", number, id=number)
    policed.world.do(policed.world.broker.nodes.delete_queue, policed.world.queue(), lambda error: None)
    assert list(policed.world.broker.nodes.queues) == []
    policed.senders.clear()
    policed.make("q", duplicate_window=3)
    for number in (2, 3, 4, 10, 11):
        policed.send("q", number, id=number)
    policed.restart()
    assert policed.bodies("q") == [2, 3, 4, 10, 11]


def test_what_a_queue_remembered_goes_at_the_next_start(policed: Policed) -> None:
    """Recovery deletes the ID queue of a deleted queue if a crash came between the two deletions."""
    policed.make("$duplicates:q")
    policed.make("q")
    policed.restart()
    policed.world.step()
    assert list(policed.world.broker.nodes.queues) == ["q"]


def test_remembered_ids_may_be_purged(policed: Policed) -> None:
    policed.make("q", duplicate_window=1)
    policed.send("q", 1, id=1)
    policed.world.do(policed.world.queue("$duplicates:q").order.purge, lambda count: None, "")
    policed.send("q", 2, id=2)
    assert policed.bodies("q") == [1, 2]


@pytest.mark.parametrize("how", ["purge", "delete"])
def test_messages_on_their_way_to_a_consumer_that_has_left_are_its_own(policed: Policed, how: str) -> None:
    policed.make("q", max_deliveries=1)
    for number in range(3):
        policed.send("q", number)
    taker = policed.open("q")
    policed.world.do(taker.driver.close, (), False, False)
    queue = policed.world.queue()
    assert queue.messages == 3
    removed: list[Any] = []
    if how == "purge":
        policed.world.do(queue.order.purge, removed.append, "")
    else:
        policed.world.do(policed.world.broker.nodes.delete_queue, queue, removed.append)
    policed.world.do(taker.driver.close, [tag for tag, _ in taker.forwarded], True, False)
    assert not queue.detached_consumers
    assert removed == [0 if how == "purge" else None]
    assert policed.world.broker.core.memory.used_bytes == 0 if how == "delete" else queue.messages == 0


def test_a_ring_passes_by_what_has_expired(policed: Policed) -> None:
    policed.make("q", max_messages=4, overflow="ring")
    for number, ttl in ((1, 0), (2, 1), (3, 0), (4, 0)):
        policed.send("q", number, ttl=ttl)
    policed.world.advance(2)
    batch = [(number, bytes(Message(body=number, durable=True).encode()), 0) for number in range(5, 9)]
    policed.world.send(policed.senders["q"], *batch)
    assert policed.world.queue().messages == 4
    assert policed.bodies("q") == [5, 6, 7, 8]
    assert policed.world.broker.core.memory.used_bytes == 0


def test_a_queue_may_go_while_it_is_read_and_its_messages_expire() -> None:
    policed = Policed(15_000)
    policed.make("q")
    for number in range(60):
        policed.send("q", str(number).rjust(1000), ttl=3)
    taker = policed.world.open(to_client=True, address="q")
    policed.world.do(taker.driver.request, 100, False)
    assert policed.world.readings
    policed.world.do(policed.world.broker.nodes.delete_queue, policed.world.queue(), lambda error: None)
    policed.world.clock.advance(5)
    policed.world.read_all()
    assert policed.world.broker.core.memory.used_bytes == 0


@pytest.mark.parametrize("consumed", [False, True])
def test_what_expired_and_can_not_be_moved_is_tried_again(policed: Policed, consumed: bool) -> None:
    """The move of an expired message is retried after a delay; until then, consumers do not receive the message."""
    policed.make("q", expiry_address="late")
    for number, ttl in ((1, 0), (2, 1), (3, 0)):
        policed.send("q", number, ttl=ttl)
    policed.world.wiring.refuse_writing()
    consumers = [policed.open("q", 0)] if consumed else []
    policed.world.advance(2)
    policed.world.advance(2)
    assert policed.world.queue().messages == 3
    policed.world.wiring.refuse_writing(False)
    policed.world.advance(2)
    assert policed.bodies("late") == [2]
    for consumer in consumers:
        policed.world.do(consumer.driver.close, (), False, False)
    assert policed.bodies("q") == [1, 3]
    assert policed.world.broker.core.memory.used_bytes == 0
