"""Tests of rejoining: a member keeps its messages, receives the missed ones, and equals the others (B5)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from cairnmq.cluster.kernel import events
from cairnmq.cluster.member import ClusterMember
from tests.harness.cluster.cluster_harness import (
    ACCEPT,
    FAIL,
    RELEASE,
    ClusterHarness,
    Receiver,
    Sender,
    SimulatedMember,
    send,
    started,
)
from tests.harness.cluster.divergent_state import KeepingMember, aside_of


def world_with(count: int = 100, size_bytes: int = 10, **arguments: Any) -> ClusterHarness:
    """Return a cluster with *count* confirmed messages on queue `q`, which has *arguments*."""
    harness = ClusterHarness(member=KeepingMember).start()
    made: list[object] = []
    harness[1].do(harness[1].broker.nodes.create_queue, "q", arguments, made.append)
    assert harness.until(lambda: bool(made))
    sender = Sender(harness[1])
    assert harness.until(lambda: sender.driver is not None)
    sender.send(range(count), size_bytes=size_bytes)
    assert harness.until(lambda: len(sender.confirmed) == count), harness.reason()
    sender.leave()
    harness.run(0.3)
    return harness


def brought(harness: ClusterHarness) -> int:
    """Return the number of messages that running members sent in full in state transfers."""
    return sum(member.core.sender.brought for member in harness.members.values() if member.running)


def stored(member: SimulatedMember) -> list[int]:
    """Return the IDs of the messages on the queue in the store of *member*."""
    return [*member.store.messages().get(member.core.owners.replicas["q"].queue.queue_id, ())]


def receive(harness: ClusterHarness, node: int, count: int) -> Receiver:
    receiver = Receiver(harness[node])
    assert harness.until(lambda: receiver.driver is not None), harness.reason()
    receiver.request(count)
    assert harness.until(lambda: len(receiver.unsettled) == count)
    return receiver


def accept(harness: ClusterHarness, node: int, count: int) -> None:
    receiver = receive(harness, node, count)
    receiver.settle_as([*receiver.unsettled], ACCEPT)
    assert harness.until(lambda: len(receiver.accepted) == count)
    receiver.leave()


def all_serve(harness: ClusterHarness) -> None:
    assert harness.until(lambda: all(member.serves for member in harness.members.values()), 60), harness.reason()
    harness.run(0.3)


def check_alike(harness: ClusterHarness) -> None:
    """Check that members have the same positions, contents, counts and marks, in memory and in their stores."""
    all_serve(harness)
    first = harness[1].core.owners.replicas["q"]
    for member in harness.members.values():
        replica = member.core.owners.replicas["q"]
        assert member.whole_contents("q") == harness[1].whole_contents("q")
        assert member.marks("q") == harness[1].marks("q")
        assert (replica.last, replica.queue.messages) == (first.last, first.queue.messages)
        here = {entry.message_id for entry in replica.entries() if not entry.is_dequeued}
        assert {*stored(member)} == (here | {one for _, one in replica.stored()}) - {0}


def numbers(harness: ClusterHarness, node: int) -> list[int]:
    return [number for _, number in harness[node].contents("q")]


SHAPES: list[dict[str, Any]] = [{}, {"priorities": True}, {"duplicate-window": 50}, {"max-bytes": 1 << 20}]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("size_bytes", [10, 100_000])
def test_member_that_missed_nothing_receives_nothing(
    caplog: pytest.LogCaptureFixture, shape: dict[str, Any], size_bytes: int
) -> None:
    harness = world_with(100 if size_bytes == 10 else 6, size_bytes, **shape)
    before = stored(harness[3])
    harness[3].stop()
    harness.run(0.5)
    caplog.clear()
    harness[3].start()
    check_alike(harness)
    assert stored(harness[3]) == before
    assert brought(harness) == 0
    assert aside_of(harness, 3).kept == []
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    harness[1].kill()
    harness[2].kill()
    harness[1].start()
    assert harness.until(lambda: harness[1].serves, 60), harness.reason()
    accept(harness, 3, len(before))


def test_member_that_missed_little_receives_that(caplog: pytest.LogCaptureFixture) -> None:
    harness = world_with()
    harness[3].stop()
    harness.run(0.5)
    accept(harness, 2, 10)
    send(harness, 1, range(100, 107))
    receiver = receive(harness, 1, 5)
    receiver.settle_as([10, 11], FAIL, failed=True)
    receiver.settle_as([12], RELEASE)
    harness.run(0.2)
    receiver.leave()
    caplog.clear()
    harness[3].start()
    check_alike(harness)
    assert numbers(harness, 3) == [*range(10, 107)]
    assert brought(harness) == 7
    assert aside_of(harness, 3).kept == [], "the others know all that it had ever done"
    assert "backed up" not in caplog.text


@pytest.mark.parametrize("node", [1, 2, 3])
def test_rolling_restart_under_traffic_sets_nothing_aside(node: int) -> None:
    """Members restart in turn; a donor that was itself restored also has the operations from before it joined."""
    harness = world_with(300)
    sender = Sender(harness[node])
    for at, each in enumerate((1, 2, 3)):
        other = each % 3 + 1
        harness[each].stop()
        harness.run(0.3)
        accept(harness, other, 20)
        send(harness, other, range(1000 + 10 * at, 1010 + 10 * at))
        harness[each].start()
        check_alike(harness)
    assert [len(aside_of(harness, each).kept) for each in (1, 2, 3)] == [0, 0, 0]
    assert len(numbers(harness, 1)) == 300 - 60 + 30
    sender.leave()


def test_store_without_order_is_compared_by_content() -> None:
    """A state transfer stores messages in reverse order; equal messages are interchangeable."""
    harness = ClusterHarness(member=KeepingMember).start()
    harness[3].kill()
    harness.run(0.5)
    for _ in range(3):
        send(harness, 1, range(20))  # each message three times
    harness[3].start()
    all_serve(harness)
    assert brought(harness) == 60
    harness[3].stop()
    harness.run(0.5)
    accept(harness, 1, 7)
    harness[3].start()
    check_alike(harness)
    assert brought(harness) == 60
    assert numbers(harness, 3) == [*range(7, 20), *range(20), *range(20)]


def test_all_that_were_stopped_at_once_receive_nothing() -> None:
    """A bootstrap selects one store, and the others have the same messages."""
    harness = world_with()
    for member in harness.members.values():
        member.core.leave()
        member.store.kick()
    for member in harness.members.values():
        member.kill()
    for member in harness.members.values():
        member.start()
    check_alike(harness)
    assert brought(harness) == 0
    assert [len(aside_of(harness, each).kept) for each in (1, 2, 3)] == [0, 0, 0]


STEPS: dict[str, Callable[[ClusterMember], bool]] = {
    "it has to ask": lambda core: core.state.phase == "discarding",
    "it asked": lambda core: core.state.phase_name == "requesting",
    "it reads": lambda core: core.state.phase == "transferring",
    "it was asked": lambda core: any(queue.pending for queue in core.receiver.kept_messages._queues.values()),
    "it found some": lambda core: 0 < core.receiver.kept_messages.kept < 3000,
    "it found all": lambda core: core.receiver.kept_messages.kept >= 3000 - 100,
    "it receives": lambda core: core.receiver.received > core.receiver.kept_messages.kept,
    "it drops": lambda core: core.receiver._left is not None,
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("power", [None, 1])
def test_member_that_is_killed_while_it_rejoins(step: str, power: int | None) -> None:
    harness = world_with(3000)
    harness[3].stop()
    harness.run(0.5)
    accept(harness, 2, 100)
    send(harness, 1, range(3000, 3050))
    member = harness[3]
    reached = 0
    for _ in range(2):
        member.start()
        member.is_disk_slow = step in ("it has to ask", "it drops")
        for _ in range(1000):
            if STEPS[step](member.core) or member.serves:
                reached += not member.serves
                break
            is_updating = member.core.state.phase == "transferring"
            member.is_disk_slow = step == "it has to ask" or (step == "it drops" and is_updating)
            harness.tick()
            if step == "it drops" and member.core.state.phase == "discarding":
                member.hurry_disk()
        member.kill(None if power is None else random.Random(power))
        harness.run(0.5)
        send(harness, 2, range(4000, 4005))
    member.start()
    check_alike(harness)
    assert numbers(harness, 3) == [*range(100, 3050), *range(4000, 4005), *range(4000, 4005)]
    assert brought(harness) <= 500, "what it had it kept"
    assert reached


@pytest.mark.parametrize("batches", range(4))
def test_bringer_that_dies_meanwhile_is_followed(batches: int) -> None:
    """After the death of a donor, matched messages stay matched, and transferred ones are not sent again."""
    harness = world_with(4000)
    harness[3].stop()
    harness.run(0.5)
    send(harness, 1, range(4000, 4100))
    updater = harness[1].core.sender
    go_on, taken = updater.resume, iter(range(batches))
    updater.resume = lambda: next(taken, None) is not None and go_on()  # type: ignore
    harness[3].start()
    assert harness.until(lambda: harness[3].core.state.phase == "transferring")
    harness.run(0.2)
    harness[1].kill()
    harness.run(0.3)
    harness[1].start()
    check_alike(harness)
    assert numbers(harness, 3) == [*range(4100)]
    assert harness[2].core.sender.brought <= 100


@pytest.mark.parametrize("when", ["before it has read", "after it was asked"])
@pytest.mark.parametrize("what", ["purge", "delete", "make anew"])
def test_queue_that_changes_while_it_is_compared(what: str, when: str) -> None:
    harness = world_with(1500)
    harness[3].stop()
    harness.run(0.5)
    receiver = receive(harness, 2, 3)
    member = harness[3]
    member.start()
    member.is_reader_slow = True
    assert harness.until(lambda: member.core.state.phase == "transferring")
    if when == "after it was asked":
        assert harness.until(
            lambda: any(queue.pending for queue in member.core.receiver.kept_messages._queues.values())
        )
    done: list[object] = []
    broker = harness[1].broker
    if what == "purge":
        harness[1].do(broker.nodes.queues["q"].order.purge, done.append, "")
        assert harness.until(lambda: done == [1497])
    else:
        receiver.leave()
        harness.run(0.2)
        harness[1].do(broker.nodes.delete_queue, broker.nodes.queues["q"], done.append)
        assert harness.until(lambda: bool(done))
    if what == "make anew":
        harness[1].do(broker.nodes.create_queue, "q", {}, done.append)
        assert harness.until(lambda: len(done) == 2)
        send(harness, 1, range(5))
    member.is_reader_slow = False
    all_serve(harness)
    if what == "delete":
        assert "q" not in member.core.owners.replicas
        return
    check_alike(harness)
    assert numbers(harness, 3) == [*range(3 if what == "purge" else 5)]


def test_queue_with_other_arguments_or_bindings_follows() -> None:
    harness = world_with(20)
    done: list[Any] = []
    nodes = harness[1].broker.nodes
    harness[1].do(nodes.create_exchange, "x", "topic", {}, done.append)
    assert harness.until(lambda: bool(done))
    for key in ("a", "b"):
        for exchange in ("x", "amq.topic"):
            harness[1].do(nodes.bind, nodes.exchanges[exchange], nodes.queues["q"], key, {}, done.append)
    assert harness.until(lambda: len(done) == 5)
    harness[3].stop()
    harness.run(0.5)
    for exchange in ("x", "amq.topic"):
        harness[1].do(nodes.unbind, nodes.exchanges[exchange], nodes.queues["q"], "a", done.append)
    harness[1].do(nodes.bind, nodes.exchanges["x"], nodes.queues["q"], "c", {}, done.append)
    assert harness.until(lambda: len(done) == 8)
    harness[3].start()
    check_alike(harness)
    for _ in range(2):
        bound = {
            node: sorted(str(one) for one in member.core.nodes.snapshot([member.core.nodes.queues["q"]]))
            for node, member in harness.members.items()
        }
        assert bound[3] == bound[1]
        harness[3].stop()  # the definitions in SQL are the same, too
        harness.run(0.3)
        harness[3].start()
        all_serve(harness)
    assert brought(harness) == 0
    harness[3].stop()
    harness.run(0.5)
    harness[1].do(nodes.change_queue, nodes.queues["q"], {"max-deliveries": 3}, done.append)
    assert harness.until(lambda: len(done) == 9)
    harness[3].start()
    check_alike(harness)
    assert harness[3].core.nodes.queues["q"].arguments == nodes.queues["q"].arguments


def test_member_remembers_the_message_ids_of_the_others() -> None:
    """A rejoining member has the same duplicate window as the others, whatever it had before."""
    harness = world_with(20, **{"duplicate-window": 10})
    harness[3].stop()
    harness.run(0.5)
    harness[3].start()
    check_alike(harness)
    windows = [member.core.owners.replicas["q"].queue.limits.duplicates for member in harness.members.values()]  # type: ignore[union-attr]
    assert all(window is not None for window in windows)
    assert len({tuple(window.all()) for window in windows if window is not None}) == 1


def test_mark_without_history_has_what_is_left_set_aside() -> None:
    """A progress record without history, as of an older version or after a new bootstrap, causes a backup."""
    harness = world_with()
    harness[3].core.progress_record.received_before = None
    harness[3].stop()
    harness.run(0.5)
    accept(harness, 1, 5)
    harness[3].start()
    check_alike(harness)
    assert len(aside_of(harness, 3).kept) == 1
    assert brought(harness) == 0


def test_mark_does_not_grow_with_restarts_of_others() -> None:
    harness = world_with(10)
    for _ in range(5):
        harness[3].stop()
        harness.run(0.3)
        harness[3].start()
        all_serve(harness)
    harness.run(3)
    send(harness, 1, range(10, 12))
    assert harness.until(lambda: len(harness[1].core.progress_record.received() or ()) == 3)
    harness[1].stop()
    harness.run(0.3)
    accept(harness, 2, 5)
    harness[1].start()
    check_alike(harness)
    assert aside_of(harness, 1).kept == []


def test_what_only_a_mute_member_heard_is_set_aside() -> None:
    """The state of a member whose events no other received is divergent: the others do not have its operations."""
    harness = world_with()
    sender = Sender(harness[3])
    assert harness.until(lambda: sender.driver is not None)
    harness.network.cut_egress(3)
    sender.send(range(500, 503))
    assert harness.until(lambda: len(stored(harness[3])) == 103)
    accept(harness, 1, 10)
    assert harness.until(lambda: harness[3].core.state.phase == "outside")
    harness.network.heal()
    check_alike(harness)
    assert not sender.confirmed
    assert {*aside_of(harness, 3).numbers(0)} >= {*range(100), 500, 501, 502}
    assert len(aside_of(harness, 3).kept) == 1
    assert numbers(harness, 3) == [*range(10, 100)]


def test_disk_that_becomes_full_loses_what_was_not_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    """With a full disk, the member receives its messages from the others, and does not back up divergent state."""
    harness = world_with(1500)
    harness[3].core.progress_record.received_before = None
    harness[3].stop()
    harness.run(0.5)
    accept(harness, 1, 5)
    member = harness[3]
    member.start()
    member.is_reader_slow = True
    assert harness.until(lambda: any(queue.pending for queue in member.core.receiver.kept_messages._queues.values()))
    member.do(member.core.receiver.make_room)
    harness.run(0.1)
    member.is_reader_slow = False
    check_alike(harness)
    assert "1500 former messages of this member are dropped" in caplog.text
    assert brought(harness) == 1495
    assert aside_of(harness, 3).kept == []


def test_digests_of_another_update_are_passed_by() -> None:
    harness = world_with()
    core = harness[3].core
    for phase_of in (1, 3):
        member = harness[phase_of]
        about = events.digests(7, 1, "q", [1, 2], [0, 0], [bytes(32)] * 2)
        member.do(member.core.broadcaster.send, about)
        member.do(member.core.broadcaster.send, events.control("lacking", update=7, queue="q", number=1, positions=[1]))
    harness.run(0.3)
    assert core.state.phase == "synchronized"
    check_alike(harness)


def test_member_with_many_queues_rejoins() -> None:
    """A member whose store has all the queues rejoins fast, as wiring changes complete at once."""
    names = [f"q{number}" for number in range(400)]
    harness = started(*names)
    harness[3].kill()
    harness.run(0.5)
    send(harness, 1, range(3))
    harness[3].start()
    assert harness.until(lambda: harness[3].serves, 10), harness.reason()
    assert harness[3].core.owners.replicas.keys() >= {*names}
    assert harness.same_everywhere()
