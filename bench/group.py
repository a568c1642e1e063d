"""Benchmarks of groups of three members and of one: events per second by batch size, and the round-trip time.

One member sends events of 64 bytes, which all members receive. On Corosync, members are processes on separate nodes; in
memory, members take turns in one thread. The yardstick is the bus alone with frames of the same size.
"""

from __future__ import annotations

import secrets
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles

from cairnmq.base.clock import SystemClock
from cairnmq.cluster.group.bus import Bus, BusMessage
from cairnmq.cluster.group.corosync import CorosyncBus
from cairnmq.cluster.group.frame import HEAD_BYTES
from cairnmq.cluster.group.group import Group
from cairnmq.cluster.group.group_events import EventBatch
from cairnmq.cluster.group.member import GroupMember
from cairnmq.cluster.group.single_member import SingleMemberGroup
from cairnmq.tools.lab.cluster_lab import Lab, unavailable_reason
from cairnmq.tools.lab.cluster_lab_conf import LabOptions
from tests.harness.cluster.memory_bus import MemoryNetwork
from tests.harness.cluster.memory_group import memory_member

from .table import BenchError, Row, row

SECTION = "group, 64 B: events/s"
LATENCY = "group, 1 KiB, one in flight: back with the sender"
BATCHES = (1, 4, 16, 64)
NODES = 3
EVENT = bytes(64)
LARGER = bytes(1024)
_GUESS_PER_S = {
    "corosync": {1: 15_000, 4: 50_000, 16: 180_000, 64: 500_000},
    "memory": {1: 15_000, 4: 50_000, 16: 150_000, 64: 400_000},
    "solo": {1: 500_000, 4: 1_500_000, 16: 3_000_000, 64: 5_000_000},
}
_GUESS_BACK_PER_S = {"corosync": 2_500, "memory": 12_000, "solo": 500_000}
_WINDOW_FRAMES = 100
_PATIENCE_S = 60.0

Idle = Callable[[], None]
"""Action if no event arrived."""


def left_out() -> list[str]:
    reason = unavailable_reason()
    return [f"no rows of the group on corosync: {reason}"] if reason else []


def measure(path: str, rounds: int, round_s: float) -> list[Row]:
    """Measure the bus alone and the group in each round, for each kind of group."""
    rows: list[Row] = []
    for name, kind in (("memory", _memory), ("corosync", _corosync), ("solo", _solo)):
        if name == "corosync" and unavailable_reason():
            continue
        with kind(path) as (group, bus, idle):
            rows += _measure(name, group, bus, idle, rounds, round_s)
    return sorted(rows, key=lambda one: one.section == LATENCY)


def _measure(name: str, group: Group, bus: Bus | None, idle: Idle, rounds: int, round_s: float) -> list[Row]:
    rows = []
    for batch in BATCHES:
        guess = _GUESS_PER_S[name][batch]
        events = max(2 * batch, round(guess * round_s) // batch * batch)
        alone, found = [], []
        for _ in range(rounds):
            if bus:
                alone.append(_bus_per_s(bus, idle, batch, events))
            found.append(_group_per_s(group, idle, batch, events))
        yardstick = ("bus", alone) if bus else ("", found)
        rows.append(row(SECTION, f"{name}, {batch} together", found, guess, *yardstick))
    times = [_back_s(group, idle) for _ in range(max(20, round(_GUESS_BACK_PER_S[name] * round_s * rounds)))]
    cuts = [at * 1e6 for at in quantiles(times, n=1000)]
    rates = [1 / median(times)]
    rows.append(
        row(LATENCY, name, rates, _GUESS_BACK_PER_S[name], "", rates, p50_us=cuts[499], p99_us=cuts[989])
    )
    return rows


def _group_per_s(group: Group, idle: Idle, batch: int, events: int) -> float:
    begun_s = time.perf_counter()
    given = received = 0
    while received < events:
        while given < events:
            if not group.multicast(EVENT):
                break
            given += 1
            if not given % batch:
                group.flush()
        came = [len(event.payloads) for event in group.step() if isinstance(event, EventBatch)]
        received += sum(came)
        if not came:
            idle()
            _in_time(begun_s)
    return events / (time.perf_counter() - begun_s)


def _bus_per_s(bus: Bus, idle: Idle, batch: int, events: int) -> float:
    frame = bytes(HEAD_BYTES + batch * (4 + len(EVENT)))
    begun_s = time.perf_counter()
    given = received = 0
    while received * batch < events:
        while given * batch < events and given - received < _WINDOW_FRAMES and bus.send(frame):
            given += 1
        came = sum(isinstance(event, BusMessage) for event in bus.poll(256))
        received += came
        if not came:
            idle()
            _in_time(begun_s)
    return events / (time.perf_counter() - begun_s)


def _back_s(group: Group, idle: Idle) -> float:
    begun_s = time.perf_counter()
    if not group.multicast(LARGER):
        raise BenchError("the group takes nothing")
    while not any(isinstance(event, EventBatch) for event in group.step()):
        idle()
        _in_time(begun_s)
    return time.perf_counter() - begun_s


def _in_time(begun_s: float) -> None:
    if time.perf_counter() - begun_s > _PATIENCE_S:
        raise BenchError("the group does not answer")


def _form(group: Group, idle: Idle) -> None:
    begun_s = time.perf_counter()
    while group.me is None:
        group.step()
        idle()
        _in_time(begun_s)


@contextmanager
def _solo(path: str) -> Iterator[tuple[Group, Bus | None, Idle]]:
    group = SingleMemberGroup()
    group.join("bench")
    yield group, None, lambda: None
    group.close()


@contextmanager
def _memory(path: str) -> Iterator[tuple[Group, Bus | None, Idle]]:
    network = MemoryNetwork(NODES)
    group, *others = [memory_member(network, node) for node in range(1, NODES + 1)]
    bus, *other_buses = [network.bus(node) for node in range(1, NODES + 1)]
    for member in (group, *others):
        member.join("bench")
    for each in (bus, *other_buses):
        each.join("bus")

    def idle() -> None:
        network.clock.advance(0.0001)
        for member in others:
            member.step()
        for each in other_buses:
            each.inbox.clear()

    _form(group, idle)
    list(bus.poll(256))
    yield group, bus, idle


@contextmanager
def _corosync(path: str) -> Iterator[tuple[Group, Bus | None, Idle]]:
    lab = Lab(f"b{secrets.token_hex(2)}", Path(path) / "labs")
    with ExitStack() as stack:
        lab.up(LabOptions(NODES))
        stack.callback(lab.down)
        for node in range(2, NODES + 1):
            peer = subprocess.Popen(
                lab.command(node, [sys.executable, "-m", f"{__package__}.group_peer", "bench"]),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1],
            )  # fmt: skip
            stack.callback(peer.communicate)
            if peer.stdout is None or peer.stdout.readline() != b"here\n":
                raise BenchError("a peer of the group does not start")
        group, bus = GroupMember(CorosyncBus(), SystemClock()), CorosyncBus()
        both: list[Group | Bus] = [group, bus]
        with lab.inside(1):
            group.join("bench")
            bus.join("bench-bus")
        stack.callback(group.close)
        stack.callback(bus.close)

        def idle() -> None:
            select.select(both, [], [], 0.005)

        _form(group, idle)
        yield group, bus, idle
