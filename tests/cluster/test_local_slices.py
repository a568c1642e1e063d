"""Tests of background work with a clock per member: slices and debts differ, the order of events does not.

`BackgroundWork` depends on the time of one member. All members are the same at the end, because no event's effect
depends on it: the decider of a queue multicasts expiry, purges and dead letters, a move acquires messages as a consumer
does, and all members apply events when they arrive.
"""

from __future__ import annotations

import random

import pytest

from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.broker.kernel.dispatch_turns import AT_ONCE
from cairnmq.broker.scheduling.background import SLICE_S
from tests.harness.cluster import numbered_messages as letters
from tests.harness.cluster.cluster_harness import ClusterHarness, Sender, SimulatedMember
from tests.harness.cluster.consistency import checked
from tests.harness.cluster.management_client import Manager
from tests.harness.cluster.memory_bus import MemoryNetwork
from tests.harness.thorough import amount

SEEDS = amount("CAIRN_SLICES", 10, 1)
PASSES_S = (0.0, 0.0, 0.0, SLICE_S / 10, SLICE_S / 2, 1.5 * SLICE_S, 5 * SLICE_S, 20 * SLICE_S)
"""The time that passes between two readings of the clock: none, a part of a slice, or several."""
MOST_AHEAD_S = 0.1
"""The maximum lead of a member's clock over the shared one; at this lead the clock stops until the next steps."""


class PassingClock(ManualClock):
    """The clock of one member, which advances while the member works."""

    def __init__(self, shared: ManualClock, seed: int) -> None:
        super().__init__(shared.now_s)
        self._shared = shared
        self._random = random.Random(seed)

    def monotonic_s(self) -> float:
        shared_s = self._shared.now_s
        passed_s = max(self.now_s, shared_s) + self._random.choice(PASSES_S)
        self.now_s = max(self.now_s, min(passed_s, shared_s + MOST_AHEAD_S))
        return self.now_s

    def wall_us(self) -> int:
        return self._shared.wall_us()


class BusyMember(SimulatedMember):
    """A member whose clock advances by a random time at each reading."""

    indebted_steps = 0
    """The number of steps, on all members, after which a user had a debt."""

    def __init__(self, network: MemoryNetwork, node: int) -> None:
        super().__init__(network, node)
        self.clock = PassingClock(network.clock, node)

    def _step(self) -> None:
        super()._step()
        if self.running and self.broker.core.background._debts:
            BusyMember.indebted_steps += 1


@pytest.fixture(autouse=True)
def no_debts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BusyMember, "indebted_steps", 0)


@pytest.mark.parametrize("fails", [False, True], ids=["", "the leader is killed"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_moves_purges_expiry_and_wide_messages_at_once(seed: int, fails: bool) -> None:  # D2, D15
    """Each kind of background work is for many messages, and is requested from another member."""
    harness = ClusterHarness(seed=seed, member=BusyMember).start()
    wide = [f"w{number}" for number in range(AT_ONCE + 36)]
    done: list[object] = []
    nodes = harness[1].broker.nodes
    arguments = {"e": {"message-ttl-ms": 400, "expiry-address": "dead"}}
    names = ("q", "r", "e", "p", "dead", *wide)
    for name in names:
        harness[1].do(nodes.create_queue, name, arguments.get(name, {}), done.append)
    harness[1].do(nodes.create_exchange, "x", "fanout", {}, done.append)
    assert harness.until(lambda: len(done) == len(names) + 1)
    for name in wide:
        harness[1].do(nodes.bind, nodes.exchanges["x"], nodes.queues[name], "", {}, done.append)
    assert harness.until(lambda: len(done) == len(names) + 1 + len(wide))

    sizes: dict[int, int] = {}
    sent: dict[str, range] = {}

    def send(node: int, address: str, count: int) -> Sender:
        sender = Sender(harness[node], address)
        harness.run(0.1)
        sent[address] = numbers = range(len(sizes), len(sizes) + count)
        sizes.update(dict.fromkeys(numbers, 20))
        sender.send_whole({number: letters.written(number, 20) for number in numbers})
        return sender

    senders = [send(2, "q", 300), send(3, "p", 500)]
    assert harness.until(lambda: [len(sender.confirmed) for sender in senders] == [300, 500], 30)
    senders = [send(3, "e", 200), send(2, "x", 6)]
    mover, purger = Manager(harness[2]), Manager(harness[3])
    harness.run(0.1)
    mover.ask("MOVE", "queue", "q", {"to": "r"})
    purger.ask("PURGE", "queue", "p")
    if fails:
        harness.run(0.05)
        harness[1].kill()
        harness.run(0.5)
        harness[1].start()
    assert harness.until(lambda: bool(mover.answers and purger.answers), 60)
    assert [mover.answers[0].status, purger.answers[0].status] == [200, 200]
    assert harness.until(lambda: [len(sender.confirmed) for sender in senders] == [200, 6], 30)
    members = harness.members.values()
    assert harness.until(lambda: all(member.serves for member in members), 60), harness.reason()
    assert harness.until(lambda: not harness[1].contents("e"), 30)
    harness.run(1)
    found = {one.queue: [number for _, number in one.contents] for one in checked(harness, sizes)}
    assert found["q"] == []
    assert found["p"] == []
    assert found["e"] == []
    assert sorted(found["r"]) == [*sent["q"]]
    assert sorted(found["dead"]) == [*sent["e"]]
    assert all(found[name] == [*sent["x"]] for name in wide)
    assert BusyMember.indebted_steps
