"""Tests that a joining member backs up its divergent state, even if killed at any step (rule 17)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.harness.cluster.cluster_harness import ACCEPT, ClusterHarness, Receiver, SimulatedMember, send
from tests.harness.cluster.divergent_state import KeepingMember, aside_of


def with_a_loser() -> ClusterHarness:
    """Return a cluster in which member 3 is down with ten messages, of which the others have five, and five new ones.

    The others were restarted since, so they have no record of the fate of the other five messages.
    """
    harness = ClusterHarness(member=KeepingMember).start()
    send(harness, 1, range(10))
    harness.run(0.3)
    harness[3].kill()
    harness.run(0.5)
    receiver = Receiver(harness[1])
    assert harness.until(lambda: receiver.driver is not None)
    receiver.request(5)
    assert harness.until(lambda: len(receiver.unsettled) == 5)
    receiver.settle_as([*receiver.unsettled], ACCEPT)
    assert harness.until(lambda: len(receiver.accepted) == 5)
    receiver.leave()
    send(harness, 1, range(10, 15))
    for node in (1, 2):
        harness[node].kill()
    for node in (1, 2):
        harness[node].start()
    assert harness.until(lambda: harness[1].serves and harness[2].serves), harness.reason()
    return harness


def comes_to_rest(harness: ClusterHarness) -> None:
    assert harness.until(lambda: all(member.serves for member in harness.members.values()), 60), harness.reason()
    harness.run(0.3)
    assert harness.same_everywhere()
    assert [number for _, number in harness[3].contents("q")] == [*range(5, 15)]


def test_who_is_brought_up_to_date_keeps_what_it_had(caplog: pytest.LogCaptureFixture) -> None:  # rule 17, D27
    harness = with_a_loser()
    harness[3].start()
    comes_to_rest(harness)
    assert {*aside_of(harness, 3).numbers(0)} >= {*range(10)}
    assert len(aside_of(harness, 3).kept) == harness[3].core.divergent_state.kept == 1
    assert "this member has 5 messages that the others do not have" in caplog.text


def test_who_has_nothing_keeps_nothing() -> None:
    harness = ClusterHarness(member=KeepingMember).start()
    harness[3].kill()
    harness.run(0.5)
    send(harness, 1, range(5))
    harness[3].start()
    assert harness.until(lambda: harness[3].serves), harness.reason()
    assert aside_of(harness, 3).kept == []


def test_without_room_it_is_dropped_and_said(caplog: pytest.LogCaptureFixture) -> None:
    harness = with_a_loser()
    aside_of(harness, 3).full = True
    harness[3].start()
    comes_to_rest(harness)
    assert "the divergent state was not backed up: aside: no room; make some" in caplog.text


STEPS: dict[str, Callable[[SimulatedMember], bool]] = {
    "the mark says that it is behind": lambda member: member.core.receiver._awaited is not None,
    "it asks": lambda member: member.core.state.phase_name == "requesting",
    "others bring what they have": lambda member: member.core.state.phase == "transferring",
    "it reads what it has": lambda member: bool(member.readings) and member.core.state.phase == "transferring",
    "it has all and more": lambda member: member.core.receiver._left is not None,
    "it is being set aside": lambda member: bool(member.readings) and member.core.receiver._left is not None,
    "it is set aside": lambda member: bool(member.aside.kept),  # type: ignore[attr-defined]
    "it is gone": lambda member: member.core.receiver._left == [],
}


def is_to_be_set_aside(harness: ClusterHarness) -> None:
    """Wait until member 3 has received the complete state, and its reader has begun to back up the divergent state."""
    member = harness[3]
    assert harness.until(lambda: member.core.state.phase == "transferring")
    member.is_disk_slow = True
    assert harness.until(lambda: member.core.receiver._left is not None)
    member.is_reader_slow = True
    member.hurry_disk()
    assert harness.until(lambda: bool(member.readings))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("power", [None, 1, 2])
def test_who_is_killed_at_any_step_has_it_aside_or_in_its_store(step: str, power: int | None) -> None:  # rule 17
    harness = with_a_loser()
    member = harness[3]
    member.start()
    member.is_disk_slow = step == "the mark says that it is behind"
    member.is_reader_slow = step == "it reads what it has"
    if step == "it is being set aside":
        is_to_be_set_aside(harness)
    assert harness.until(lambda: STEPS[step](member))
    member.kill(None if power is None else random.Random(power))
    member.is_reader_slow = False
    harness.run(0.5)
    member.start()
    comes_to_rest(harness)
    aside = aside_of(harness, 3)
    assert any({*aside.numbers(each)} >= {*range(10)} for each in range(len(aside.kept)))


def test_if_the_group_is_lost_while_it_is_set_aside_that_is_done_again() -> None:
    harness = with_a_loser()
    member = harness[3]
    member.start()
    is_to_be_set_aside(harness)
    harness.network.partition([3], [1, 2])
    assert harness.until(lambda: member.core.state.phase == "outside")
    harness.network.heal()
    assert harness.until(lambda: member.core.state.phase == "transferring")
    member.is_reader_slow = False
    comes_to_rest(harness)
    assert [{*aside_of(harness, 3).numbers(each)} >= {*range(10)} for each in (0, 1)] == [True, True]


def test_who_was_cut_off_asks_when_its_mark_is_on_its_disk_and_sets_nothing_aside_that_others_have() -> None:
    harness = ClusterHarness(member=KeepingMember).start()
    send(harness, 1, range(10))
    member = harness[3]
    member.is_disk_slow = True
    send(harness, 1, range(10, 15))
    harness.network.partition([3], [1, 2])
    assert harness.until(lambda: member.core.state.phase == "outside")
    send(harness, 1, range(15, 20))
    harness.network.heal()
    assert harness.until(lambda: member.core.state.phase == "discarding")
    harness.run(0.3)
    assert member.core.state.phase == "discarding"
    assert aside_of(harness, 3).kept == []
    member.hurry_disk()
    assert harness.until(lambda: member.serves), harness.reason()
    harness.run(0.3)
    assert aside_of(harness, 3).kept == []
    assert harness.same_everywhere()
    assert [number for _, number in member.contents("q")] == [*range(20)]
