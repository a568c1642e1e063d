"""The faults of a scenario, drawn from its seed, and their repair."""

from __future__ import annotations

import random
from collections.abc import Callable

from cairnmq.cluster.kernel.events import control
from tests.harness.cluster.cluster_harness import ClusterHarness

KILL, SLOW_DISK, SLEEP = 0.1, 0.82, 0.87
"""Draws that select these faults."""


class Faults:
    """The faults of one scenario."""

    def __init__(self, harness: ClusterHarness, random: random.Random, note: Callable[[str], None]) -> None:
        self.harness = harness
        self.random = random
        self.note = note
        self.hangs = False
        """True if members only hang and resume, with few other faults and no network faults."""

    def fault(self) -> None:
        network, choice = self.harness.network, self.random.random()
        if self.hangs:
            choice = self.random.choice((KILL, SLOW_DISK, SLEEP, SLEEP, SLEEP, SLEEP))
        size = len(self.harness.members)
        node = self.random.randint(1, size)
        member = self.harness[node]
        if choice < 0.25:
            if member.running:
                cut = self.random.random() < 0.5
                self.note(f"kill {node} cut={cut}")
                member.kill(self.random if cut else None)
        elif choice < 0.31:
            self._all_go()
        elif choice < 0.5:
            nodes = [*self.harness.members]
            self.random.shuffle(nodes)
            at = self.random.randint(1, size - 1)
            self.note(f"partition {nodes[:at]} {nodes[at:]}")
            network.partition(nodes[:at], nodes[at:])
        elif choice < 0.6:
            self.note(f"pause-daemon {node}")
            network.pause_daemon(node)
        elif choice < 0.7:
            self.note(f"egress {node}")
            network.cut_egress(node)
        elif choice < 0.8:
            at = self.random.choice((0, self.random.randint(1, size)))
            if member.running and member.core.state.me is not None and not network.daemons[node].paused:
                self.note(f"drop {node} at {at}")
                network.drop(node, at)
                member.do(member.core.broadcaster.send, control("nothing"))
        elif choice < 0.85:
            self.note(f"slow-disk {node}")
            member.is_disk_slow = True
        elif choice < 0.9:
            self.note(f"sleep {node}")
            member.asleep = True
        elif choice < 0.95:
            self.note(f"daemon {node} dies")
            network.kill_daemon(node)
        else:
            self.note(f"stop {node}")
            if member.running:
                member.stop()

    def _all_go(self) -> None:
        """Stop or kill all members, at once or nearly so; by chance, start all again in random order."""
        how = self.random.choice(("stop", "kill", "cut"))
        pause = self.random.choice((0, 0, 1, 3))
        self.note(f"all-{how} {pause}")
        for node in self._shuffled():
            member = self.harness[node]
            if member.running and how == "stop":
                member.stop()
            elif member.running:
                member.kill(self.random if how == "cut" else None)
            for _ in range(pause):
                self.harness.tick()
        if self.random.random() < 0.7:
            for node in self._shuffled():
                self.wake(node)
                for _ in range(self.random.choice((0, 0, 1, 5, 40))):
                    self.harness.tick()

    def _shuffled(self) -> list[int]:
        nodes = [*self.harness.members]
        self.random.shuffle(nodes)
        return nodes

    def mend_something(self) -> None:
        network, choice = self.harness.network, self.random.random()
        self.wake(self.random.randint(1, len(self.harness.members)))
        if choice < 0.4:
            self.note("heal all")
            network.heal()

    def wake(self, node: int) -> None:
        network, member = self.harness.network, self.harness[node]
        if network.daemons[node].paused:
            network.resume_daemon(node)
        network.start_daemon(node)
        member.asleep = False
        member.hurry_disk()
        if member.running and member.failures:
            member.failures.clear()
            member.kill()
        if not member.running:
            self.note(f"start {node}")
            member.start()
