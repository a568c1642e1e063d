"""Tests of state transfer to joining members, and of the start of a cluster in which all members were down."""

from __future__ import annotations

from cairnmq.broker.messages.entry import Entry
from cairnmq.broker.nodes.replication_port import Kept
from cairnmq.cluster.kernel import events
from cairnmq.cluster.kernel.local_messages import LocalEvent
from cairnmq.cluster.member import ClusterMember
from tests.harness.broker.world import message
from tests.harness.cluster.cluster_harness import ACCEPT, FAIL, RELEASE, ClusterHarness, Receiver, Sender


def test_a_member_that_comes_back_gets_all_of_it() -> None:  # D18, D20, D59
    harness = ClusterHarness().start()
    sender = Sender(harness[1])
    harness.run(0.2)
    sender.send(range(50))
    assert harness.until(lambda: len(sender.confirmed) == 50)
    harness[3].kill()
    harness.run(0.5)
    sender.send(range(50, 60))
    receiver = Receiver(harness[2])
    harness.run(0.2)
    receiver.request(20)
    harness.run(0.2)
    receiver.settle_as(range(10), ACCEPT)
    harness[3].start()
    sender.send(range(60, 80))
    receiver.settle_as(range(10, 12), FAIL, failed=True)
    receiver.settle_as(range(12, 14), RELEASE)
    assert harness.until(lambda: harness[3].serves), harness.reason()
    harness.run(0.5)
    assert [number for _, number in harness[1].contents("q")] == [*range(10, 80)]
    assert harness.same_everywhere()


def test_all_go_down_and_the_store_that_is_ahead_wins() -> None:  # D27, D32, D60, rule 17
    harness = ClusterHarness().start()
    sender = Sender(harness[2])
    harness.run(0.2)
    sender.send(range(5))
    assert harness.until(lambda: len(sender.confirmed) == 5)
    harness.run(0.2)
    harness[1].kill()
    harness.run(0.5)
    sender.send(range(5, 9))
    assert harness.until(lambda: len(sender.confirmed) == 9)
    harness[2].kill()
    harness[3].kill()
    harness.run(0.5)
    harness[1].start()
    harness[3].start()
    assert harness.until(lambda: harness[1].serves and harness[3].serves, 60), harness.reason()
    assert [number for _, number in harness[1].contents("q")] == [*range(9)]
    assert harness.same_everywhere()


def test_an_updater_that_dies_is_followed_by_the_next_one() -> None:  # D19, rule 12
    harness = ClusterHarness(5).start()
    sender = Sender(harness[1])
    harness.run(0.2)
    sender.send(range(400), size_bytes=1000)
    assert harness.until(lambda: len(sender.confirmed) == 400)
    harness[3].kill()
    harness.run(0.5)
    go_on = harness[4].core.sender.resume
    batches = iter(range(3))
    harness[4].core.sender.resume = lambda: next(batches, None) is not None and go_on()  # type: ignore
    harness[3].start()
    assert harness.until(lambda: harness[3].core.state.phase == "transferring")
    harness.run(0.1)
    assert harness[3].core.receiver.unfinished
    harness[4].kill()
    sender.send(range(400, 420))
    assert harness.until(lambda: harness[3].serves, 60), harness.reason()
    assert harness.until(lambda: len(sender.confirmed) == 420)
    harness.run(0.3)
    assert harness.same_everywhere()
    assert len(harness[3].contents("q")) == 420


def test_what_is_taken_while_it_is_brought_stays_away() -> None:  # D20, rules 10 and 11
    is_taken_meanwhile(has_them=False)


def test_what_is_taken_while_it_is_compared_stays_away() -> None:  # B5
    is_taken_meanwhile(has_them=True)


def is_taken_meanwhile(*, has_them: bool) -> None:
    """Accept half of the messages during a state transfer. *has_them*: the joining member has all in its store."""
    harness = ClusterHarness().start()
    sender, receiver = Sender(harness[1]), Receiver(harness[1])
    harness.run(0.2)
    if not has_them:
        harness[3].kill()
        harness.run(0.5)
    sender.send(range(100), size_bytes=2000)
    assert harness.until(lambda: len(sender.confirmed) == 100)
    receiver.request(100)
    assert harness.until(lambda: len(receiver.unsettled) == 100)
    if has_them:
        harness[3].kill()
        harness.run(0.5)
    go_on = harness[1].core.sender.resume
    harness[1].core.sender.resume = lambda: None  # type: ignore[method-assign]
    harness[3].start()
    assert harness.until(lambda: harness[3].core.state.phase == "transferring")
    receiver.settle_as(range(0, 100, 2), ACCEPT)
    assert harness.until(lambda: len(receiver.accepted) == 50)
    stored = harness[1].store.holds
    harness[1].store.holds = lambda message_id: True
    harness[1].core.sender._content = lambda todo: todo.entry.complete() if todo.entry else None  # type: ignore
    for queue in harness[1].core.sender._queues:
        queue.todo = [todo._replace(entry=_still_there(todo.entry)) for todo in queue.todo]
    harness[1].core.sender.resume = go_on  # type: ignore[method-assign]
    assert harness.until(lambda: harness[3].serves)
    harness[1].store.holds = stored
    receiver.leave()
    harness.run(0.5)
    assert harness.same_everywhere()
    assert [number for _, number in harness[3].contents("q")] == [*range(1, 100, 2)]


