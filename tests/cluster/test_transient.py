"""Messages that are not durable, on replicated queues: the members are what they last on."""

from __future__ import annotations

from .world import ACCEPT, RELEASE, Receiver, Sender, World


def test_what_is_not_durable_outlives_members_and_newcomers_get_it() -> None:  # D1, D3, D4, D6, D31, D59
    world = World().start()
    sender, receiver = Sender(world[1]), Receiver(world[2])
    world.run(0.2)
    sender.send(range(50), durable=False)
    assert world.until(lambda: len(sender.confirmed) == 50)
    receiver.request(20)
    assert world.until(lambda: len(receiver.unsettled) == 20)
    receiver.settle_as(range(5), ACCEPT)
    receiver.settle_as(range(5, 10), RELEASE)
    assert world.until(lambda: len(receiver.accepted) == 5)
    world[1].kill()
    world.run(0.3)
    world[1].start()
    assert world.until(lambda: world[1].serves), world.why()
    world[2].kill()
    other = Receiver(world[3])
    assert world.until(lambda: other.driver is not None)
    other.request(100)
    assert world.until(lambda: len(other.order) == 45)
    assert [number for number, _ in other.order] == [*range(5, 50)]
    assert all(marked for number, marked in other.order if number < 20), "a client had had these"
    world.run(0.2)
    assert [number for _, number in world[1].contents("q")] == [*range(5, 50)], "who came anew got all of it"
    other.settle_as(range(5, 50), ACCEPT)
    assert world.until(lambda: len(other.accepted) == 45)
    world.run(0.2)
    assert world[1].contents("q") == world[3].contents("q") == []


def test_what_is_not_durable_goes_with_the_last_member() -> None:  # D31
    world = World().start()
    sender = Sender(world[1])
    world.run(0.2)
    sender.send(range(5), durable=False)
    sender.send([5])
    assert world.until(lambda: len(sender.confirmed) == 6)
    for member in world.members.values():
        member.kill()
    world.run(0.5)
    for member in world.members.values():
        member.start()
    assert world.until(lambda: all(member.serves for member in world.members.values()), 60), world.why()
    assert [number for _, number in world[1].contents("q")] == [5]
    assert world.same_everywhere()
