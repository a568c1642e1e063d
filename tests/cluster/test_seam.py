"""Tests of the seam between broker and cluster, `broker/nodes/replication_port.py`: events and responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cairnmq.broker.nodes.exchanges import Exchange
from cairnmq.broker.nodes.registry import NodeRegistry
from cairnmq.broker.queues.queue import Queue
from tests.harness.broker.world import message
from tests.harness.cluster.cluster_harness import (
    ACCEPT,
    REJECT,
    RELEASE,
    Client,
    ClusterHarness,
    Receiver,
    Sender,
    started,
)
from tests.harness.cluster.control_recorder import overhear
from tests.harness.cluster.management_client import Manager


def test_connections_management_and_time_are_each_members_own() -> None:  # D7, D8, D21, D38, D82
    """Connections, unreplicated queues, management requests and time cause no cluster events."""
    harness = ClusterHarness().start()
    harness[1].do(harness[1].broker.nodes.create_queue, "own", {"replicated": False}, print)
    sender = Sender(harness[2])
    harness.run(0.2)
    sender.send(range(5))
    assert harness.until(lambda: len(sender.confirmed) == 5)
    harness.run(0.5)
    said = overhear(harness, at=2)
    clients: list[Client] = [Sender(harness[node]) for node in (1, 2, 3)]
    mine, taker = Sender(harness[1], "own"), Receiver(harness[1], "own")
    managers = [Manager(harness[node]) for node in (1, 3)]
    harness.run(0.2)
    mine.send(range(10))
    taker.request(10)
    assert harness.until(lambda: len(taker.unsettled) == 10)
    taker.settle_as(range(5), ACCEPT)
    taker.settle_as([5, 6], RELEASE)
    taker.settle_as([7], REJECT)
    for manager in managers:
        manager.ask("QUERY", "queue")
    harness.run(600)
    for client in (*clients, mine, taker):
        client.leave()
    harness.run(1)
    assert all(manager.answers for manager in managers)
    assert said == []
    Receiver(harness[1])
    harness.run(0.2)
    assert [each.about["what"] for each in said] == ["consume"], "a consumer of a replicated queue is told, however"


def test_a_message_is_what_came_on_all_members() -> None:  # D13, D40, D81
    """The sending client's member keeps the same object; the others have the bytes as the client encoded them."""
    harness = ClusterHarness(detection_s=1.0).start()
    sender = Sender(harness[1])
    harness.run(0.2)
    # a header in more bytes than it needs
    wide = b"\x00\x80" + (0x70).to_bytes(8) + b"\xd0" + (5).to_bytes(4) + (1).to_bytes(4) + b"\x41"
    content = wide + message(7, 10, durable=True)[7:]
    said = overhear(harness, at=2)
    harness.network.pause_daemon(1)
    sender.send_whole({7: content, 8: message(8, 100, durable=False)})
    harness.run(0.1)
    assert len(harness[1].core.locals) == 1, "said, and not heard"
    assert harness[1].contents("q") == []
    harness.network.resume_daemon(1)
    assert harness.until(lambda: sorted(sender.confirmed) == [7, 8])
    assert not len(harness[1].core.locals)
    assert any(content in each.payload for each in said)
    found = {node: [*harness[node].core.owners.replicas["q"].entries()] for node in (1, 2, 3)}
    assert all(entries[0].content == content for entries in found.values())
    assert found[1][0].content is content
    assert all(harness[node].load(entries[0].message_id) == content for node, entries in found.items())


def test_an_answer_waits_for_the_disk_and_nothing_else_waits_for_the_answer() -> None:  # D14, D56, D57
    harness = ClusterHarness().start()
    harness[1].do(harness[1].broker.nodes.create_queue, "own", {"replicated": False}, print)
    sender, receiver, own = Sender(harness[1]), Receiver(harness[1]), Sender(harness[1], "own")
    harness.run(0.2)
    sender.send([0])
    receiver.request(1)
    assert harness.until(lambda: [*receiver.unsettled] == [0])
    for member in harness.members.values():
        member.is_disk_slow = True
    receiver.settle_as([0], ACCEPT)
    sender.send([1, 2])
    own.send([3], durable=False)
    harness.run(0.5)
    assert [number for _, number in harness[3].contents("q")] == [1, 2], "done by all, as far as they heard"
    assert own.confirmed == [3], "somebody else's, who waits for no disk"
    late = Sender(harness[1])
    harness.run(0.1)
    assert late.driver is not None, "clients come and go meanwhile"
    assert not receiver.accepted
    assert sender.confirmed == [0]
    harness[1].hurry_disk()
    harness.run(0.2)
    assert sender.confirmed == [0], "one of three"
    harness[2].hurry_disk()
    assert harness.until(lambda: sender.confirmed == [0, 1, 2])
    assert receiver.accepted == [0]


