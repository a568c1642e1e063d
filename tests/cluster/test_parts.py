"""Tests of long events, which are sent in fragments, and of members that join meanwhile (D52, rule 7)."""

from __future__ import annotations

import pytest

from cairnmq.cluster.group.member_id import MemberId
from cairnmq.cluster.kernel import events
from cairnmq.cluster.kernel.control_messages import ControlMessage
from cairnmq.cluster.kernel.fragmentation import Fragmenter, MissedFragment, Reassembly
from cairnmq.cluster.kernel.local_messages import NOTHING
from tests.harness.broker.world import message
from tests.harness.cluster.cluster_harness import ClusterHarness, Sender

SENDER = MemberId(1, 2, 3)


class Wire:
    """A multicast that accepts *room* payloads."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.sent: list[bytes] = []

    def multicast(self, payload: bytes) -> bool:
        if len(self.sent) >= self.room:
            return False
        self.sent.append(payload)
        return True


def received(payloads: list[bytes]) -> list[bytes]:
    hearing = Reassembly()
    found: list[bytes] = []
    for payload in payloads:
        event = events.decode(payload) if payload[0] == events.PART else None
        complete = hearing.add(SENDER, event) if isinstance(event, events.PartEvent) else payload
        if complete is not None:
            found.append(complete)
    return found


@pytest.mark.parametrize("came_after", range(8))
def test_who_comes_hears_what_is_said_from_its_beginning(came_after: int) -> None:
    wire = Wire(came_after)
    saying = Fragmenter(wire.multicast)
    long, short = b"\x06" + bytes(300_000), b"\x06{}"
    saying.send(short)
    saying.send(long)
    saying.send(short)
    before = len(wire.sent)
    saying.somebody_joined()
    wire.room = 1000
    saying.resume()
    assert not saying.is_waiting
    assert received(wire.sent) == [short, long, short]
    if 1 < before < 6:
        assert received(wire.sent[before:]) == [long, short]


def test_an_end_without_a_beginning_is_missed() -> None:
    *_, last = events.parts_of(b"\x06" + bytes(300_000))
    part = events.decode(last)
    assert isinstance(part, events.PartEvent)
    with pytest.raises(MissedFragment):
        Reassembly().add(SENDER, part)


def test_a_newcomer_has_long_messages_that_came_while_it_asked() -> None:  # D18, D52
    harness = ClusterHarness().start()
    sender = Sender(harness[2])
    harness.run(0.2)
    sender.send(range(20), size_bytes=1000)
    harness[3].kill()
    harness.run(0.3)
    harness[3].start()
    assert harness.until(lambda: harness[3].core.state.phase_name in ("discarding", "requesting"))
    harness[1].asleep = True  # the donor
    assert harness.until(lambda: harness[3].core.state.phase == "buffering")
    sender.send([100], size_bytes=200_000)
    harness.run(0.1)
    harness[1].asleep = False
    assert harness.until(lambda: harness[3].serves and len(sender.confirmed) == 21), harness.reason()
    harness.run(0.2)
    assert harness.same_everywhere()
    assert [member.core.apply_loop.bad_events for member in harness.members.values()] == [0, 0, 0]


def test_a_newcomer_that_has_not_heard_the_beginning_asks_again() -> None:  # D18, D52
    harness = ClusterHarness().start()
    first, *_, last = events.parts_of(events.enqueue(["q"], [(message(7, 200_000, True), True)], False))
    harness[3].kill()
    harness.run(0.3)
    harness[3].start()
    assert harness.until(lambda: harness[3].core.state.phase_name in ("discarding", "requesting"))
    harness[1].asleep = True
    assert harness.until(lambda: harness[3].core.state.phase == "buffering")
    asked = harness[3].core.receiver.requests
    harness[2].core.locals.add(NOTHING)
    harness[2].core.group.multicast(last)
    harness.run(0.1)
    assert harness[3].core.receiver.requests == asked + 1
    harness[1].asleep = False
    assert harness.until(lambda: harness[3].serves), harness.reason()
    assert first[1] == events.FIRST


def test_snapshot_of_a_former_request_is_ignored() -> None:
    """Events between the two requests were dropped, so the snapshot for the first one is of no use."""
    harness = ClusterHarness().start()
    harness[3].kill()
    harness.run(0.3)
    harness[3].start()
    core = harness[3].core
    assert harness.until(lambda: core.state.phase == "buffering")
    me, donor = core.state.me, harness[1].core.state.me
    assert me is not None
    assert donor is not None
    core.receiver.ask_again()
    about = {"to": [*me], "update": core.receiver._update, "epoch": 1, "wiring": []}
    core.receiver.snapshot(ControlMessage(donor, 0, about))
    assert core.state.phase == "requesting"
    assert not core.inbox.is_stalled
    assert harness.until(lambda: harness[3].serves), harness.reason()
