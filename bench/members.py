"""Benchmarks of a three-member cluster on one machine, against a broker without a cluster and a cluster of one.

Corosync daemons and brokers run in network namespaces of a lab and share the cores and the only disk of the machine
with the clients, so the results do not predict those of three machines. The client is that of `broker`. Messages are
durable, have 256 B, and are all checked. The kinds are:

none, one       a sender and a receiver at the broker or the cluster of one
passive         a sender and a receiver at the first of three members; the other members only follow
elsewhere       a sender and a receiver at different members
active          three pairs of a sender and a receiver, each with a separate queue at a separate member
shared          a sender and a receiver at each member, all of one queue, whose leader changes

*fail-over* lasts from a machine failure of a member (broker and daemon at once) until another member confirms a message
sent afterwards, and includes failure detection by Corosync (`DETECTION_S`). *join* lasts until a restarted member has
received a queue of many messages and serves, while a publisher sends at a steady rate.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

from proton import Message
from proton.utils import BlockingConnection

from cairnmq.tools.lab.cluster_lab import Lab, unavailable_reason
from cairnmq.tools.lab.cluster_lab_conf import TOKEN_MS, LabOptions, address

from .broker import MAIN, STOPPED_S, Broker
from .client import Clients, Far, Job
from .table import BenchError, Goal, Row, row, rows_in_flight
from .works import check_shares, receive_share

SECTION = "three members on this machine, 256 B: received"
TIMES = "three members on this machine"
NODES = (1, 2, 3)
PORT, METRICS = 5672, 9100
PATIENCE_S = 120.0
BACKLOG = 100_000
"""Number of messages transferred to a joining member."""
STEADY_PER_S = 200
KINDS = ("none", "one", "passive", "elsewhere", "active", "shared")
GOALS = {
    "one": Goal(0.95),
    "passive": Goal(0.5, 3),
    "elsewhere": Goal(0.5, 3),
    "active": Goal(0.3, 10),
    "shared": Goal(0.3, 10),
}
_GUESS_PER_S = {1: 200, 100: 10_000, 1000: 20_000}
WINDOWS = tuple(_GUESS_PER_S)
_GUESS_JOIN_PER_S = 20_000
DETECTION_S = 2.2 * (TOKEN_MS + 650 * (len(NODES) - 2)) / 1000
"""Time for the token timeout, which grows by 650 ms for each node beyond two, and for the consensus."""
_GUESS_OVER_PER_S = 1 / (DETECTION_S + 1)


class Member:
    """A broker on a node of the lab."""

    def __init__(self, lab: Lab, node: int, path: Path) -> None:
        self.lab, self.node = lab, node
        self.url = f"amqp://{address(node)}:{PORT}"
        ports = ("--port", str(PORT), "--metrics-port", str(METRICS))
        command = [
            sys.executable, "-c", MAIN, "broker", "--store-dir", str(path / f"store{node}"), "--cluster-name", "bench",
            "--listen", address(node), *ports, "--anonymous", "--anonymous",
        ]  # fmt: skip
        with (path / f"log{node}").open("wb") as said:
            self.process = subprocess.Popen(lab.command(node, command), stdout=said, stderr=said)

    def figures(self) -> dict[str, float]:
        try:
            place = f"http://127.0.0.1:{METRICS}/metrics"
            with self.lab.inside(self.node), urllib.request.urlopen(place, timeout=5) as got:
                text = got.read().decode()
        except OSError:
            return {}
        return {name: float(value) for name, value in re.findall(r"^cairnmq_(cluster_\w+) (\S+)$", text, re.MULTILINE)}

    @property
    def serves(self) -> bool:
        return self.figures().get("cluster_serving") == 1.0

    def connect(self) -> BlockingConnection:
        with self.lab.inside(self.node):
            return BlockingConnection(self.url, timeout=PATIENCE_S, allowed_mechs="ANONYMOUS")

    def end(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        try:
            self.process.wait(STOPPED_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Members:
    def __init__(self, lab: Lab, path: Path) -> None:
        self.lab, self.path = lab, path
        self.all: dict[int, Member] = {}

    def start(self, *nodes: int) -> None:
        for node in nodes:
            self.all[node] = Member(self.lab, node, self.path)
        wait(lambda: all(self.all[node].serves for node in nodes), "the members serve")

    def end(self) -> None:
        for member in self.all.values():
            member.end()


@contextlib.contextmanager
def three(path: Path) -> Iterator[Members]:
    path.mkdir(parents=True, exist_ok=True)
    lab = Lab(f"b{secrets.token_hex(2)}", path / "lab")
    members = Members(lab, path)
    try:
        lab.up(LabOptions(len(NODES)))
        members.start(*NODES)
        yield members
    finally:
        members.end()
        lab.down()


def wait(condition: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end_s:
            raise BenchError(f"not within {PATIENCE_S:.0f} s: {what}")
        time.sleep(0.02)


Place = tuple[int, Far | None]
"""Port of a broker, and its lab node unless on loopback."""
Found = tuple[float, float, float]
"""Messages per second, and p50 and p99 in microseconds."""


def _pairs(clients: Clients, pairs: Sequence[tuple[Place, Place]], name: str, messages: int, window: int) -> Found:
    """Measure *pairs* of places, each with a separate queue; return the sum of rates and the maximum percentiles.

    The rate of a pair is measured from the first send to the last receipt.
    """
    jobs: list[Job] = []
    for number, ((port, far), (to_port, to_far)) in enumerate(pairs):
        address = f"{name}-{number}"
        jobs.append(Job(False, to_port, address, messages, 256, window, True, far=to_far))
        jobs.append(Job(True, port, address, messages, 256, window, True, far=far))
    came = clients.run_all(jobs)
    receivers, senders = came[::2], came[1::2]
    per_s = sum(
        messages / (receiver.ended_ns - sender.begun_ns) * 1e9
        for receiver, sender in zip(receivers, senders, strict=True)
    )
    p50_us, p99_us = (max(getattr(one.latency, name) for one in receivers) for name in ("p50_us", "p99_us"))
    return per_s, p50_us, p99_us


def _shared(clients: Clients, places: Sequence[Place], name: str, messages: int, window: int) -> Found:
    """Measure one queue with a sender at the first of *places* and a receiver at each place."""
    sharers = len(places)
    jobs = [
        Job(False, port, name, messages, 256, window, True, work=receive_share, far=far, sharers=sharers)
        for port, far in places
    ]
    port, far = places[0]
    *receivers, sender = clients.run_all([*jobs, Job(True, port, name, messages + sharers, 256, window, True, far=far)])
    check_shares(receivers, messages)
    per_s = messages / (max(one.ended_ns for one in receivers) - sender.begun_ns) * 1e9
    p50_us, p99_us = (max(getattr(one.latency, name) for one in receivers) for name in ("p50_us", "p99_us"))
    return per_s, p50_us, p99_us


def _rates(path: Path, members: Members, rounds: int, round_s: float) -> list[Row]:
    """Measure all kinds in turns; the rates of several pairs are added."""
    names = (f"b{number}" for number in count())
    found: dict[tuple[str, int], list[Found]] = {}
    one_of = ("--cluster-name", "bench", "--cluster-size", "1")
    with (
        Broker(os.path.join(path, "one"), *one_of) as one,
        Broker(os.path.join(path, "none")) as none,
        Clients(2 * len(NODES)) as clients,
    ):
        at: dict[str, Place] = {"none": (none.port, None), "one": (one.port, None)}
        root = str(members.lab.directory.parent)
        first, second, third = ((PORT, Far(members.lab.name, root, node)) for node in NODES)
        kinds: dict[str, list[tuple[Place, Place]]] = {
            "none": [(at["none"], at["none"])],
            "one": [(at["one"], at["one"])],
            "passive": [(first, first)],
            "elsewhere": [(first, second)],
            "active": [(first, first), (second, second), (third, third)],
        }
        for kind, window in [(kind, window) for window in WINDOWS for kind in KINDS] * rounds:
            if kind == "shared":
                messages = max(6, round(_GUESS_PER_S[window] * round_s))
                came = _shared(clients, (first, second, third), next(names), messages, window)
            else:
                pairs = kinds[kind]
                messages = max(6, round(_GUESS_PER_S[window] * round_s / len(pairs)))
                came = _pairs(clients, pairs, next(names), messages, window)
            found.setdefault((kind, window), []).append(came)
    return rows_in_flight(SECTION, KINDS, _GUESS_PER_S, found, goals=GOALS)


def _fail_over(members: Members) -> float:
    """Return the seconds from the machine failure of the first member until another member confirms a message."""
    first, second = members.all[1], members.all[2]
    sender = second.connect().create_sender("fail-over")
    sender.send(Message(body="before", durable=True), timeout=PATIENCE_S)
    begun_s = time.monotonic()
    first.process.kill()
    members.lab.kill(1)
    sender.send(Message(body="after", durable=True), timeout=PATIENCE_S)
    took_s = time.monotonic() - begun_s
    sender.connection.close()
    first.process.wait()
    members.lab.start(1)
    members.lab.wait_complete()
    members.start(1)
    return took_s


def _join(members: Members, messages: int) -> float:
    """Return the seconds until a restarted member has received *messages* messages and serves."""
    third, first = members.all.pop(3), members.all[1]
    third.end()
    fill = [
        sys.executable, "-c", MAIN, "perftest", "--base-name", "join", "--count", str(messages), "--size", "256",
        "--durable", "yes", "--nsubs", "0", "--processes", "1", "--json", "--timeout", "60", "--url", first.url,
    ]  # fmt: skip
    filled = subprocess.run(members.lab.command(1, fill), capture_output=True, text=True, check=False)
    if filled.returncode:
        raise BenchError(f"perftest: {filled.stderr[-1000:]}{filled.stdout[-1000:]}")
    stopped = threading.Event()
    connection = first.connect()
    sender = connection.create_sender("steady")

    def go_on() -> None:
        while not stopped.wait(1 / STEADY_PER_S):
            sender.send(Message(body="x" * 256, durable=True), timeout=PATIENCE_S)

    traffic = threading.Thread(target=go_on)
    traffic.start()
    try:
        members.all[3] = Member(members.lab, 3, members.path)
        wait(lambda: members.all[3].figures().get("cluster_synced") is not None, "it has started")
        begun_s = time.monotonic()
        wait(lambda: members.all[3].serves, "the newcomer serves")
        return time.monotonic() - begun_s
    finally:
        stopped.set()
        traffic.join()
        connection.close()


def measure(path: str, rounds: int, round_s: float, backlog: int) -> list[Row]:
    """Return the rows of the cluster, or no rows if a lab cannot be created."""
    if unavailable_reason():
        return []
    with three(Path(path)) as members:
        rows = _rates(Path(path), members, rounds, round_s)
        over_s = [_fail_over(members) for _ in range(min(rounds, 3))]
        join_s = _join(members, backlog)
    told = f"{min(over_s):.2f} to {max(over_s):.2f} s; corosync's part of it is {DETECTION_S:.2f} s"
    overs = [1 / each for each in over_s]
    rows.append(row(TIMES, "fail-overs", overs, _GUESS_OVER_PER_S, "", overs, note=told))
    per_s = [backlog / join_s]
    note = f"{backlog:,} messages in {join_s:.1f} s beside {STEADY_PER_S} a second"
    rows.append(row(TIMES, "join: messages", per_s, _GUESS_JOIN_PER_S, "", per_s, note=note))
    return rows


def left_out() -> list[str]:
    """Return a remark with the reason if the cluster cannot be measured on this machine."""
    reason = unavailable_reason()
    return [f"three members are left out: {reason}"] if reason else []
