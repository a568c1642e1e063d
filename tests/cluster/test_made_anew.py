"""Tests of a queue that is recreated while one member receives no events: its events apply to the old queue (D49)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cairnmq.broker.nodes.registry import Done
from tests.harness.cluster.cluster_harness import ACCEPT, FAIL, REJECT, RELEASE, ClusterHarness, Receiver, Sender


def come(harness: ClusterHarness, receiver: Receiver) -> None:
    """Replace the client of member 1 with another one."""
    receiver.leave()
    Receiver(harness[1])
    actions = harness[1].actions
    while actions:
        action, args = actions.popleft()
        action(*args)


SAYS: dict[str, Callable[[ClusterHarness, Receiver], object]] = {
    "accept": lambda harness, receiver: receiver.settle_as([0, 1], ACCEPT),
    "release": lambda harness, receiver: receiver.settle_as([0, 1], RELEASE),
    "fail": lambda harness, receiver: receiver.settle_as([0, 1], FAIL, failed=True),
    "reject": lambda harness, receiver: receiver.settle_as([0, 1], REJECT),
    "leave": lambda harness, receiver: receiver.leave(),
    "come": come,
    "nothing": lambda harness, receiver: None,
}


def ask(harness: ClusterHarness, node: int, ask: Callable[..., Any], *args: Any) -> None:
    """Call *ask* on *node*, and wait until it succeeds."""
    answers: list[object] = []
    done: Done[Any] = answers.append
    harness[node].do(ask, *args, done)
    assert harness.until(lambda: bool(answers))
    assert not isinstance(answers[0], Exception)


@pytest.mark.parametrize("owned", [False, True], ids=["of nobody", "of another member"])
@pytest.mark.parametrize("said", SAYS)
def test_what_is_said_of_the_old_one_does_nothing_to_the_new_one(said: str, owned: bool) -> None:
    harness = ClusterHarness().start()
    nodes = harness[2].broker.nodes
    ask(harness, 2, nodes.create_queue, "dead", {})
    ask(harness, 2, nodes.create_queue, "q", {"dead-letter-address": "dead"})
    old, receiver = Sender(harness[2]), Receiver(harness[1])
    harness.run(0.2)
    old.send([0, 1])
    receiver.request(10)
    assert harness.until(lambda: len(receiver.unsettled) == 2)
    harness[1].asleep = True
    ask(harness, 2, nodes.delete_queue, nodes.queues["q"])
    ask(harness, 2, nodes.create_queue, "q", {})
    new, other = Sender(harness[3]), Receiver(harness[3]) if owned else None
    harness.run(0.1)
    new.send(range(10, 15))
    assert harness.until(lambda: len(new.confirmed) == 5)
    SAYS[said](harness, receiver)
    harness[1].core.group.flush()
    harness[1].asleep = False
    harness.run(0.5)
    assert not any(member.failures for member in harness.members.values())
    told = [member.core.owners.replicas["q"] for member in harness.members.values()]
    assert not any(one.acquired for one in told)
    for one in told:  # the deletion closed the link of the old queue's client
        assert one.interested == ({harness[3].core.state.me} if owned else set())
        assert one.owner == (harness[3].core.state.me if owned else None)
    assert all(member.contents("dead") == [] for member in harness.members.values())
    for node in (1, 2, 3):
        assert [number for _, number in harness[node].contents("q")] == [*range(10, 15)]
    taker = Receiver(harness[2]) if other is None else other
    harness.run(0.1)
    taker.request(10)
    assert harness.until(lambda: [number for number, _ in taker.order] == [*range(10, 15)])
    taker.settle_as(range(10, 15), ACCEPT)
    assert harness.until(lambda: len(taker.accepted) == 5)


def test_a_name_is_told_from_what_had_it_before_however_little_that_held() -> None:
    """Each queue of a name has a first position of its own, which a joining member also knows."""
    harness = ClusterHarness().start()
    firsts: list[int] = []
    for turn in range(4):
        nodes = harness[2].broker.nodes
        ask(harness, 2, nodes.create_queue, "q", {})
        if turn == 2:
            harness[3].kill()
            harness.run(0.5)
            harness[3].start()
            assert harness.until(lambda: harness[3].serves)
        told = {member.core.owners.replicas["q"].first for member in harness.members.values()}
        assert len(told) == 1
        firsts += told
        ask(harness, 2, nodes.delete_queue, nodes.queues["q"])
    assert firsts == sorted({*firsts})
    assert len({member.core.owners.past for member in harness.members.values()}) == 1