def _still_there(entry: Entry | None) -> Entry | None:
    """Return a copy of *entry* as it was read before its dequeue."""
    if entry is None:
        return None
    copy = Entry(entry.message_id, entry.position, entry.content, entry.held_bytes)
    copy.previously_delivered, copy.failures = entry.previously_delivered, entry.failures
    return copy


def test_a_member_that_was_being_updated_knows_that_somebody_is_ahead() -> None:  # rule 17
    harness = ClusterHarness().start()
    sender = Sender(harness[1])
    harness.run(0.2)
    sender.send(range(5))
    assert harness.until(lambda: len(sender.confirmed) == 5)
    harness[3].kill()
    harness.run(0.5)
    sender.send(range(5, 10))
    assert harness.until(lambda: len(sender.confirmed) == 10)
    harness[1].kill()
    harness.run(0.5)
    harness[1].start()
    for node in (1, 2):
        harness[node].core.sender.resume = lambda: None  # type: ignore[method-assign]
    assert harness.until(lambda: "transferring" in (harness[1].core.state.phase, harness[2].core.state.phase))
    harness.run(0.5)
    updated, ahead = (1, 2) if harness[1].core.state.phase == "transferring" else (2, 1)
    harness[ahead].kill()
    harness.run(0.5)
    harness[3].start()
    harness.run(5)
    assert not harness[updated].serves, "the only store with all messages is away"
    assert not harness[3].serves, "the only store with all messages is away"
    harness[ahead].start()
    assert harness.until(lambda: all(member.serves for member in harness.members.values()), 60), harness.reason()
    assert [number for _, number in harness[3].contents("q")] == [*range(10)]


def third_asks(harness: ClusterHarness) -> ClusterMember:
    """Wait until member 3 has requested the state; put member 1, the donor, to sleep. Return the core of member 3."""
    core = harness[3].core
    assert harness.until(lambda: core.state.phase_name == "requesting")
    harness[1].asleep = True
    assert harness.until(lambda: core.state.phase == "buffering")
    return core


def is_everywhere(harness: ClusterHarness, numbers: list[int]) -> bool:
    harness[1].asleep = False
    return harness.until(
        lambda: all(
            member.serves and [number for _, number in member.contents("q")] == numbers
            for member in harness.members.values()
        )
    )


def test_a_long_event_for_who_waits_for_the_wiring() -> None:  # D18, D52, rules 7 and 9
    harness = ClusterHarness().start()
    sender = Sender(harness[2])
    harness.run(0.2)
    harness[3].kill()
    harness.run(0.3)
    harness[3].start()
    core = third_asks(harness)
    sender.send([1], size_bytes=200_000)
    harness.run(0.1)
    assert is_everywhere(harness, [1])
    assert not core.apply_loop.bad_events


def test_a_long_event_whose_beginning_was_missed() -> None:  # D18, D52, rules 7 and 9
    harness = ClusterHarness().start()
    sender = Sender(harness[2])
    harness.run(0.2)
    harness[3].kill()
    harness.run(0.3)
    said, kept = harness[2].core, Kept([(message(1, 200_000, True), True)], False)
    first, *others = events.parts_of(events.enqueue(["q"], kept.messages, False))
    assert said.group.multicast(first)
    said.group.flush()
    harness[3].start()
    core = third_asks(harness)
    said.locals.add(LocalEvent(lambda: None, kept=kept, names=["q"]))
    assert all(said.group.multicast(part) for part in others)
    said.group.flush()
    harness.run(0.1)
    assert is_everywhere(harness, [1])
    assert not core.apply_loop.bad_events
    sender.send([2])
    assert is_everywhere(harness, [1, 2])


def test_what_is_said_by_who_waits_for_the_wiring_is_heard_once() -> None:
    harness = ClusterHarness().start()
    Sender(harness[2])
    harness.run(0.2)
    harness[3].kill()
    harness.run(0.3)
    harness[3].start()
    core = third_asks(harness)
    done: list[str] = []
    harness[3].do(
        core.broadcaster.send, events.control("nothing"), LocalEvent(lambda: done.append("then"), always=True)
    )
    harness.run(0.1)
    assert is_everywhere(harness, [])
    assert done == ["then"]
    assert not len(core.locals)
