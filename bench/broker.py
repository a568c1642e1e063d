"""Benchmarks of a broker process (`cairnmq broker`) on a new store, with the load client on loopback.

One sender and one receiver run at the same time, and every message is confirmed. *accepted* counts messages between the
first send and the last settlement, and measures each from sent to settled; *received* counts messages between the first
send and the last receipt, and measures each from sent to received. The yardstick is the client alone in the same round,
with its sender connected to its receiver, and shows how far the client is from limiting the rate of the broker.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from itertools import count, product
from statistics import median
from types import TracebackType
from typing import NamedTuple, Self

from .client import Clients, Result
from .table import BenchError, Row, row, show_size

STOPPED_S = 30.0
MAIN = "from cairnmq.cli.main import main; main()"


class Load(NamedTuple):
    """A load: kind and size of the messages, and the number in flight."""

    kind: str
    """Kind of load: "durable", "transient", or "client alone" without a broker."""
    body_bytes: int
    window: int

    @property
    def guess_per_s(self) -> float:
        """Return a guess from the CPU time of the busier side per message, and a round trip per window.

        A durable message takes 10 us of CPU, a transient one 8, the client alone 3; each KiB costs 1 us more. A round
        trip takes 450 us with a sync and the threads it wakes, 150 us without, 100 us without a broker.
        """
        cpu_us, trip_us = {"durable": (10, 450), "transient": (8, 150), "client alone": (3, 100)}[self.kind]
        return 1e6 / (cpu_us + self.body_bytes / 1024 + trip_us / self.window)

    @property
    def what(self) -> str:
        return f"{show_size(self.body_bytes)}, {self.window} in flight"

    @property
    def alone(self) -> Load:
        """Return the yardstick: this load without a broker."""
        return self._replace(kind="client alone")


LOADS = tuple(
    Load(kind, body_bytes, window)
    for body_bytes, window, kind in product(
        (256, 1024, 16384), (1, 100, 1000), ("client alone", "durable", "transient")
    )
)
GOALS_PER_S = {Load("durable", 256, 100): 20_600, Load("durable", 256, 1000): 30_000}


class Broker:
    """A running broker process."""

    def __init__(self, directory: str, *options: str) -> None:
        os.makedirs(directory, exist_ok=True)
        self._log_path = os.path.join(directory, "log")
        store = os.path.join(directory, "store")
        command = [sys.executable, "-c", MAIN, "broker", "--port", "0", "--store-dir", store, *options]
        with open(self._log_path, "w") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        first = self._process.stdout.readline()
        if "listening on " not in first:
            self._process.kill()
            self._process.wait()
            raise BenchError(f"the broker did not start: {first}{self._log()}")
        self.port = int(first.rpartition(":")[2])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.communicate(timeout=STOPPED_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.returncode and error is None:
            raise BenchError(f"the broker ended with status {self._process.returncode}: {self._log()}")

    def cpu_s(self) -> float:
        """Return the CPU time that the broker has used so far, in all threads."""
        return cpu_s_of(self._process.pid)

    def resident_bytes(self) -> int:
        """Return the resident memory of the broker."""
        with open(f"/proc/{self._process.pid}/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS"))

    @property
    def pid(self) -> int:
        return self._process.pid

    def reset_peak(self) -> None:
        """Reset the peak of the resident memory."""
        with open(f"/proc/{self._process.pid}/clear_refs", "w") as peaks:
            peaks.write("5")

    def peak_bytes(self) -> int:
        """Return the peak of the resident memory since the last reset."""
        with open(f"/proc/{self._process.pid}/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))

    def _log(self) -> str:
        with open(self._log_path) as log:
            return log.read()[-2000:]


def cpu_s_of(pid: int) -> float:
    """Return the CPU time that a process has used so far, in all threads."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Rounds:
    """The measurements of one client under one load, one entry per round."""

    per_s: list[float] = field(default_factory=list)
    p50_us: list[float] = field(default_factory=list)
    p99_us: list[float] = field(default_factory=list)
    p999_us: list[float] = field(default_factory=list)
    client_us: list[float] = field(default_factory=list)
    broker_us: list[float] = field(default_factory=list)

    def add(self, messages: int, begun_ns: int, result: Result, broker_s: float) -> None:
        self.per_s.append(messages / (result.ended_ns - begun_ns) * 1e9)
        self.p50_us.append(result.latency.p50_us)
        self.p99_us.append(result.latency.p99_us)
        self.p999_us.append(result.latency.p999_us)
        self.client_us.append(result.cpu_s / messages * 1e6)
        self.broker_us.append(broker_s / messages * 1e6)


def measure(path: str, rounds: int, round_s: float) -> list[Row]:
    """Measure all loads, each for about *round_s* per round, on one broker whose store is in *path*."""
    queue_names = (f"bench-{number}" for number in count())
    accepted = {load: Rounds() for load in LOADS}
    received = {load: Rounds() for load in LOADS}
    with Broker(path) as broker, Clients() as clients:
        clients.run(broker.port, next(queue_names), 1000, 256, 100, durable=True)  # warm-up
        for load in LOADS * rounds:
            port = broker.port if load.kind != "client alone" else 0
            messages = max(2, round(load.guess_per_s * round_s))
            before_s = broker.cpu_s()
            sender, receiver = clients.run(
                port, next(queue_names), messages, load.body_bytes, load.window, durable=load.kind == "durable"
            )
            broker_s = broker.cpu_s() - before_s
            accepted[load].add(messages, sender.begun_ns, sender, broker_s)
            received[load].add(messages, sender.begun_ns, receiver, broker_s)
    return [
        _row(load, name, found[load], found[load.alone])
        for load in sorted(LOADS, key=lambda load: ("durable", "transient", "client alone").index(load.kind))
        for name, found in (("accepted", accepted), ("received", received))
    ]


def _row(load: Load, name: str, found: Rounds, alone: Rounds) -> Row:
    with_broker = load != load.alone
    return row(
        f"broker, {load.kind}" if with_broker else "client alone, no broker",
        f"{load.what}: {name}",
        found.per_s,
        load.guess_per_s,
        "alone" if with_broker else "",
        alone.per_s,
        goal_per_s=GOALS_PER_S.get(load) if name == "received" else None,
        p50_us=median(found.p50_us),
        p99_us=median(found.p99_us),
        p999_us=median(found.p999_us),
        broker_cpu_us=median(found.broker_us) if with_broker else None,
        client_cpu_us=median(found.client_us),
    )
