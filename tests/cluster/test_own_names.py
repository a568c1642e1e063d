"""Tests of name conflicts: a member that cannot apply a cluster event fails, and does not acknowledge it."""

from __future__ import annotations

from typing import Any

import pytest

from cairnmq.base.errors import StoreError
from cairnmq.cluster.nodes.cluster_nodes import ClusterNodes, NameConflict
from tests.harness.cluster.cluster_harness import ClusterHarness, Sender


def make_own(harness: ClusterHarness, node: int, name: str) -> None:
    """Create a durable queue on *node* that is not replicated."""
    member = harness[node]
    member.do(member.broker.nodes.create_queue, name, {"replicated": False}, print)
    assert harness.until(lambda: name in member.broker.nodes.queues)
    assert not member.broker.nodes.queues[name].replicated


def asked(harness: ClusterHarness, node: int, what: str, *args: Any) -> Any:
    """Call method *what* of the nodes of member *node*, and return its result."""
    came: list[Any] = []
    harness[node].do(getattr(harness[node].broker.nodes, what), *args, came.append)
    assert harness.until(lambda: bool(came)), what
    return came[0]


def why_it_ended(harness: ClusterHarness, node: int) -> str:
    assert harness.until(lambda: bool(harness[node].failures)), harness.reason()
    return str(harness[node].failures[0])


def nodes_of(harness: ClusterHarness, node: int) -> ClusterNodes:
    return harness[node].core.nodes


def send(harness: ClusterHarness, node: int, numbers: range, address: str = "q") -> Sender:
    sender = Sender(harness[node], address)
    assert harness.until(lambda: sender.driver is not None)
    sender.send(numbers)
    return sender


def test_all_make_a_queue_of_which_one_member_has_its_own() -> None:  # D17, D67
    harness = ClusterHarness().start()
    make_own(harness, 1, "q")
    own = send(harness, 1, range(3))
    assert harness.until(lambda: len(own.confirmed) == 3)
    sender = send(harness, 2, range(10, 20))
    reason = why_it_ended(harness, 1)
    assert "queue 'q': the cluster has a node of that name, and this one is local to this member" in reason
    assert "cairnmq ctl queues delete q" in reason
    assert harness.until(lambda: len(sender.confirmed) == 10), harness.reason()
    assert harness.same_everywhere()
    assert harness[1].broker.nodes.queues["q"].messages == 3


@pytest.mark.parametrize("kind", ["queue", "exchange"])
def test_who_passes_by_what_is_said_counts_for_no_majority(kind: str) -> None:  # D1, D17
    harness = ClusterHarness().start()
    make_own(harness, 1, "q")
    harness[3].kill()
    harness.run(0.5)
    made: list[Any] = []
    nodes = harness[2].broker.nodes
    if kind == "queue":
        harness[2].do(nodes.create_queue, "q", {}, made.append)
    else:
        harness[2].do(nodes.create_exchange, "q", "fanout", {}, made.append)
    why_it_ended(harness, 1)
    harness.run(1)
    assert not made
    assert not harness[2].serves


def test_who_comes_with_a_queue_of_its_own_that_the_cluster_has() -> None:  # D17, D67
    harness = ClusterHarness().start()
    make_own(harness, 3, "q")
    own = send(harness, 3, range(3))
    assert harness.until(lambda: len(own.confirmed) == 3)
    harness[3].stop()
    harness.run(0.5)
    sender = send(harness, 1, range(10, 20))
    assert harness.until(lambda: len(sender.confirmed) == 10)
    harness[3].start()
    assert "queue 'q': the cluster has a node of that name" in why_it_ended(harness, 3)
    assert harness[3].broker.nodes.queues["q"].messages == 3
    assert all(harness[node].serves for node in (1, 2))


def test_what_does_not_last_makes_room() -> None:  # D67
    harness = ClusterHarness().start()
    own = harness[1].broker.nodes.add_queue("q", {})
    harness[1].broker.nodes.add_exchange("e", "topic", {})
    assert asked(harness, 2, "create_exchange", "e", "fanout", {}).exchange_id
    sender = send(harness, 2, range(5))
    assert harness.until(lambda: len(sender.confirmed) == 5)
    harness.run(0.2)
    assert own.is_deleted
    assert harness[1].broker.nodes.exchanges["e"].type == "fanout"
    assert harness.same_everywhere()
    assert all(member.serves for member in harness.members.values())


