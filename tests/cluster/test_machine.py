"""Tests of random histories of a group in memory, with faults of machines, links, processes and frames.

At the end all faults are healed; then all members form one group again, and receive the same events.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from cairnmq.cluster.group.group import GroupError
from cairnmq.cluster.group.group_events import Configuration, EventBatch, GroupFailed
from cairnmq.cluster.group.member_id import MemberId
from tests.harness.cluster import total_order as order
from tests.harness.cluster.group_harness import NODES, GroupHarness, MemoryEngine

NODE = st.sampled_from(NODES)
HISTORIES = 60
STEPS = 60
SEEDS = 20
LONG = 60


class GroupMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.machines = MemoryEngine(seed)
        self.harness = GroupHarness(self.machines, patience_s=300)
        self.number = 0
        self.given: dict[MemberId | None, list[bytes]] = {}
        """The payloads that each incarnation multicast, in order."""
        self.asleep: set[int] = set()
        self.ghosts: set[int] = set()
        for node in NODES:
            self.harness.add(node)

    @rule(node=NODE, count=st.integers(1, 30), size=st.sampled_from([0, 10, 500, 9000]))
    def say(self, node: int, count: int, size: int) -> None:
        member = self.harness.members.get(node)
        for _ in range(count if member else 0):
            assert member is not None
            self.number += 1
            payload = b"%d " % self.number + bytes(size)
            if member.multicast(payload):
                self.given.setdefault(member.me, []).append(payload)

    @rule(steps=st.one_of(st.integers(1, 5), st.integers(1, 300)))
    def time_passes(self, steps: int) -> None:
        for _ in range(steps):
            self.harness.step(*self.asleep)
            self.machines.wait(())
            for node, received in self.harness.received.items():
                if node in self.harness.members and received and isinstance(received[-1], GroupFailed):
                    self.harness.remove(node)

    @rule(node=NODE)
    def pause_daemon(self, node: int) -> None:
        if self.machines.daemons[node].running:
            self.machines.pause_daemon(node)

    @rule(node=NODE)
    def resume_daemon(self, node: int) -> None:
        self.machines.resume_daemon(node)

    @rule(node=NODE)
    def kill_daemon(self, node: int) -> None:
        self.machines.kill_daemon(node)

    @rule(node=NODE)
    def start_daemon(self, node: int) -> None:
        self.machines.start_daemon(node)

    @rule(node=NODE)
    def process_begins(self, node: int) -> None:
        self.asleep.discard(node)
        try:
            self.harness.add(node)
        except GroupError:
            assert not self.machines.daemons[node].running
            self.harness.members.pop(node, None)

    @rule(node=NODE, ghost=st.booleans())
    def process_is_killed(self, node: int, ghost: bool) -> None:
        if node in self.harness.members:
            self.machines.kill_process(self.harness.buses[node].inner, ghost)  # type: ignore[arg-type]
            del self.harness.members[node]

    @rule(node=NODE)
    def process_sleeps(self, node: int) -> None:
        self.asleep.add(node)

    @precondition(lambda self: self.asleep)
    @rule()
    def processes_wake(self) -> None:
        self.asleep.clear()

    @rule(alone=NODE)
    def partition(self, alone: int) -> None:
        self.machines.partition([alone], [node for node in NODES if node != alone])

    @rule()
    def part_all(self) -> None:
        self.machines.partition(*([node] for node in NODES))

    @rule(node=NODE)
    def cut_egress(self, node: int) -> None:
        self.machines.cut_egress(node)

    @rule()
    def heal(self) -> None:
        self.machines.heal()

    @rule(sender=NODE, at=st.sampled_from([0, *NODES]))
    def frame_is_lost(self, sender: int, at: int) -> None:
        self.machines.drop(sender, at)

    @rule(node=NODE, count=st.integers(1, 30))
    def daemon_is_busy(self, node: int, count: int) -> None:
        self.machines.try_again(node, count)

    def mend(self) -> None:
        """Heal all faults of machines and processes, and start missing members."""
        self.machines.heal()
        self.asleep.clear()
        self.machines.quiet()
        for node in NODES:
            self.machines.resume_daemon(node)
            self.machines.start_daemon(node)
        self.time_passes(200)
        for node in NODES:
            if node not in self.harness.members:
                self.harness.add(node)

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        self.mend()
        self.harness.until(lambda: self.harness.together(*NODES), "healed, they are one group")
        self.say(1, 1, 0)
        self.harness.say(1, b"the end")
        self.given.setdefault(self.harness.members[1].me, []).append(b"the end")
        self.harness.all_heard(b"the end")
        order.check(self.harness.lives)
        self.check_senders()
        self.harness.close()

    def check_senders(self) -> None:
        """Check that members received the payloads of each sender in order and without gaps while in the group."""
        for life in self.harness.lives:
            received: dict[MemberId, list[bytes]] = {}
            for event in life:
                if isinstance(event, Configuration) and not event.primary:
                    self.check_heard(received)
                    received = {}
                elif isinstance(event, EventBatch):
                    received.setdefault(event.sender, []).extend(event.payloads)
            self.check_heard(received)

    def check_heard(self, received: dict[MemberId, list[bytes]]) -> None:
        for sender, some in received.items():
            begin = self.given[sender].index(some[0])
            assert some == self.given[sender][begin : begin + len(some)]


def test_history_agrees_with_model() -> None:
    run_state_machine_as_test(
        GroupMachine,
        settings=settings(
            max_examples=HISTORIES, stateful_step_count=STEPS, database=None,
            phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_long_history(seed: int) -> None:
    """A history that is drawn from the seed is longer, and leaves time to form a group again."""
    chance = random.Random(seed)
    machine = GroupMachine()
    machine.begin(seed)
    machine.time_passes(100)
    for _ in range(LONG):
        node = chance.choice(NODES)
        match chance.randrange(16):
            case 0:
                machine.pause_daemon(node)
            case 1:
                machine.kill_daemon(node)
            case 2:
                machine.process_begins(node)
            case 3:
                machine.process_is_killed(node, chance.random() < 0.2)
            case 4:
                machine.process_sleeps(node)
            case 5:
                machine.partition(node)
            case 6:
                machine.part_all()
            case 7:
                machine.cut_egress(node)
            case 8:
                machine.frame_is_lost(node, chance.choice((0, *NODES)))
            case 9:
                machine.daemon_is_busy(node, chance.randrange(1, 30))
            case 10 | 11:
                machine.mend()
            case _:
                machine.say(node, chance.randrange(1, 30), chance.choice((0, 10, 500, 9000)))
        machine.time_passes(chance.choice((0, 1, 2, 5, 20, 150)))
    machine.teardown()
