"""A harness of groups on two engines with the same operations: in memory, and with corosync daemons."""

from __future__ import annotations

import os
import random
import select
from collections.abc import Callable, Iterable
from typing import Protocol

from cairnmq.base.clock import Clock, SystemClock
from cairnmq.cluster.group.bus import Bus, BusEvent, BusMessage
from cairnmq.cluster.group.corosync import ANSWER_S, CorosyncBus
from cairnmq.cluster.group.group import WINDOW_BYTES
from cairnmq.cluster.group.group_events import Configuration, Event, EventBatch
from cairnmq.cluster.group.member import GroupMember
from cairnmq.tools.lab.cluster_lab import Lab
from tests.harness.cluster.memory_bus import MemoryNetwork

NODES = (1, 2, 3)


class FaultyBus:
    """A wrapper of a bus with faults that a test selects."""

    def __init__(self, bus: Bus) -> None:
        self.inner = bus
        self.drop_sent = 0
        """The number of frames to accept and lose from now on."""
        self.drop_heard: Callable[[BusMessage], bool] = lambda _: False
        self.refuse = 0
        """The number of frames to refuse from now on."""

    @property
    def address(self) -> object:
        return self.inner.address

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def send(self, frame: bytes) -> bool:
        if self.refuse:
            self.refuse -= 1
            return False
        if self.drop_sent:
            self.drop_sent -= 1
            return True
        return self.inner.send(frame)

    def poll(self, limit: int) -> Iterable[BusEvent]:
        for event in self.inner.poll(limit):
            if not (isinstance(event, BusMessage) and self.drop_heard(event)):
                yield event


class GroupEngine(Protocol):
    """An engine that creates buses, with faults of daemons and of the network."""

    @property
    def clock(self) -> Clock: ...
    def bus(self, node: int, configured: int) -> Bus: ...
    def wait(self, members: Iterable[GroupMember]) -> None:
        """Wait for a short time, or for input of *members*."""
        ...

    def kill_daemon(self, node: int) -> None: ...
    def start_daemon(self, node: int) -> None: ...
    def pause_daemon(self, node: int) -> None: ...
    def resume_daemon(self, node: int) -> None: ...
    def partition(self, *sides: Iterable[int]) -> None: ...
    def cut_egress(self, node: int) -> None: ...
    def heal(self) -> None: ...


class MemoryEngine(MemoryNetwork):
    def __init__(self, seed: int) -> None:
        super().__init__(len(NODES), seed)

    def bus(self, node: int, configured: int = len(NODES)) -> Bus:  # type: ignore[override]
        bus = super().bus(node)
        bus.configured = configured
        return bus

    def wait(self, members: Iterable[GroupMember]) -> None:
        self.clock.advance(0.01)
        self.step()


class NamespaceBus(CorosyncBus):
    """A corosync bus that connects inside the network namespace of a node."""

    def __init__(self, lab: Lab, node: int, configured: int, answer_s: float = ANSWER_S) -> None:
        super().__init__(configured, answer_s=answer_s)
        self._lab, self._node = lab, node

    def join(self, name: str) -> None:
        with self._lab.inside(self._node):
            super().join(name)

    def rejoin(self) -> None:
        with self._lab.inside(self._node):
            super().rejoin()