def test_a_queue_that_is_going_is_waited_for() -> None:  # D58, D67
    harness = ClusterHarness().start()
    make_own(harness, 1, "q")
    nodes = nodes_of(harness, 1)
    came: list[Any] = []

    def both() -> None:
        nodes.delete_queue(nodes.queues["q"], print)
        assert nodes.queues["q"].is_deleting
        nodes.do({"do": "queue", "name": "q", "arguments": {}}, came.append)

    harness[1].do(both)
    assert harness.until(lambda: bool(came))
    assert came[0].replicated
    assert "q" not in harness[2].broker.nodes.queues, "nobody was asked to make it"


def test_who_wants_a_queue_while_its_own_is_made_gets_that() -> None:  # D67
    harness = ClusterHarness().start()
    made: list[Any] = []
    for arguments in ({"replicated": False}, {}):
        harness[1].do(harness[1].broker.nodes.create_queue, "q", arguments, made.append)
    assert harness.until(lambda: len(made) == 2)
    assert made[0] is made[1] is harness[1].broker.nodes.queues["q"]
    harness.run(0.5)
    assert "q" not in harness[2].broker.nodes.queues
    assert all(member.serves for member in harness.members.values())


def test_by_a_template_each_member_has_its_own() -> None:  # D67
    harness = ClusterHarness().start()
    asked(harness, 1, "set_template", "own.*", {"replicated": False})
    assert harness.until(lambda: all(member.broker.nodes.templates for member in harness.members.values()))
    senders = [send(harness, node, range(node), "own.q") for node in harness.members]
    assert harness.until(lambda: [len(sender.confirmed) for sender in senders] == [1, 2, 3])
    assert [member.broker.nodes.queues["own.q"].messages for member in harness.members.values()] == [1, 2, 3]
    assert all(member.serves for member in harness.members.values())


def test_who_has_a_name_is_asked_for_it_no_second_time() -> None:  # D17
    harness = ClusterHarness().start()
    make_own(harness, 1, "q")
    assert asked(harness, 1, "create_queue", "q", {}) is harness[1].broker.nodes.queues["q"]
    assert isinstance(asked(harness, 1, "create_exchange", "q", "fanout", {}), StoreError)
    asked(harness, 2, "create_exchange", "e", "fanout", {})
    assert harness.until(lambda: all("e" in member.broker.nodes.exchanges for member in harness.members.values()))
    assert isinstance(asked(harness, 1, "create_queue", "e", {}), StoreError)
    assert isinstance(asked(harness, 1, "create_queue", "e", {"replicated": False}), StoreError)
    assert all(member.serves for member in harness.members.values())


def test_what_comes_of_nothing_leaves_a_members_own() -> None:  # D67
    harness = ClusterHarness().start()
    make_own(harness, 1, "q")
    nodes = nodes_of(harness, 1)
    nodes.add_exchange("e", "topic", {})
    nodes.do({"do": "no-queue", "name": "q", "why": "a second time"}, print)
    nodes.do({"do": "no-exchange", "name": "e", "why": "a second time"}, print)
    nodes.do({"do": "queue", "name": "other", "arguments": {"replicated": False}}, print)
    nodes.do({"do": "exchange", "name": "e", "type": "what", "arguments": {}}, print)
    harness.run(0.1)
    assert "q" in nodes.queues
    assert "e" in nodes.exchanges
    assert "other" not in nodes.queues


def test_an_exchange_of_one_member_is_nobody_elses() -> None:  # D67
    harness = ClusterHarness().start()
    own = asked(harness, 1, "create_exchange", "e", "fanout", {"replicated": False})
    assert own.exchange_id
    make_own(harness, 1, "mine")
    assert asked(harness, 1, "bind", own, nodes_of(harness, 1).queues["mine"], "", {}) is None
    sender = send(harness, 1, range(3), "e")
    assert harness.until(lambda: len(sender.confirmed) == 3)
    assert all("e" not in harness[node].broker.nodes.exchanges for node in (2, 3))
    replicated = asked(harness, 1, "create_queue", "q", {})
    refused = asked(harness, 1, "bind", own, replicated, "", {})
    assert "it is local to this member, and queue 'q' is replicated" in str(refused)
    sender.leave()
    harness[1].stop()  # the others continue, so member 1 needs a state transfer
    harness.run(0.5)
    harness[1].start()
    assert harness.until(lambda: harness[1].serves), harness.reason()
    again = nodes_of(harness, 1).exchanges["e"]
    assert [binding.queue.name for binding in again.bindings()] == ["mine"]
    assert nodes_of(harness, 1).queues["mine"].messages == 3
    assert asked(harness, 1, "delete_exchange", again) is None
    assert "e" not in nodes_of(harness, 1).exchanges


