"""Who comes, or comes back, is brought all that the others have; and after all went down, nothing is lost."""

from __future__ import annotations

from cairnmq.broker.messages.entry import Entry
from cairnmq.broker.nodes.replication_port import Kept
from cairnmq.cluster.kernel import events
from cairnmq.cluster.kernel.local_messages import LocalEvent
from cairnmq.cluster.member import ClusterMember

from ..broker.world import message
from .world import ACCEPT, FAIL, RELEASE, Receiver, Sender, World


def test_a_member_that_comes_back_gets_all_of_it() -> None:  # D18, D20, D59
    world = World().start()
    sender = Sender(world[1])
    world.run(0.2)
    sender.send(range(50))
    assert world.until(lambda: len(sender.confirmed) == 50)
    world[3].kill()
    world.run(0.5)
    sender.send(range(50, 60))
    receiver = Receiver(world[2])
    world.run(0.2)
    receiver.request(20)
    world.run(0.2)
    receiver.settle_as(range(10), ACCEPT)
    world[3].start()
    sender.send(range(60, 80))
    receiver.settle_as(range(10, 12), FAIL, failed=True)
    receiver.settle_as(range(12, 14), RELEASE)
    assert world.until(lambda: world[3].serves), world.why()
    world.run(0.5)
    assert [number for _, number in world[1].contents("q")] == [*range(10, 80)]
    assert world.same_everywhere()


def test_all_go_down_and_the_store_that_is_ahead_wins() -> None:  # D27, D32, D60, rule 17
    world = World().start()
    sender = Sender(world[2])
    world.run(0.2)
    sender.send(range(5))
    assert world.until(lambda: len(sender.confirmed) == 5)
    world.run(0.2)
    world[1].kill()
    world.run(0.5)
    sender.send(range(5, 9))
    assert world.until(lambda: len(sender.confirmed) == 9)
    world[2].kill()
    world[3].kill()
    world.run(0.5)
    world[1].start()
    world[3].start()
    assert world.until(lambda: world[1].serves and world[3].serves, 60), world.why()
    assert [number for _, number in world[1].contents("q")] == [*range(9)]
    assert world.same_everywhere()


def test_an_updater_that_dies_is_followed_by_the_next_one() -> None:  # D19, rule 12
    world = World(5).start()
    sender = Sender(world[1])
    world.run(0.2)
    sender.send(range(400), size_bytes=1000)
    assert world.until(lambda: len(sender.confirmed) == 400)
    world[3].kill()
    world.run(0.5)
    go_on = world[4].core.sender.resume
    batches = iter(range(3))
    world[4].core.sender.resume = lambda: next(batches, None) is not None and go_on()  # type: ignore
    world[3].start()
    assert world.until(lambda: world[3].core.state.phase == "updating")
    world.run(0.1)
    assert world[3].core.receiver.unfinished
    world[4].kill()
    sender.send(range(400, 420))
    assert world.until(lambda: world[3].serves, 60), world.why()
    assert world.until(lambda: len(sender.confirmed) == 420)
    world.run(0.3)
    assert world.same_everywhere()
    assert len(world[3].contents("q")) == 420


def test_what_is_taken_while_it_is_brought_stays_away() -> None:  # D20, rules 10 and 11
    is_taken_meanwhile(has_them=False)


def test_what_is_taken_while_it_is_compared_stays_away() -> None:  # B5
    is_taken_meanwhile(has_them=True)


def is_taken_meanwhile(*, has_them: bool) -> None:
    """*has_them*: the newcomer has the messages in its store."""
    world = World().start()
    sender, receiver = Sender(world[1]), Receiver(world[1])
    world.run(0.2)
    if not has_them:
        world[3].kill()
        world.run(0.5)
    sender.send(range(100), size_bytes=2000)
    assert world.until(lambda: len(sender.confirmed) == 100)
    receiver.request(100)
    assert world.until(lambda: len(receiver.unsettled) == 100)
    if has_them:
        world[3].kill()
        world.run(0.5)
    go_on = world[1].core.sender.resume
    world[1].core.sender.resume = lambda: None  # type: ignore[method-assign]
    world[3].start()
    assert world.until(lambda: world[3].core.state.phase == "updating")
    receiver.settle_as(range(0, 100, 2), ACCEPT)
    assert world.until(lambda: len(receiver.accepted) == 50)
    stored = world[1].store.holds
    world[1].store.holds = lambda message_id: True
    world[1].core.sender._content = lambda todo: todo.entry.whole() if todo.entry else None  # type: ignore
    for queue in world[1].core.sender._queues:
        queue.todo = [todo._replace(entry=_still_there(todo.entry)) for todo in queue.todo]
    world[1].core.sender.resume = go_on  # type: ignore[method-assign]
    assert world.until(lambda: world[3].serves)
    world[1].store.holds = stored
    receiver.leave()
    world.run(0.5)
    assert world.same_everywhere()
    assert [number for _, number in world[3].contents("q")] == [*range(1, 100, 2)]


