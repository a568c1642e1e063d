"""Tests of the group properties in memory, and of faults that only a simulated engine can have."""

from __future__ import annotations

import select
from collections.abc import Iterator

import pytest

from cairnmq.cluster.group.group import MAX_PAYLOAD_BYTES, GroupError
from cairnmq.cluster.group.group_events import Configuration, EventBatch, GroupFailed, Quorum
from cairnmq.cluster.group.single_member import SingleMemberGroup
from tests.harness.cluster.group_harness import NODES, GroupHarness, MemoryEngine, payloads
from tests.harness.cluster.group_properties import GroupProperties


class TestInMemory(GroupProperties):
    @pytest.fixture(params=[1, 2, 3])
    def harness(self, request: pytest.FixtureRequest) -> Iterator[GroupHarness]:
        made = GroupHarness(MemoryEngine(request.param), patience_s=60)
        yield made
        made.close()

    def test_a_newer_process_takes_the_place_of_the_older_one(self, three: GroupHarness) -> None:
        older = three.members.pop(3)
        received = three.received[3]
        three.add(3)
        three.until(lambda: three.together(*NODES), "the newer one is in")
        received += older.step()
        assert received[-1] == GroupFailed("another process of this node joined the group in its place")
        older.close()

    def test_with_its_egress_cut_a_node_hears_itself_and_nobody_else_does(self, three: GroupHarness) -> None:  # rule 1
        three.machines.cut_egress(1)
        three.say(1, b"only here")
        three.all_heard(b"only here", 1)
        assert not payloads(three.received[2] + three.received[3])


def test_a_group_of_one_hears_itself() -> None:
    """D22, D28: a single broker is a group of one, without a group engine."""
    group = SingleMemberGroup()
    assert not group.multicast(b"early")
    assert group.fileno() >= 0
    assert group.wait_s() is None
    group.join("test")
    assert select.select([group], [], [], 0)[0]
    quorum, configuration = group.step()
    assert quorum == Quorum(True)
    assert isinstance(configuration, Configuration)
    assert configuration.founded
    assert configuration.primary
    assert configuration.members == (group.me,)
    assert not select.select([group], [], [], 0)[0]
    for number in range(3):
        assert group.multicast(b"%d" % number)
        assert group.multicast(b"")
        assert group.in_flight_bytes == 1
        assert group.me is not None
        assert select.select([group], [], [], 0)[0]
        assert group.step() == [EventBatch(group.me, 2 * number, [b"%d" % number, b""], number + 1)]
        assert group.step() == []
    with pytest.raises(GroupError, match="exceeds the limit"):
        group.multicast(bytes(MAX_PAYLOAD_BYTES + 1))
    with pytest.raises(GroupError, match="already joined"):
        group.join("test")
    group.close()
    assert not group.multicast(b"late")


def test_a_descriptor_tells_that_something_came() -> None:
    machines = MemoryEngine(1)
    bus = machines.bus(1)
    assert not select.select([bus], [], [], 0)[0]
    bus.join("test")
    assert select.select([bus], [], [], 0)[0]
    while list(bus.poll(100)):
        pass
    assert not select.select([bus], [], [], 0)[0]
    bus.close()
