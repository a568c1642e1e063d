"""Tests that all members of a cluster have the annotations that a receiver added to a message (3.4.5)."""

from __future__ import annotations

import pytest

from cairnmq.amqp.codec import encode, sections
from cairnmq.amqp.codec.types import Symbol
from cairnmq.amqp.native.proton_ffi import MODIFIED
from cairnmq.amqp.ports import Outcome
from tests.harness.cluster.cluster_harness import ACCEPT, Receiver, send, started

ADDED = encode.value({Symbol("x-opt-why"): "busy"})


# P2, C3
@pytest.mark.parametrize("node", [1, 2])
def test_members_agree_on_annotations_of_a_receiver(node: int) -> None:
    """The message keeps its place and its count, also for a receiver of another member."""
    harness = started("q")
    send(harness, 1, range(3))
    receiver = Receiver(harness[node])
    assert harness.until(lambda: receiver.driver is not None)
    receiver.request(3)
    assert harness.until(lambda: len(receiver.unsettled) == 3)
    outcome = Outcome(1, receiver.unsettled.pop(1)[0], MODIFIED, True, False, None, ADDED)
    assert receiver.driver is not None
    receiver.member.do(receiver.driver.outcomes, [outcome])
    receiver.leave()
    members = harness.members.values()
    assert harness.until(lambda: all(b"x-opt-why" in member.whole_contents("q").get(2, b"") for member in members))
    assert harness.until(harness.same_everywhere)
    for member in members:
        found = member.whole_contents("q")
        assert sorted(found) == [1, 2, 3], "positions"
        assert [b"x-opt-why" in found[position] for position in (1, 2, 3)] == [False, True, False]
        at = sections.find(found[2], sections.MESSAGE_ANNOTATIONS)
        assert sections.annotations_of(found[2], at)["x-opt-why"] == "busy"
        assert member.marks("q")[2] == (True, 1)
    last = Receiver(harness[3])
    assert harness.until(lambda: last.driver is not None)
    last.request(5)
    assert harness.until(lambda: len(last.unsettled) == 3)
    last.settle_as([0, 1, 2], ACCEPT)
    assert harness.until(lambda: not any(member.contents("q") for member in members))