def _still_there(entry: Entry | None) -> Entry | None:
    """As it was read just before it went."""
    if entry is None:
        return None
    copy = Entry(entry.message_id, entry.position, entry.content, entry.held_bytes)
    copy.previously_delivered, copy.failures = entry.previously_delivered, entry.failures
    return copy


def test_a_member_that_was_being_updated_knows_that_somebody_is_ahead() -> None:  # rule 17
    world = World().start()
    sender = Sender(world[1])
    world.run(0.2)
    sender.send(range(5))
    assert world.until(lambda: len(sender.confirmed) == 5)
    world[3].kill()
    world.run(0.5)
    sender.send(range(5, 10))
    assert world.until(lambda: len(sender.confirmed) == 10)
    world[1].kill()
    world.run(0.5)
    world[1].start()
    for node in (1, 2):
        world[node].core.sender.resume = lambda: None  # type: ignore[method-assign]
    assert world.until(lambda: "updating" in (world[1].core.state.phase, world[2].core.state.phase))
    world.run(0.5)
    updated, ahead = (1, 2) if world[1].core.state.phase == "updating" else (2, 1)
    world[ahead].kill()
    world.run(0.5)
    world[3].start()
    world.run(5)
    assert not world[updated].serves, "the only store with all messages is away"
    assert not world[3].serves, "the only store with all messages is away"
    world[ahead].start()
    assert world.until(lambda: all(member.serves for member in world.members.values()), 60), world.why()
    assert [number for _, number in world[3].contents("q")] == [*range(10)]


def third_asks(world: World) -> ClusterMember:
    """The third member comes, has asked for what there is, and is not answered: the first one, who would, sleeps."""
    core = world[3].core
    assert world.until(lambda: core.state.phase_name == "asking")
    world[1].asleep = True
    assert world.until(lambda: core.state.phase == "keeping")
    return core


def is_everywhere(world: World, numbers: list[int]) -> bool:
    world[1].asleep = False
    return world.until(
        lambda: all(
            member.serves and [number for _, number in member.contents("q")] == numbers
            for member in world.members.values()
        )
    )


def test_a_long_event_for_who_waits_for_the_wiring() -> None:  # D18, D52, rules 7 and 9
    world = World().start()
    sender = Sender(world[2])
    world.run(0.2)
    world[3].kill()
    world.run(0.3)
    world[3].start()
    core = third_asks(world)
    sender.send([1], size_bytes=200_000)
    world.run(0.1)
    assert is_everywhere(world, [1])
    assert not core.apply_loop.bad_events


def test_a_long_event_whose_beginning_was_missed() -> None:  # D18, D52, rules 7 and 9
    world = World().start()
    sender = Sender(world[2])
    world.run(0.2)
    world[3].kill()
    world.run(0.3)
    said, kept = world[2].core, Kept([(message(1, 200_000, True), True)], False)
    first, *others = events.parts_of(events.enqueue(["q"], kept.messages, False))
    assert said.group.multicast(first)
    said.group.flush()
    world[3].start()
    core = third_asks(world)
    said.locals.add(LocalEvent(lambda: None, kept=kept, names=["q"]))
    assert all(said.group.multicast(part) for part in others)
    said.group.flush()
    world.run(0.1)
    assert is_everywhere(world, [1])
    assert not core.apply_loop.bad_events
    sender.send([2])
    assert is_everywhere(world, [1, 2])


def test_what_is_said_by_who_waits_for_the_wiring_is_heard_once() -> None:
    world = World().start()
    Sender(world[2])
    world.run(0.2)
    world[3].kill()
    world.run(0.3)
    world[3].start()
    core = third_asks(world)
    done: list[str] = []
    world[3].do(core.broadcaster.send, events.control("nothing"), LocalEvent(lambda: done.append("then"), always=True))
    world.run(0.1)
    assert is_everywhere(world, [])
    assert done == ["then"]
    assert not len(core.locals)