class CorosyncEngine:
    """An engine of corosync daemons; `restore` repairs all faults after a test."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.clock = SystemClock()

    def bus(self, node: int, configured: int = len(NODES)) -> Bus:
        return NamespaceBus(self.lab, node, configured)

    def wait(self, members: Iterable[GroupMember]) -> None:
        some = list(members)
        waits = [wait_s for member in some if (wait_s := member.wait_s()) is not None]
        select.select(some, [], [], min([0.02, *waits]))

    def kill_daemon(self, node: int) -> None:
        self.lab.kill(node)

    def start_daemon(self, node: int) -> None:
        self.lab.start(node)

    def pause_daemon(self, node: int) -> None:
        self.lab.pause(node)

    def resume_daemon(self, node: int) -> None:
        self.lab.resume(node)

    def partition(self, *sides: Iterable[int]) -> None:
        self.lab.partition(*sides)

    def cut_egress(self, node: int) -> None:
        self.lab.cut(node)

    def heal(self) -> None:
        self.lab.heal()

    def restore(self) -> None:
        self.heal()
        for node in self.lab.nodes:
            if not self.lab.pid(node):
                self.lab.start(node)
            self.lab.resume(node)
        self.lab.wait_complete()


class GroupHarness:
    """Members of one group, and all events that each of them received."""

    def __init__(self, machines: GroupEngine, patience_s: float) -> None:
        self.machines = machines
        self.patience_s = patience_s
        self.name = f"test-{os.getpid()}-{random.getrandbits(40):x}"
        self.members: dict[int, GroupMember] = {}
        self.buses: dict[int, FaultyBus] = {}
        self.received: dict[int, list[Event]] = {}
        self.lives: list[list[Event]] = []
        """The events of each member that was ever added."""

    def add(self, node: int, configured: int = len(NODES), window_bytes: int = WINDOW_BYTES) -> GroupMember:
        """Add a new member on *node*, and close an earlier one."""
        if node in self.members:
            self.members.pop(node).close()
        bus = self.buses[node] = FaultyBus(self.machines.bus(node, configured))
        member = GroupMember(bus, self.machines.clock, window_bytes=window_bytes)  # type: ignore[arg-type]
        member.join(self.name)
        self.members[node] = member
        self.received[node] = []
        self.lives.append(self.received[node])
        return member

    def form(self, *nodes: int) -> None:
        for node in nodes or NODES:
            self.add(node)
        self.until(lambda: self.together(*nodes or NODES), "they are a group")

    def remove(self, node: int) -> None:
        self.members.pop(node).close()

    def step(self, *asleep: int) -> None:
        for node, member in self.members.items():
            if node not in asleep:
                self.received[node] += member.step()

    def until(self, condition: Callable[[], bool], what: str, asleep: tuple[int, ...] = ()) -> None:
        deadline_s = self.machines.clock.monotonic_s() + self.patience_s
        while True:
            self.step(*asleep)
            if condition():
                return
            if self.machines.clock.monotonic_s() > deadline_s:
                told = {node: [str(event)[:300] for event in events[-6:]] for node, events in self.received.items()}
                raise AssertionError(f"waited for {self.patience_s} s, in vain: {what}; last heard: {told}")
            self.machines.wait([member for node, member in self.members.items() if node not in asleep])

    def last(self, node: int) -> Configuration | None:
        found = [event for event in self.received[node] if isinstance(event, Configuration)]
        return found[-1] if found else None

    def together(self, *nodes: int) -> bool:
        """Return whether *nodes* are one primary group by the last configuration of each."""
        last = [self.last(node) for node in nodes]
        first = last[0]
        return (
            first is not None
            and first.primary
            and all(each is not None and each.members == first.members and each.view == first.view for each in last)
            and tuple(member.node for member in first.members) == nodes
            and all(self.members[node].me in first.members for node in nodes)
        )

    def say(self, node: int, *payloads: bytes) -> None:
        """Multicast *payloads* from *node*, each as soon as it is accepted."""
        for payload in payloads:
            if not self.members[node].multicast(payload):
                self.until(lambda payload=payload: self.members[node].multicast(payload), "it is taken")  # type: ignore[misc]

    def all_heard(self, payload: bytes, *nodes: int) -> None:
        nodes = nodes or NODES
        self.until(lambda: all(payload in payloads(self.received[node]) for node in nodes), f"{payload!r} is heard")

    def close(self) -> None:
        for member in self.members.values():
            member.close()
        self.members.clear()


def payloads(events: Iterable[Event]) -> list[bytes]:
    """Return the payloads of all events, in order."""
    return [payload for event in events if isinstance(event, EventBatch) for payload in event.payloads]
