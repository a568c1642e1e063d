"""Tests that all members execute a management request to one of them, whichever owns the queue (D54, D61, D67)."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Message

from tests.harness.cluster.cluster_harness import ACCEPT, REJECT, ClusterHarness, Receiver, Sender, started
from tests.harness.cluster.management_client import Answer, Manager


def filled(harness: ClusterHarness, name: str, numbers: range, node: int = 2) -> None:
    sender = Sender(harness[node], name)
    harness.run(0.1)
    sender.send(numbers)
    assert harness.until(lambda: len(sender.confirmed) == len(numbers))
    sender.leave()


def answer_of(harness: ClusterHarness, manager: Manager, *asked: Any, **properties: Any) -> Answer:
    before = len(manager.answers)
    manager.ask(*asked, **properties)
    assert harness.until(lambda: len(manager.answers) > before)
    return manager.answers[-1]


def numbers_on(harness: ClusterHarness, name: str) -> list[int]:
    harness.run(0.3)
    assert harness.same_everywhere(name)
    for member in harness.members.values():
        assert member.broker.nodes.queues[name].messages == len(member.contents(name))
    return [number for _, number in harness[1].contents(name)]


@pytest.mark.parametrize("node", [1, 2, 3])
def test_move(node: int) -> None:  # D54, D61
    """Move messages from a queue that member 1 owns, with requests to each member."""
    harness = started("q", "r")
    filled(harness, "q", range(300))
    owner = Receiver(harness[1], "q")
    harness.run(0.1)
    owner.request(5)
    assert harness.until(lambda: len(owner.unsettled) == 5)
    answer = answer_of(harness, Manager(harness[node]), "MOVE", "queue", "q", {"to": "r", "count": 200})
    assert answer.body == {"moved": 200}
    assert numbers_on(harness, "r") == [*range(5, 205)]
    assert numbers_on(harness, "q") == [*range(5), *range(205, 300)]
    owner.settle_as([*range(5)], ACCEPT)
    assert numbers_on(harness, "q") == [*range(205, 300)]
    other = Receiver(harness[3], "r")
    harness.run(0.1)
    other.request(1000)
    assert harness.until(lambda: len(other.order) == 200)


def test_move_while_others_take() -> None:  # D12, D54, D61
    harness = started("q", "r")
    filled(harness, "q", range(500))
    takers = [Receiver(harness[node], "q") for node in (1, 2)]
    harness.run(0.1)
    manager = Manager(harness[3])
    manager.ask("MOVE", "queue", "q", {"to": "r"})
    for _ in range(200):
        for taker in takers:
            taker.request(3)
            taker.settle_as([*taker.unsettled], ACCEPT)
        harness.run(0.05)
        if manager.answers:
            break
    [answer] = manager.answers
    taken = [number for taker in takers for number, _ in taker.order]
    for taker in takers:
        taker.leave()
    moved, left = numbers_on(harness, "r"), numbers_on(harness, "q")
    assert len(moved) == answer.body["moved"] > 0
    assert not set(moved) & set(left)
    assert {*moved, *left, *taken} == {*range(500)}


@pytest.mark.parametrize("purges", [1, 3])
@pytest.mark.parametrize("ticks", range(6))
def test_a_purge_takes_what_a_move_has_in_hand(ticks: int, purges: int) -> None:  # D54, D61, rule 16
    """In any order of the two, each message is either moved or purged, and counted by that operation."""
    harness = started("q", "r")
    filled(harness, "q", range(300))
    mover, purger = Manager(harness[3]), Manager(harness[purges])
    harness.run(0.1)
    mover.ask("MOVE", "queue", "q", {"to": "r"})
    for _ in range(ticks):
        harness.tick()
    purger.ask("PURGE", "queue", "q")
    assert harness.until(lambda: bool(mover.answers and purger.answers)), harness.reason()
    [moved], [purged] = mover.answers, purger.answers
    assert (moved.status, purged.status) == (200, 200)
    assert numbers_on(harness, "q") == []
    there = numbers_on(harness, "r")
    assert len(there) == moved.body["moved"]
    assert len(there) + purged.body["purged"] == 300


def behind_the_delete_of(harness: ClusterHarness, name: str) -> None:
    """Stall member 3 as during a wiring change, and delete queue *name*: its later events are ordered after that."""
    harness[3].core.inbox.stall()
    nodes = harness[2].broker.nodes
    harness[2].do(lambda: nodes.delete_queue(nodes.queues[name], print))
    assert harness.until(lambda: name not in nodes.queues)
    assert name in harness[3].broker.nodes.queues


@pytest.mark.parametrize("own", [False, True])
def test_what_is_moved_to_a_queue_that_is_gone_by_then_stays(own: bool) -> None:  # D49, D54, D61, rule 16
    """The messages stay as on a single broker, also on a queue that is not replicated."""
    harness = started("r")
    made: list[Any] = []
    harness[3].do(harness[3].broker.nodes.create_queue, "q", {"replicated": not own}, made.append)
    assert harness.until(lambda: bool(made))
    filled(harness, "q", range(200), node=3)
    taker = Receiver(harness[3], "q")
    mover = Manager(harness[3])
    harness.run(0.1)
    behind_the_delete_of(harness, "r")
    mover.ask("MOVE", "queue", "q", {"to": "r", "count": 100})
    harness.run(0.1)
    assert not mover.answers
    harness[3].do(harness[3].core.inbox.resume)
    assert harness.until(lambda: bool(mover.answers)), harness.reason()
    assert (mover.answers[0].status, mover.answers[0].body) == (200, {"moved": 0})
    if not own:
        assert numbers_on(harness, "q") == [*range(200)]
    taker.request(1000)
    harness.run(0.3)
    assert [number for number, _ in taker.order] == [*range(200)], "in order, and each once"
    taker.settle_as([*range(200)], ACCEPT)
    harness.run(0.3)
    assert harness[3].broker.nodes.queues["q"].messages == 0


def test_a_dead_letter_for_a_queue_that_is_gone_by_then_is_nowhere() -> None:  # D5, D49, D77, rule 16
    """All members remove the dead letters with the queue, as if they had arrived before its deletion."""
    harness = started("dead")
    made: list[Any] = []
    harness[3].do(harness[3].broker.nodes.create_queue, "q", {"dead-letter-address": "dead"}, made.append)
    assert harness.until(lambda: bool(made))
    filled(harness, "q", range(5))
    receiver = Receiver(harness[3], "q")
    harness.run(0.1)
    receiver.request(5)
    assert harness.until(lambda: len(receiver.unsettled) == 5)
    behind_the_delete_of(harness, "dead")
    receiver.settle_as([1, 2], REJECT)
    harness.run(0.1)
    harness[3].do(harness[3].core.inbox.resume)
    assert harness.until(lambda: len(receiver.settled) == 2)
    receiver.leave()
    assert numbers_on(harness, "q") == [0, 3, 4]


def test_who_moves_and_dies_has_moved_each_once() -> None:  # D5, D54, D61
    harness = started("q", "r")
    filled(harness, "q", range(500))
    manager = Manager(harness[3])
    manager.ask("MOVE", "queue", "q", {"to": "r"})
    harness.tick()
    harness.tick()
    harness[3].kill()
    harness.run(1)
    moved, left = harness[1].contents("r"), harness[1].contents("q")
    assert harness.same_everywhere("q")
    assert harness.same_everywhere("r")
    assert sorted(number for _, number in (*moved, *left)) == [*range(500)]


@pytest.mark.parametrize("node", [1, 2, 3])
def test_update_and_pause(node: int) -> None:  # D54, D58
    harness = started("q")
    filled(harness, "q", range(10))
    manager = Manager(harness[node])
    answer = answer_of(harness, manager, "UPDATE", "queue", "q", {"arguments": {"paused": True, "max-deliveries": 3}})
    assert answer.status == 200
    harness.run(0.2)
    expected = {"paused": True, "max-deliveries": 3}
    assert all(member.broker.nodes.queues["q"].arguments == expected for member in harness.members.values())
    receivers = [Receiver(member, "q") for member in harness.members.values()]
    harness.run(0.1)
    for receiver in receivers:
        receiver.request(10)
    harness.run(0.5)
    assert not any(receiver.order for receiver in receivers)
    answer = answer_of(harness, manager, "UPDATE", "queue", "q", {"arguments": {"paused": None}})
    assert harness.until(lambda: sum(len(receiver.order) for receiver in receivers) == 10)
    harness[2].stop()
    harness[2].start()
    assert harness.until(lambda: harness[2].serves)
    assert harness[2].broker.nodes.queues["q"].arguments == {"max-deliveries": 3}


def test_bad_updates_are_refused_and_change_nothing() -> None:  # D17, D54
    harness = started("q")
    manager = Manager(harness[2])
    for arguments in ({"paused": 7}, {"max-priority": 5}, {"replicated": False}):
        answer = answer_of(harness, manager, "UPDATE", "queue", "q", {"arguments": arguments})
        assert answer.status >= 400, arguments
    harness.run(0.2)
    assert all(member.broker.nodes.queues["q"].arguments == {} for member in harness.members.values())
    assert all(member.serves for member in harness.members.values())


@pytest.mark.parametrize("node", [1, 3])
def test_limits_that_shrink_count_everywhere(node: int) -> None:  # D39, D54
    harness = started("q")
    filled(harness, "q", range(10))
    changes = {"max-messages": 4, "overflow": "ring"}
    assert answer_of(harness, Manager(harness[node]), "UPDATE", "queue", "q", {"arguments": changes}).status == 200
    assert numbers_on(harness, "q") == [6, 7, 8, 9]


@pytest.mark.parametrize("node", [1, 2, 3])
def test_delete_and_purge(node: int) -> None:  # D49, D54, D61
    harness = started("q", "r")
    for name in ("q", "r"):
        filled(harness, name, range(10))
    owner = Receiver(harness[1], "q")
    harness.run(0.1)
    owner.request(2)
    assert harness.until(lambda: len(owner.unsettled) == 2)
    manager = Manager(harness[node])
    assert answer_of(harness, manager, "PURGE", "queue", "q").body == {"purged": 8}
    assert numbers_on(harness, "q") == [0, 1]
    assert answer_of(harness, manager, "DELETE", "queue", "q").status == 204
    harness.run(0.2)
    assert owner.failures == ["amqp:resource-deleted"]
    assert not any("q" in member.broker.nodes.queues for member in harness.members.values())
    assert not any("q" in member.core.owners.replicas for member in harness.members.values())
    assert numbers_on(harness, "r") == [*range(10)]


def test_purge_when_its_owner_dies_before_it_says_so() -> None:  # D54, D61, rule 16
    harness = started("q")
    filled(harness, "q", range(10))
    owner = Receiver(harness[1], "q")
    harness.run(0.1)
    owner.request(2)
    assert harness.until(lambda: len(owner.unsettled) == 2)
    harness[1].asleep = True
    manager = Manager(harness[3])
    manager.ask("PURGE", "queue", "q")
    harness.run(0.05)
    assert not manager.answers
    harness[1].kill()
    assert harness.until(lambda: bool(manager.answers))
    assert manager.answers[0].body == {"purged": 10}
    assert harness.same_everywhere("q")


@pytest.mark.parametrize("operation", ["PURGE", "MOVE", "UPDATE", "DELETE"])
@pytest.mark.parametrize("wait_s", [0.03, 0.2])
def test_while_somebody_comes(operation: str, wait_s: float) -> None:  # D18, D20, D54, D61
    harness = started("q", "r")
    filled(harness, "q", range(1000))
    harness[3].kill()
    harness.run(0.3)
    filled(harness, "q", range(1000, 1100))
    harness[3].start()
    harness.run(wait_s)
    bodies = {"MOVE": {"to": "r", "count": 600}, "UPDATE": {"arguments": {"max-deliveries": 9}}}
    answer = answer_of(harness, Manager(harness[2]), operation, "queue", "q", bodies.get(operation))
    assert answer.status < 300, answer
    assert harness.until(lambda: harness[3].serves), harness.reason()
    harness.run(0.5)
    if operation == "DELETE":
        assert not any("q" in member.broker.nodes.queues for member in harness.members.values())
        return
    there = numbers_on(harness, "q")
    moved = numbers_on(harness, "r")
    assert len(there) == {"PURGE": 0, "MOVE": 500, "UPDATE": 1100}[operation]
    assert sorted((*there, *moved)) == ([] if operation == "PURGE" else [*range(1100)])
    arguments = {"max-deliveries": 9} if operation == "UPDATE" else {}
    assert harness[3].broker.nodes.queues["q"].arguments == arguments


# ---- not replicated -----------------------------------------------------------------------------------------------


def test_a_queue_that_is_not_replicated_is_its_members_own() -> None:  # D24, D67
    harness = started("q")
    manager = Manager(harness[2])
    made = answer_of(harness, manager, "CREATE", "queue", "own", {"arguments": {"replicated": False}})
    assert made.status == 201
    assert "own" not in harness[1].broker.nodes.queues
    filled(harness, "own", range(20))
    for name in ("q", "own"):  # moves in both directions; messages are durable in both
        filled(harness, name, range(100, 103))
    assert answer_of(harness, manager, "MOVE", "queue", "own", {"to": "q", "count": 5}).body == {"moved": 5}
    assert numbers_on(harness, "q") == [100, 101, 102, 0, 1, 2, 3, 4]
    assert answer_of(harness, manager, "MOVE", "queue", "q", {"to": "own", "count": 2}).body == {"moved": 2}
    assert numbers_on(harness, "q") == [102, 0, 1, 2, 3, 4]
    assert harness[2].broker.nodes.queues["own"].messages == 20
    harness[2].kill()
    harness[2].start()
    assert harness.until(lambda: harness[2].serves)
    own = harness[2].broker.nodes.queues["own"]
    assert own.messages == 20
    assert own.arguments == {"replicated": False}
    manager = Manager(harness[2])
    assert answer_of(harness, manager, "PURGE", "queue", "own").body == {"purged": 20}
    assert answer_of(harness, manager, "DELETE", "queue", "own").status == 204
    assert numbers_on(harness, "q") == [102, 0, 1, 2, 3, 4]


def test_exchanges_lead_to_both_kinds() -> None:  # D67
    """Bindings of replicated queues are replicated; bindings of other queues are local to their member."""
    harness = started("q")
    manager = Manager(harness[2])
    for asked in (
        ("CREATE", "queue", "own", {"arguments": {"replicated": False}}),
        ("CREATE", "exchange", "x", {"exchange-type": "fanout"}),
        ("CREATE", "binding", "", {"exchange": "x", "queue": "q"}),
        ("CREATE", "binding", "", {"exchange": "x", "queue": "own"}),
    ):
        assert answer_of(harness, manager, *asked).status == 201, asked
    harness.run(0.2)
    assert all("x" in member.broker.nodes.exchanges for member in harness.members.values())
    filled(harness, "x", range(3), node=1)
    filled(harness, "x", range(10, 13), node=2)
    assert numbers_on(harness, "q") == [0, 1, 2, 10, 11, 12]
    assert harness[2].broker.nodes.queues["own"].messages == 3
    made = answer_of(harness, manager, "CREATE", "exchange", "mine", {"exchange-type": "fanout", "durable": False})
    assert made.status == 201
    assert "mine" not in harness[1].broker.nodes.exchanges
    harness[3].kill()
    harness[3].start()
    assert harness.until(lambda: harness[3].serves)
    assert [bound.queue.name for bound in harness[3].broker.nodes.exchanges["x"].bindings()] == ["q"]


# ---- reports about all members --------------------------------------------------------------------------------------


def report_of(
    harness: ClusterHarness, manager: Manager, type: str, **properties: Any
) -> tuple[list[dict[str, Any]], Any]:
    answer = answer_of(harness, manager, "QUERY", "org.amqp.management", entityType=type, scope="cluster", **properties)
    assert answer.status == 200, answer
    body = answer.body
    return [dict(zip(body["attributeNames"], row, strict=True)) for row in body["results"]], body


@pytest.mark.parametrize("node", [1, 2, 3])
def test_queues_of_all_members(node: int) -> None:  # D54, D67
    harness = started("q")
    filled(harness, "q", range(10))
    managers = {at: Manager(member) for at, member in harness.members.items()}
    answer_of(harness, managers[2], "CREATE", "queue", "own", {"arguments": {"replicated": False}})
    filled(harness, "own", range(3))
    rows, body = report_of(harness, managers[node], "queue")
    found = sorted((row["member"], row["name"], row["messages"]) for row in rows)
    names = {at: str(member.core.state.me) for at, member in harness.members.items()}
    own = (names[2], "own", 3)
    assert found == sorted([own, *[(name, "q", 10) for name in names.values()]])
    assert next(row["arguments"] for row in rows if row["name"] == "own") == {"replicated": False}
    assert (body["silent"], body["missing"], body["next"], body["count"]) == ([], 0, None, 4)
    rows, body = report_of(harness, managers[node], "queue", count=1)
    assert body["next"] == 1
    assert len(rows) == 3


def test_who_does_not_answer_is_named() -> None:  # D54
    harness = started("q")
    managers = {at: Manager(member) for at, member in harness.members.items()}
    harness.run(0.1)
    asleep = str(harness[3].core.state.me)
    harness[3].asleep = True
    rows, body = report_of(harness, managers[1], "connection", **{"timeout-ms": 100})
    assert len(rows) == 2
    assert body["silent"] == [asleep]
    harness[3].asleep = False
    harness[3].kill()
    harness.run(1)
    rows, body = report_of(harness, managers[1], "connection")
    assert (len(rows), body["silent"], body["missing"]) == (2, [], 1)


def test_who_may_not_look_is_not_told() -> None:  # D54
    harness = started("q", "secret")
    for member in harness.members.values():
        Manager(member, lambda user, operation, name, *, pattern=False: "no" if name == "secret" else "")
    rows, _ = report_of(harness, Manager(harness[1]), "queue")
    assert {row["name"] for row in rows} == {"q"}


@pytest.mark.parametrize(
    ("properties", "status"),
    [({"scope": "world"}, 400), ({"scope": "cluster"}, 400), ({"scope": "cluster", "timeout-ms": -1}, 400)],
)
def test_reports_nobody_can_make(properties: dict[str, Any], status: int) -> None:
    harness = started()
    answer = answer_of(harness, Manager(harness[1]), "QUERY", "org.amqp.management", **properties)
    assert answer.status == status


def test_a_member_that_loses_the_cluster_meanwhile_ends_its_reports() -> None:  # D54
    harness = started("q")
    manager = Manager(harness[1])
    harness.network.partition([1], [2, 3])
    manager.ask("QUERY", "org.amqp.management", entityType="queue", scope="cluster")
    assert harness.until(lambda: bool(manager.answers))
    assert len(manager.answers[0].body["silent"]) >= 2


def test_response_to_a_replicated_queue_is_on_all_members() -> None:
    harness = started("q")
    filled(harness, "q", range(3))
    manager = Manager(harness[2])
    request = Message(
        properties={"operation": "READ", "type": "queue", "name": "q"}, reply_to="q", correlation_id="asked"
    )
    manager.member.do(manager._post, request.encode())
    harness.run(0.3)
    assert [member.broker.nodes.queues["q"].messages for member in harness.members.values()] == [4, 4, 4]
    filled(harness, "q", range(3, 5))
    harness.run(0.3)
    assert len({member.core.owners.replicas["q"].last for member in harness.members.values()}) == 1
