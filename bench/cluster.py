"""Benchmarks of a cluster of one against a broker without a cluster, with the client and checks of `broker`.

One sender and one receiver; durable messages of 256 B, each accepted by the receiver.
"""

from __future__ import annotations

import os
from itertools import count

from .broker import Broker
from .client import Clients
from .table import Goal, Row, rows_in_flight

SECTION = "a cluster of one, 256 B: received"
KINDS = ("one", "none")
_GUESS_PER_S = {1: 2_500, 100: 25_000, 1000: 35_000}
WINDOWS = tuple(_GUESS_PER_S)
GOALS = {"one": Goal(0.95)}


def measure(path: str, rounds: int, round_s: float) -> list[Row]:
    """Measure both kinds in turns."""
    names = count()
    found: dict[tuple[str, int], list[tuple[float, ...]]] = {}
    with (
        Broker(os.path.join(path, "one"), "--cluster-name", "bench", "--cluster-size", "1") as one,
        Broker(os.path.join(path, "none")) as none,
        Clients() as clients,
    ):
        for kind, window in [(kind, window) for window in WINDOWS for kind in KINDS] * rounds:
            broker = one if kind == "one" else none
            messages = max(2, round(_GUESS_PER_S[window] * round_s))
            before_s = broker.cpu_s()
            sender, receiver = clients.run(broker.port, f"bench-{next(names)}", messages, 256, window, durable=True)
            per_s = messages / (receiver.ended_ns - sender.begun_ns) * 1e9
            cpu_us = (broker.cpu_s() - before_s) / messages * 1e6
            latency, client_us = receiver.latency, receiver.cpu_s / messages * 1e6
            found.setdefault((kind, window), []).append((per_s, latency.p50_us, latency.p99_us, cpu_us, client_us))
    return rows_in_flight(SECTION, KINDS, _GUESS_PER_S, found, "broker_cpu_us", "client_cpu_us", goals=GOALS)