@pytest.mark.parametrize("meanwhile", ["nothing", "deleted", "another"])
def test_a_members_own_queues_stay_bound_to_what_all_have(meanwhile: str) -> None:  # D67
    """A local queue stays bound after a state transfer, unless the exchange was deleted *meanwhile* on the others."""
    harness = ClusterHarness().start()
    for name in ("e", "unbound"):
        asked(harness, 1, "create_exchange", name, "fanout", {})
    make_own(harness, 1, "mine")
    nodes = nodes_of(harness, 1)
    assert asked(harness, 1, "bind", nodes.exchanges["e"], nodes.queues["mine"], "", {}) is None
    harness[1].stop()
    harness.run(0.5)
    if meanwhile != "nothing":
        assert asked(harness, 2, "delete_exchange", nodes_of(harness, 2).exchanges["e"]) is None
    if meanwhile == "another":
        asked(harness, 2, "create_exchange", "e", "topic", {})
    harness[1].start()
    assert harness.until(lambda: harness[1].serves), harness.reason()
    there = nodes_of(harness, 1).exchanges
    assert {name: one.type for name, one in there.items()} == {
        name: one.type for name, one in nodes_of(harness, 2).exchanges.items()
    }
    bound = [binding.queue.name for binding in there["e"].bindings()] if "e" in there else []
    assert bound == (["mine"] if meanwhile == "nothing" else [])
    assert not harness[1].failures


@pytest.mark.parametrize("kind", ["queue", "exchange"])
@pytest.mark.parametrize("comes_late", [False, True])
def test_all_make_what_has_the_name_of_one_members_exchange(kind: str, comes_late: bool) -> None:  # D17, D67
    harness = ClusterHarness().start()
    assert asked(harness, 3, "create_exchange", "e", "fanout", {"replicated": False}).exchange_id
    if comes_late:
        harness[3].stop()
        harness.run(0.5)
    what: tuple[Any, ...] = ("create_queue", "e", {}) if kind == "queue" else ("create_exchange", "e", "direct", {})
    asked(harness, 1, *what)
    if comes_late:
        harness[3].start()
    reason = why_it_ended(harness, 3)
    assert "exchange 'e': the cluster has a node of that name, and this one is local to this member" in reason
    assert "cairnmq ctl exchanges delete e" in reason
    assert all(harness[node].serves for node in (1, 2))


@pytest.mark.parametrize("own", ["queue", "exchange"])
@pytest.mark.parametrize("kind", ["queue", "exchange"])
def test_all_make_what_a_member_is_just_making_for_itself(own: str, kind: str) -> None:  # D17, D67
    harness = ClusterHarness().start()
    nodes = nodes_of(harness, 3)
    came: list[Any] = []
    received = {"do": kind, "name": "n", "type": "topic", "arguments": {}}

    def both() -> None:
        if own == "queue":
            nodes.create_queue("n", {"replicated": False}, print)
        else:
            nodes.create_exchange("n", "fanout", {"replicated": False}, print)
        nodes.do(received, came.append)

    harness[3].do(both)
    assert harness.until(lambda: bool(came))
    assert isinstance(came[0], NameConflict)
    assert f"{own} 'n'" in str(came[0])


def test_a_member_whose_wiring_can_not_be_written() -> None:  # D17
    harness = ClusterHarness().start()
    harness[3].wiring.refuse_writing()
    for number in range(40):
        harness[1].do(harness[1].broker.nodes.create_queue, f"{number}" * 400, {}, print)
    assert "a change of the wiring failed" in why_it_ended(harness, 3)
    sender = send(harness, 2, range(5))
    assert harness.until(lambda: len(sender.confirmed) == 5)
