"""Tests of the memory limit for transient messages: owners that fill their share block only their senders (D9)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import Message

from cairnmq.amqp.native.proton_ffi import ACCEPTED
from cairnmq.amqp.ports import MORE
from cairnmq.broker.users.quotas import Quota, Quotas
from cairnmq.broker.users.user_accounts import OWNER
from tests.harness.broker.world import World, message

LIMIT_BYTES = 4 << 20
SIZE_BYTES = 10_000


def send_while_allowed(world: World, sender: Any, numbers: range, size_bytes: int = SIZE_BYTES) -> int:
    """Send until the link is held; return the number of messages sent."""
    for sent, number in enumerate(numbers):
        if sender.held:
            return sent
        world.send(sender, (number, message(number, size_bytes, durable=False), 0))
    return len(numbers)


def test_hog_waits_and_others_send_larger_messages() -> None:  # D9
    world = World(LIMIT_BYTES)
    hog, victim = world.open(to_client=False, address="hog"), world.open(to_client=False, address="victim")
    credit = hog.credit
    sent = send_while_allowed(world, hog, range(1000))
    assert 0 < sent < 1000
    assert not hog.rejected
    assert hog.credit < credit + sent, "the last credit is kept"
    assert send_while_allowed(world, victim, range(10), 5 * SIZE_BYTES) == 10
    assert not victim.rejected
    receiver = world.open(to_client=True, address="hog")
    world.do(receiver.driver.request, sent, False)
    world.read_all()
    for tag, _ in [*receiver.forwarded]:
        world.settle(receiver, tag, ACCEPTED)
    assert not hog.held
    assert hog.credit == credit + sent
    assert send_while_allowed(world, hog, range(1000, 1010)) == 10
    assert not hog.rejected


def test_link_is_held_once_for_all_queues_of_an_owner(monkeypatch: pytest.MonkeyPatch) -> None:  # W10
    """A message to many queues of an owner who fills the share holds its link once, not once per queue."""
    world = World(LIMIT_BYTES)
    nodes = world.broker.nodes
    for number in range(20):
        world.do(nodes.create_queue, f"q{number}", {OWNER: "anna"}, lambda error: None)
        world.do(nodes.bind, nodes.exchanges["amq.topic"], world.queue(f"q{number}"), "news", {}, lambda error: None)
    sender = world.open(to_client=False, address="amq.topic/news")
    calls: list[str] = []
    monkeypatch.setattr(sender, "hold", lambda: calls.append("hold"))
    number = 0
    while not calls:
        world.send(sender, (number, message(number, SIZE_BYTES, durable=False), 0))
        number += 1
    assert calls == ["hold"]


KINDS = ("one queue", "long", "relay", "long by relay")


def send_kind(world: World, sender: Any, number: int, kind: str, queue: str, *, durable: bool) -> None:
    """Send a message of *kind* to *queue*."""
    body = bytes(200_000 if "long" in kind else SIZE_BYTES)
    content = bytes(Message(body, durable=durable, address=queue).encode())
    parts = [content[at : at + 60_000] for at in range(0, len(content), 60_000)]
    for part in parts[:-1]:
        world.send(sender, (number, part, MORE))
    world.send(sender, (number, parts[-1], 0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limit", ["memory", "quota"])
def test_senders_of_every_kind_are_held_before_anything_is_rejected(kind: str, limit: str) -> None:  # D9, W10
    """Senders of long messages and anonymous senders are held instead of rejected, and resume when there is room."""
    quotas = Quotas(defaults=Quota(max_durable_bytes=1 << 20))
    world = World(LIMIT_BYTES if limit == "memory" else 1 << 28, quotas=quotas)
    is_relay, durable = "relay" in kind, limit == "quota"
    made: list[Any] = []
    world.do(world.broker.resolver.create_queue, "hog", "q", {}, made.append)
    sender = world.open(to_client=False, address=None if is_relay else "q")
    credit = sender.credit
    sent = 0
    while not sender.held and sent < 1000:
        send_kind(world, sender, sent, kind, "q", durable=durable)
        sent += 1
    assert 0 < sent < 1000
    assert not sender.rejected
    assert len(sender.confirmed) == sent
    assert sender.credit < credit + sent, "the last credit is kept"
    receiver = world.open(to_client=True)
    world.do(receiver.driver.request, sent, False)
    world.read_all()
    for tag, _ in [*receiver.forwarded]:
        world.settle(receiver, tag, ACCEPTED)
    world.advance(1.0)
    assert not sender.held
    assert sender.credit == credit + sent


@pytest.mark.parametrize("owners", [("anna", "ben"), ("ben", "anna")], ids=" before ".join)
def test_message_to_several_queues_fits_the_quota_of_each_owner(owners: tuple[str, str]) -> None:
    quotas = Quotas(((frozenset({"anna"}), {"max_durable_bytes": 1000}),))
    world = World(LIMIT_BYTES, quotas=quotas)
    nodes, done = world.broker.nodes, list[Any]()
    for owner in owners:
        world.do(world.broker.resolver.create_queue, owner, owner, {}, done.append)
        world.do(nodes.bind, nodes.exchanges["amq.fanout"], nodes.queues[owner], "", {}, done.append)
    sender = world.open(to_client=False, address="amq.fanout")
    world.send(sender, (1, message(1, 2000, durable=True), 0), (2, message(2, 500, durable=True), 0))
    assert sender.rejected == {1: "amqp:resource-limit-exceeded"}
    assert sender.confirmed == [2]
    assert [nodes.queues[owner].messages for owner in owners] == [1, 1]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 200_000)), min_size=1, max_size=150))
def test_senders_that_wait_are_never_rejected(sends: list[tuple[int, int]]) -> None:  # D9
    """Whichever queues fill the memory, a sender that stops when its link is held gets no rejection."""
    world = World(LIMIT_BYTES)
    senders = [world.open(to_client=False, address=f"queue {number}") for number in range(7)]
    for number, (which, size_bytes) in enumerate(sends):
        if not senders[which].held:
            world.send(senders[which], (number, message(number, size_bytes, durable=False), 0))
    assert not any(sender.rejected for sender in senders)
    assert world.broker.core.memory.used_bytes <= LIMIT_BYTES
