"""A queue is deleted and made anew while a member does not hear it: what that one says is of the old one (D49)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cairnmq.broker.nodes.registry import Done

from .world import ACCEPT, FAIL, REJECT, RELEASE, Receiver, Sender, World


def come(world: World, receiver: Receiver) -> None:
    """Another client, in place of the one that is there."""
    receiver.leave()
    Receiver(world[1])
    actions = world[1].actions
    while actions:
        action, args = actions.popleft()
        action(*args)


SAYS: dict[str, Callable[[World, Receiver], object]] = {
    "accept": lambda world, receiver: receiver.settle_as([0, 1], ACCEPT),
    "release": lambda world, receiver: receiver.settle_as([0, 1], RELEASE),
    "fail": lambda world, receiver: receiver.settle_as([0, 1], FAIL, failed=True),
    "reject": lambda world, receiver: receiver.settle_as([0, 1], REJECT),
    "leave": lambda world, receiver: receiver.leave(),
    "come": come,
    "nothing": lambda world, receiver: None,
}


def ask(world: World, node: int, ask: Callable[..., Any], *args: Any) -> None:
    """Until it is answered."""
    answers: list[object] = []
    done: Done[Any] = answers.append
    world[node].do(ask, *args, done)
    assert world.until(lambda: bool(answers))
    assert not isinstance(answers[0], Exception)


@pytest.mark.parametrize("owned", [False, True], ids=["of nobody", "of another member"])
@pytest.mark.parametrize("said", SAYS)
def test_what_is_said_of_the_old_one_does_nothing_to_the_new_one(said: str, owned: bool) -> None:
    world = World().start()
    nodes = world[2].broker.nodes
    ask(world, 2, nodes.create_queue, "dead", {})
    ask(world, 2, nodes.create_queue, "q", {"dead-letter-address": "dead"})
    old, receiver = Sender(world[2]), Receiver(world[1])
    world.run(0.2)
    old.send([0, 1])
    receiver.request(10)
    assert world.until(lambda: len(receiver.unsettled) == 2)
    world[1].asleep = True
    ask(world, 2, nodes.delete_queue, nodes.queues["q"])
    ask(world, 2, nodes.create_queue, "q", {})
    new, other = Sender(world[3]), Receiver(world[3]) if owned else None
    world.run(0.1)
    new.send(range(10, 15))
    assert world.until(lambda: len(new.confirmed) == 5)
    SAYS[said](world, receiver)
    world[1].core.group.flush()
    world[1].asleep = False
    world.run(0.5)
    assert not any(member.failures for member in world.members.values())
    told = [member.core.owners.replicas["q"] for member in world.members.values()]
    assert not any(one.acquired for one in told)
    for one in told:  # the client of the old queue was sent away with that
        assert one.interested == ({world[3].core.state.me} if owned else set())
        assert one.owner == (world[3].core.state.me if owned else None)
    assert all(member.contents("dead") == [] for member in world.members.values())
    for node in (1, 2, 3):
        assert [number for _, number in world[node].contents("q")] == [*range(10, 15)]
    taker = Receiver(world[2]) if other is None else other
    world.run(0.1)
    taker.request(10)
    assert world.until(lambda: [number for number, _ in taker.order] == [*range(10, 15)])
    taker.settle_as(range(10, 15), ACCEPT)
    assert world.until(lambda: len(taker.accepted) == 5)


def test_a_name_is_told_from_what_had_it_before_however_little_that_held() -> None:
    """A newcomer knows of them, too."""
    world = World().start()
    firsts: list[int] = []
    for turn in range(4):
        nodes = world[2].broker.nodes
        ask(world, 2, nodes.create_queue, "q", {})
        if turn == 2:
            world[3].kill()
            world.run(0.5)
            world[3].start()
            assert world.until(lambda: world[3].serves)
        told = {member.core.owners.replicas["q"].first for member in world.members.values()}
        assert len(told) == 1
        firsts += told
        ask(world, 2, nodes.delete_queue, nodes.queues["q"])
    assert firsts == sorted({*firsts})
    assert len({member.core.owners.past for member in world.members.values()}) == 1
