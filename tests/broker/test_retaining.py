"""Tests of resumable receiver links in one thread: each message is processed once despite failures (G12)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers, lists, sampled_from, tuples

from cairnmq.amqp.links.resume_state import UNKNOWN, Claims
from cairnmq.amqp.native.proton_ffi import ACCEPTED, MODIFIED, RECEIVED, REJECTED, RELEASED
from cairnmq.amqp.ports import Open, Outcome, Terminus
from cairnmq.broker.resume.registry import PREFIX
from cairnmq.store.contract.dequeue_reason import DequeueReason
from tests.harness.broker.resumable_receivers import Receiver, others_get, put, world_with
from tests.harness.broker.world import FakeTerminal, World, message, number_of

STEPS = ("put", "receive", "decide", "decide unflushed", "hear", "break", "attach", "attach anew", "kill", "rival")


@pytest.fixture
def receiver() -> Receiver:
    receiver = Receiver(world_with(3))
    receiver.attach()
    return receiver


@settings(max_examples=120)
@given(lists(tuples(sampled_from(STEPS), integers(1, 3)), max_size=20))
def test_each_message_is_processed_once(steps: list[tuple[str, int]]) -> None:
    world = world_with(6)
    receiver = Receiver(world)
    receiver.attach(credit=4)
    processed: Counter[int] = Counter()
    last = 6
    for step, times in steps:
        for _ in range(times):
            if step == "put":
                last += 1
                put(world, last)
            elif step == "receive":
                receiver.receive()
            elif step.startswith("decide"):
                receiver.decide(flushed=step == "decide")
            elif step == "hear":
                receiver.hear()
            elif step == "break":
                receiver.leave()
            elif step == "attach anew" or (step == "attach" and receiver.terminal is None):
                receiver.attach(credit=4)
            elif step == "kill":
                world.kill_and_start()
                receiver.terminal = None
            elif step == "rival":
                got = others_get(world, 2, accept=1)
                processed.update(got[:1])
                mine = {receiver.numbers[tag] for tag in receiver.states}
                assert not mine & {*got}
    for _ in range(2):
        receiver.leave()
        receiver.attach()
        while receiver.receive() is not None:
            receiver.decide()
        while receiver.states and receiver.terminal and receiver.received < len(receiver.terminal.settled):
            receiver.hear()
    assert not receiver.states
    processed.update(receiver.processed)
    assert processed == Counter(range(1, last + 1))
    assert world.queue().messages == 0
    assert receiver.terminal is not None
    assert not receiver.terminal.driver.end.tags


def test_a_message_that_the_client_has_is_nobody_elses(receiver: Receiver) -> None:
    receiver.receive()
    receiver.leave()
    assert others_get(receiver.world) == []
    receiver.world.kill_and_start()
    assert others_get(receiver.world) == []
    receiver.attach()
    assert receiver.terminal is not None
    assert [one.is_resumed for one in receiver.terminal.resumable] == [True, False, False]


@pytest.mark.parametrize("kill", [False, True])
def test_what_the_client_does_not_know_is_sent_again_as_a_redelivery(receiver: Receiver, kill: bool) -> None:
    if kill:
        receiver.world.kill_and_start()
        receiver.terminal = None
    receiver.leave()
    receiver.attach()
    assert receiver.terminal is not None
    for one in receiver.terminal.resumable:
        assert not one.is_resumed
        assert one.entry.previously_delivered


@pytest.mark.parametrize("state", [REJECTED, RELEASED, MODIFIED])
@pytest.mark.parametrize("kill", [False, True])
def test_an_outcome_that_was_only_said_in_the_map_is_taken(receiver: Receiver, state: int, kill: bool) -> None:
    found = receiver.receive()
    assert found is not None
    receiver.leave()
    if kill:
        receiver.world.kill_and_start()
    receiver.states[found.tag] = state
    claims = Claims(dict(receiver.states), True, {found.tag: (True, False)})
    receiver.attach(claims)
    assert receiver.terminal is not None
    assert not receiver.states
    again = [one for one in receiver.terminal.resumable if one.entry.position == found.entry.position]
    assert len(again) == (state != REJECTED)
    if again and state == MODIFIED:
        assert again[0].entry.failures == 1


def test_a_delivery_of_which_a_part_has_come_is_resumed(receiver: Receiver) -> None:
    found = receiver.receive()
    assert found is not None
    receiver.leave()
    receiver.attach(Claims({found.tag: RECEIVED}, True))
    assert receiver.terminal is not None
    assert receiver.terminal.resumable[0][2:] == (found.tag, True)


def test_a_client_whose_map_is_incomplete_gets_nothing_new(receiver: Receiver) -> None:
    first = receiver.receive()
    assert first is not None
    receiver.leave()
    receiver.attach(Claims({first.tag: 0}, False))
    assert receiver.terminal is not None
    assert [one.tag for one in receiver.terminal.resumable] == [first.tag]
    receiver.ask(200, drain=True)
    assert receiver.terminal.drains
    receiver.leave()
    receiver.attach()
    assert [one.is_resumed for one in receiver.terminal.resumable] == [True, False, False]


def test_a_malformed_map_ends_the_link_and_drops_nothing(receiver: Receiver) -> None:
    receiver.receive()
    receiver.leave()
    receiver.attach(UNKNOWN)
    assert receiver.terminal is not None
    assert receiver.terminal.failures == ["amqp:invalid-field"]
    receiver.attach()
    assert receiver.terminal.resumable[0].is_resumed


def test_claims_of_a_receiver_are_dropped_once_they_are_compared(receiver: Receiver) -> None:
    receiver.receive()
    receiver.leave()
    claims = Claims(dict(receiver.states), True)
    receiver.attach(claims)
    assert receiver.terminal is not None
    assert receiver.terminal.resumable[0].is_resumed
    assert claims.states == {}


@pytest.mark.parametrize("how", ["closed", "expired", "another queue"])
def test_what_an_end_has_goes_back_when_it_is_given_up(receiver: Receiver, how: str) -> None:
    receiver.receive()
    world = receiver.world
    if how == "closed":
        receiver.leave(for_good=True)
    else:
        receiver.leave()
        if how == "expired":
            world.kill_and_start()
            world.advance(61)
        else:
            world.do(world.broker.nodes.create_queue, "other", {}, lambda made: None)
            other = Receiver(world, "other")
            other.attach()
    world.step()
    assert others_get(world) == [1, 2, 3]
    assert sum(name.startswith(PREFIX) for name in world.broker.nodes.queues) == (how == "another queue")


def test_a_purge_leaves_what_the_client_has(receiver: Receiver) -> None:
    receiver.receive()
    receiver.leave()
    done: list[Any] = []
    receiver.world.do(receiver.world.queue().order.purge, done.append, "")
    assert done == [0]
    receiver.attach()
    assert receiver.terminal is not None
    assert len(receiver.terminal.resumable) == 3


def test_a_queue_that_goes_takes_along_what_the_client_has(receiver: Receiver) -> None:
    receiver.receive()
    receiver.leave()
    world = receiver.world
    world.do(world.broker.nodes.delete_queue, world.queue(), lambda error: None)
    world.kill_and_start()
    world.step()
    assert not any(name.startswith(PREFIX) for name in world.broker.nodes.queues)


def test_what_is_not_durable_is_remembered_as_long_as_the_broker_runs() -> None:
    world = world_with(0)
    put(world, 1, 2, durable=False)
    receiver = Receiver(world)
    receiver.attach()
    first = receiver.receive()
    assert first is not None
    receiver.leave()
    receiver.attach()
    assert receiver.terminal is not None
    assert receiver.terminal.resumable[0][2:] == (first.tag, True)


def test_a_dead_letter_is_moved_once() -> None:
    world = world_with(1, **{"dead-letter-address": "dead"})
    made: list[Any] = []
    world.do(world.broker.nodes.create_queue, "dead", {}, made.append)
    client = Receiver(world)
    client.attach()
    client.receive()
    client.decide(REJECTED)
    client.leave()
    world.read_all()
    world.kill_and_start()
    client.attach()
    assert not client.states
    assert world.queue("dead").messages == 1
    assert world.queue().messages == 0


def test_a_message_taken_in_a_transaction_is_still_the_clients_after_a_rollback(receiver: Receiver) -> None:
    world, found = receiver.world, receiver.receive()
    assert found is not None
    assert receiver.terminal is not None
    transaction = world.broker.transactions.declare(receiver, b"")
    world.do(receiver.terminal.driver.outcomes_in, receiver, [(transaction.id, Outcome(1, found.entry, ACCEPTED))])
    receiver.leave()
    world.do(world.broker.drivers.connection_closed, receiver)
    assert others_get(world) == []
    receiver.attach()
    assert receiver.terminal is not None
    assert [one.is_resumed for one in receiver.terminal.resumable] == [True, False, False]


@pytest.mark.parametrize("kill", [False, True])
def test_a_message_taken_in_a_transaction_is_settled_with_its_commit(receiver: Receiver, kill: bool) -> None:
    world, found = receiver.world, receiver.receive()
    assert found is not None
    assert receiver.terminal is not None
    transaction = world.broker.transactions.declare(receiver, b"")
    world.do(receiver.terminal.driver.outcomes_in, receiver, [(transaction.id, Outcome(1, found.entry, ACCEPTED))])
    world.do(transaction.commit, lambda: None)
    if kill:
        world.kill_and_start()
    receiver.leave()
    receiver.attach()
    assert not receiver.states, "a transactional state in the map is no outcome, and it is settled here"
    assert receiver.terminal is not None
    assert len(receiver.terminal.resumable) == 2


@pytest.mark.parametrize("lost", [False, True], ids=["closed", "lost"])
def test_what_did_not_fail_is_not_moved_away_for_that(lost: bool) -> None:
    world = world_with(1, **{"max-deliveries": 1})
    world.kill_and_start()
    (receiver,) = attach_all(world, wished(object()))
    world.read_all()
    (one,) = receiver.resumable
    world.do(receiver.driver.close, [one.entry], lost, not lost)
    (again,) = attach_all(world, wished(object()))
    world.read_all()
    assert [number_of(found.content) for found in again.resumable] == ([] if lost else [1])
    assert world.queue().messages == (not lost)


def attach_all(world: World, *requests: Open) -> list[FakeTerminal]:
    """Attach all links in one step, before the broker creates anything for them; return their terminals."""
    terminals: list[Any] = [FakeTerminal() for _ in requests]

    def attach() -> None:
        for opening, terminal in zip(requests, terminals, strict=True):
            world.broker.drivers.open(opening, terminal)

    world.do(attach)
    for terminal in terminals:
        if terminal.driver is not None:
            world.do(terminal.driver.request, 100, False)
    return terminals


def wished(connection: object, *, address: str = "q", to_client: bool = True, resumes: bool = True) -> Open:
    claims = Claims({}, True) if resumes else None
    return Open(to_client, Terminus(address=address, durability=2), False, connection, "link", "box", claims=claims)


@pytest.mark.parametrize("addresses", ["qq", "qp", "pq"])
@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
@pytest.mark.parametrize("kill", [False, True], ids=["", "killed"])
def test_of_two_who_attach_at_once_one_has_the_link(addresses: str, known: bool, kill: bool) -> None:
    """If two connections attach one link at once, to one queue or to two, only the last one gets the messages."""
    world = world_with(3)
    world.do(world.broker.nodes.create_queue, "p", {}, lambda queue: None)
    sender = world.open(to_client=False, address="p")
    world.send(sender, *[(number, message(number, 10, True), 0) for number in (7, 8)])
    if known:
        (before,) = attach_all(world, wished(object()))
        world.do(before.driver.close, [one.entry for one in before.resumable], True, False)
    first, second = attach_all(world, *[wished(object(), address=address) for address in addresses])
    assert first.failures == ["amqp:link:stolen"]
    assert second.failures == []
    there = {"q": [1, 2, 3], "p": [7, 8]}
    assert [number_of(one.content) for one in second.resumable] == there[addresses[1]]
    world.settle(second, second.resumable[0].entry, ACCEPTED)
    there[addresses[1]].pop(0)
    if first.driver is not None:
        world.do(first.driver.close, (), True, False)
    if kill:
        world.kill_and_start()
        world.step()
    else:
        world.do(second.driver.close, [one.entry for one in second.resumable[1:]], True, False)
    (again,) = attach_all(world, wished(object(), address=addresses[1]))
    world.read_all()
    assert sorted(number_of(one.content) for one in again.resumable) == there[addresses[1]]
    for one in again.resumable:
        world.settle(again, one.entry, ACCEPTED)
    world.do(again.driver.close, (), False, True)
    there[addresses[1]].clear()
    assert {name: world.queue(name).messages for name in there} == {name: len(there[name]) for name in there}
    assert not [name for name in world.broker.nodes.queues if name.startswith(PREFIX)]


@pytest.mark.parametrize("kill", [False, True], ids=["", "killed"])
def test_a_queue_that_is_made_anew_begins_the_link_anew(kill: bool) -> None:
    world = world_with(2)
    (before,) = attach_all(world, wished(object()))
    tags = [one.tag for one in before.resumable]
    assert len(tags) == 2
    world.do(before.driver.close, (), True, False)
    world.do(world.broker.nodes.delete_queue, world.queue(), lambda error: None)
    world.do(world.broker.nodes.create_queue, "q", {}, lambda made: None)
    put(world, 5)
    if kill:
        world.kill_and_start()
        world.step()
    terminal = FakeTerminal()
    opening = wished(object())._replace(claims=Claims(dict.fromkeys(tags, ACCEPTED), True))
    world.do(world.broker.drivers.open, opening, terminal)
    assert terminal.kept is not None
    assert dict(terminal.kept.states) == {}, "what it says of messages of the old one is of nothing"
    world.do(terminal.driver.request, 10, False)
    world.read_all()
    assert [number_of(one.content) for one in terminal.resumable] == [5]
    assert terminal.resumable[0].tag not in tags


@pytest.mark.parametrize("to_client", [True, False], ids=["receiver", "sender"])
@pytest.mark.parametrize("again", [False, True], ids=["", "resumed again"])
def test_a_link_that_is_attached_without_resuming_gives_up_what_was_kept(to_client: bool, again: bool) -> None:
    """Attaching without resuming, as in another settlement mode, deletes the link state and requeues its messages."""
    world = world_with(2)
    (before,) = attach_all(world, wished(object(), to_client=to_client))
    if not to_client:
        world.do(before.driver.receive_resuming, [((b"tag", message(9, 10, True), 0), b"tag", False)])
    (other,) = attach_all(world, wished(object(), resumes=False, to_client=to_client))
    assert before.failures == [], "as long as it is there nothing is taken away from it"
    world.do(other.driver.close, (), True, False)
    assert len([name for name in world.broker.nodes.queues if name.startswith(PREFIX)]) == 1
    if again:
        (before,) = attach_all(world, wished(object(), to_client=to_client))
    world.do(before.driver.close, (), True, False)
    assert len([name for name in world.broker.nodes.queues if name.startswith(PREFIX)]) == again
    (plain,) = attach_all(world, wished(object(), resumes=False, to_client=to_client))
    assert not [name for name in world.broker.nodes.queues if name.startswith(PREFIX)]
    if to_client:
        assert [number_of(content) for _, content in plain.forwarded] == [1, 2]


def test_credit_of_a_message_that_is_dequeued_before_it_is_sent_is_used_for_another() -> None:
    world = world_with(3)
    receiver = Receiver(world)
    receiver.attach(credit=0)
    assert receiver.terminal is not None
    consumer = receiver.terminal.driver
    consumer.request(2, False)
    world.queue().dispatch()  # its assignment is not durable yet
    first = next(iter(consumer.unsettled))
    world.do(world.queue().order.take, [first], DequeueReason.EXPIRED, lambda: None)
    assert [number_of(one.content) for one in receiver.terminal.resumable] == [2, 3]


def test_credit_of_a_message_that_is_dequeued_while_its_link_is_detached_is_used_for_another() -> None:
    world = world_with(3)
    receiver = Receiver(world)
    receiver.attach(credit=2)
    assert receiver.receive()
    assert receiver.receive()
    receiver.leave()
    receiver.attach(credit=0)
    assert receiver.terminal is not None
    first = receiver.terminal.driver.to_resume[0]
    world.do(world.queue().order.take, [first], DequeueReason.EXPIRED, lambda: None)
    receiver.ask(2)
    assert [number_of(one.content) for one in receiver.terminal.resumable] == [2, 3]


def test_credit_of_a_settled_message_that_is_dequeued_while_it_is_read_is_used_for_another() -> None:
    world = world_with(0)
    put(world, 4, 9)
    world.kill_and_start()  # the broker loads these long messages before it dequeues them
    receiver = world.open(to_client=True, presettled=True)
    world.do(receiver.driver.request, 1, False)
    world.read_one()
    first = next(iter(receiver.driver.unsettled))
    world.do(world.queue().order.take, [first], DequeueReason.EXPIRED, lambda: None)
    world.read_all()
    assert [number_of(content) for _, content in receiver.forwarded] == [9]