Change = Callable[[NodeRegistry, Callable[[Any], None]], None]


def _there(nodes: NodeRegistry) -> tuple[Exchange, Queue]:
    return nodes.exchanges["e"], nodes.queues["q"]


CHANGES: dict[str, Change] = {
    "a queue": lambda nodes, done: nodes.create_queue("new", {}, done),
    "an exchange": lambda nodes, done: nodes.create_exchange("new", "topic", {}, done),
    "a binding": lambda nodes, done: nodes.bind(*_there(nodes), "key", {}, done),
    "no binding": lambda nodes, done: nodes.unbind(*_there(nodes), "old", done),
    "no queue": lambda nodes, done: nodes.delete_queue(nodes.queues["q"], done),
    "no exchange": lambda nodes, done: nodes.delete_exchange(nodes.exchanges["e"], done),
    "a template": lambda nodes, done: nodes.set_template("t.*", {"max-messages": 5}, done),
    "other arguments": lambda nodes, done: nodes.change_queue(nodes.queues["q"], {"paused": True}, done),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_of_the_wiring_is_answered_when_a_majority_has_made_it(what: str) -> None:  # D26, D58, D66
    harness = started("q")
    nodes = harness[1].broker.nodes
    made: list[object] = []
    harness[1].do(nodes.create_exchange, "e", "direct", {}, made.append)
    harness.run(0.2)
    harness[1].do(lambda: nodes.bind(*_there(nodes), "old", {}, made.append))
    assert harness.until(lambda: len(made) == 2)
    assert not any(isinstance(one, Exception) for one in made)
    harness.run(0.2)
    before = wiring(harness, 2)
    harness[2].asleep = harness[3].asleep = True
    answers: list[object] = []
    harness[1].do(CHANGES[what], nodes, answers.append)
    harness.run(0.5)
    assert answers == []
    harness[2].asleep = False
    assert harness.until(lambda: len(answers) == 1)
    assert not isinstance(answers[0], Exception)
    assert wiring(harness, 2) != before
    assert wiring(harness, 2) == wiring(harness, 1)


def wiring(harness: ClusterHarness, node: int) -> object:
    """Return a snapshot of the replicated wiring of *node*."""
    nodes = harness[node].core.nodes
    return nodes.snapshot([queue for queue in nodes.queues.values() if queue.replicated])


def test_a_newcomer_takes_part_before_it_is_whole_and_holds_nobody() -> None:  # D18, D33, D68, D82
    harness = ClusterHarness().start()
    sender, receiver = Sender(harness[1]), Receiver(harness[2])
    harness.run(0.2)
    harness[3].kill()
    harness.run(0.3)
    sender.send(range(100), size_bytes=1000)
    assert harness.until(lambda: len(sender.confirmed) == 100)
    stalls = {node: harness[node].core.inbox.stalls for node in (1, 2)}
    brings = {node: harness[node].core.sender.resume for node in (1, 2)}
    for node in brings:
        harness[node].core.sender.resume = lambda: None  # type: ignore[method-assign]
    harness[3].start()
    assert harness.until(lambda: harness[3].core.state.phase == "transferring")
    assert wiring(harness, 3) == wiring(harness, 1), "the wiring comes first, as it was at the cut"
    assert not harness[3].contents("q")
    assert harness[3].core.receiver.unfinished
    replica = harness[3].core.owners.replicas["q"]
    sender.send(range(100, 110))
    receiver.request(20)
    assert harness.until(lambda: len(sender.confirmed) == 110)
    assert harness.until(lambda: len(receiver.unsettled) == 20), "those who are there go on"
    receiver.settle_as(range(20), ACCEPT)
    assert harness.until(lambda: len(receiver.accepted) == 20)
    harness.run(0.2)
    assert [number for _, number in harness[3].contents("q")] == [*range(100, 110)], "what it hears stands there"
    assert replica.queue.is_paused
    late = Receiver(harness[3])
    harness.run(0.2)
    assert late.is_dead, "it hands out nothing, and says so"
    assert {node: harness[node].core.inbox.stalls for node in (1, 2)} == stalls
    brought = sum(harness[node].core.sender.brought for node in (1, 2))
    for node, go_on in brings.items():
        harness[node].core.sender.resume = go_on  # type: ignore[method-assign]
    sender.send([110])  # makes the updater take a step
    assert harness.until(lambda: harness[3].serves), harness.reason()
    harness.run(0.2)
    assert harness.same_everywhere()
    brought = sum(harness[node].core.sender.brought for node in (1, 2)) - brought
    assert brought == 80, "what was taken meanwhile was not brought"
