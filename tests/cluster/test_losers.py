"""Who is brought up to date keeps aside what only it has, wherever it is killed meanwhile (rule 17)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from cairnmq.base.errors import DiskFull
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.recovery.recover import recover
from cairnmq.store.journaled.discarded_state import KeptState

from ..broker.world import number_of
from ..recovery.world import OPTIONS, MemoryWiring
from .world import ACCEPT, Member, Receiver, World, send


class MemoryAside:
    """Beside the disk of a member in memory: what it had is a disk of its own."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self.kept: list[tuple[MemoryDirectory, object]] = []
        self.full = False

    def keep(self, durable_lsn: int) -> KeptState:
        if self.full:
            raise DiskFull("aside", "no room", "make some")
        assert self._member.store.durable_lsn >= durable_lsn
        self.kept.append((self._member.disk.after_kill(), self._member.wiring.hold()))
        return KeptState(f"aside/{len(self.kept)}", durable_lsn)

    def make_room(self) -> None:
        self.kept.clear()

    def numbers(self, which: int) -> list[int]:
        """Of the messages on the queue, in the order that a broker would find there."""
        disk, held = self.kept[which]
        wiring = MemoryWiring()
        wiring.put_back(held)
        store, _ = recover(disk.after_kill(), wiring, self._member.clock, OPTIONS)
        queue_id = next(row.id for row in store.queues() if row.name == "q")
        found = [number_of(store.load_piece(one, 0)) for one in store.messages().get(queue_id, ())]
        store.journal.abandon()
        return found


class KeepingMember(Member):
    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.aside = MemoryAside(self)

    def start(self) -> None:
        super().start()
        self.core.divergent_state.aside = self.aside


def aside_of(world: World, node: int) -> MemoryAside:
    member = world[node]
    assert isinstance(member, KeepingMember)
    return member.aside


def with_a_loser() -> World:
    """The third member has ten messages; the others have gone on without it: of these five are left, five are new.

    They were all started anew since, so nobody knows any more what became of the others.
    """
    world = World(member=KeepingMember).start()
    send(world, 1, range(10))
    world.run(0.3)
    world[3].kill()
    world.run(0.5)
    receiver = Receiver(world[1])
    assert world.until(lambda: receiver.driver is not None)
    receiver.request(5)
    assert world.until(lambda: len(receiver.unsettled) == 5)
    receiver.settle_as([*receiver.unsettled], ACCEPT)
    assert world.until(lambda: len(receiver.accepted) == 5)
    receiver.leave()
    send(world, 1, range(10, 15))
    for node in (1, 2):
        world[node].kill()
    for node in (1, 2):
        world[node].start()
    assert world.until(lambda: world[1].serves and world[2].serves), world.why()
    return world


def comes_to_rest(world: World) -> None:
    assert world.until(lambda: all(member.serves for member in world.members.values()), 60), world.why()
    world.run(0.3)
    assert world.same_everywhere()
    assert [number for _, number in world[3].contents("q")] == [*range(5, 15)]


def test_who_is_brought_up_to_date_keeps_what_it_had(caplog: pytest.LogCaptureFixture) -> None:  # rule 17, D27
    world = with_a_loser()
    world[3].start()
    comes_to_rest(world)
    assert {*aside_of(world, 3).numbers(0)} >= {*range(10)}
    assert len(aside_of(world, 3).kept) == world[3].core.divergent_state.kept == 1
    assert "this member has 5 messages that the others do not have" in caplog.text


def test_who_has_nothing_keeps_nothing() -> None:
    world = World(member=KeepingMember).start()
    world[3].kill()
    world.run(0.5)
    send(world, 1, range(5))
    world[3].start()
    assert world.until(lambda: world[3].serves), world.why()
    assert aside_of(world, 3).kept == []


def test_without_room_it_is_dropped_and_said(caplog: pytest.LogCaptureFixture) -> None:
    world = with_a_loser()
    aside_of(world, 3).full = True
    world[3].start()
    comes_to_rest(world)
    assert "what this member had is not set aside: aside: no room; make some" in caplog.text


STEPS: dict[str, Callable[[Member], bool]] = {
    "the mark says that it is behind": lambda member: member.core.receiver._wipe_lsn is not None,
    "it asks": lambda member: member.core.state.phase_name == "asking",
    "others bring what they have": lambda member: member.core.state.phase == "updating",
    "it reads what it has": lambda member: bool(member.readings) and member.core.state.phase == "updating",
    "it has all and more": lambda member: member.core.receiver._left is not None,
    "it is being set aside": lambda member: bool(member.readings) and member.core.receiver._left is not None,
    "it is set aside": lambda member: bool(member.aside.kept),  # type: ignore[attr-defined]
    "it is gone": lambda member: member.core.receiver._left == [],
}


def is_to_be_set_aside(world: World) -> None:
    """All is there that it is to have, and its reader was asked to set aside what it had."""
    member = world[3]
    assert world.until(lambda: member.core.state.phase == "updating")
    member.is_disk_slow = True
    assert world.until(lambda: member.core.receiver._left is not None)
    member.is_reader_slow = True
    member.hurry_disk()
    assert world.until(lambda: bool(member.readings))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("power", [None, 1, 2])
def test_who_is_killed_at_any_step_has_it_aside_or_in_its_store(step: str, power: int | None) -> None:  # rule 17
    world = with_a_loser()
    member = world[3]
    member.start()
    member.is_disk_slow = step == "the mark says that it is behind"
    member.is_reader_slow = step == "it reads what it has"
    if step == "it is being set aside":
        is_to_be_set_aside(world)
    assert world.until(lambda: STEPS[step](member))
    member.kill(None if power is None else random.Random(power))
    member.is_reader_slow = False
    world.run(0.5)
    member.start()
    comes_to_rest(world)
    aside = aside_of(world, 3)
    assert any({*aside.numbers(each)} >= {*range(10)} for each in range(len(aside.kept)))


def test_if_the_group_is_lost_while_it_is_set_aside_that_is_done_again() -> None:
    world = with_a_loser()
    member = world[3]
    member.start()
    is_to_be_set_aside(world)
    world.network.partition([3], [1, 2])
    assert world.until(lambda: member.core.state.phase == "outside")
    world.network.heal()
    assert world.until(lambda: member.core.state.phase == "updating")
    member.is_reader_slow = False
    comes_to_rest(world)
    assert [{*aside_of(world, 3).numbers(each)} >= {*range(10)} for each in (0, 1)] == [True, True]


def test_who_was_cut_off_asks_when_its_mark_is_on_its_disk_and_sets_nothing_aside_that_others_have() -> None:
    world = World(member=KeepingMember).start()
    send(world, 1, range(10))
    member = world[3]
    member.is_disk_slow = True
    send(world, 1, range(10, 15))
    world.network.partition([3], [1, 2])
    assert world.until(lambda: member.core.state.phase == "outside")
    send(world, 1, range(15, 20))
    world.network.heal()
    assert world.until(lambda: member.core.state.phase == "wiping")
    world.run(0.3)
    assert member.core.state.phase == "wiping"
    assert aside_of(world, 3).kept == []
    member.hurry_disk()
    assert world.until(lambda: member.serves), world.why()
    world.run(0.3)
    assert aside_of(world, 3).kept == []
    assert world.same_everywhere()
    assert [number for _, number in member.contents("q")] == [*range(20)]
