"""Benchmarks of passthrough routing by an anycast address against a durable queue, with the client of `broker`.

One sender and one receiver; messages of 256 B, each accepted by the receiver. The two kinds use separate brokers,
because passthrough addresses reduce the session window.
"""

from __future__ import annotations

import os
from itertools import count
from statistics import median

from .broker import Broker
from .client import Clients
from .table import Row, row

SECTION = "forwarding, 256 B: received"
WINDOWS = (1, 100, 1000)
_GUESS_PER_S = {1: 3_000, 100: 35_000, 1000: 50_000}


def measure(path: str, rounds: int, round_s: float) -> list[Row]:
    """Measure the address, the queue, and the client alone in each round."""
    names = count()
    found: dict[tuple[str, int], list[tuple[float, ...]]] = {}
    with (
        Broker(os.path.join(path, "direct"), "--anycast", "bench-*") as direct,
        Broker(os.path.join(path, "queues")) as queues,
        Clients() as clients,
    ):
        for kind, window in [(kind, window) for window in WINDOWS for kind in ("direct", "durable", "alone")] * rounds:
            broker = queues if kind == "durable" else direct
            port = 0 if kind == "alone" else broker.port
            messages = max(2, round(_GUESS_PER_S[window] * round_s))
            before_s = broker.cpu_s()
            sender, receiver = clients.run(
                port, f"bench-{next(names)}", messages, 256, window, durable=kind == "durable"
            )
            per_s = messages / (receiver.ended_ns - sender.begun_ns) * 1e9
            cpu_us = (broker.cpu_s() - before_s) / messages * 1e6
            latency = receiver.latency
            client_us = receiver.cpu_s / messages * 1e6
            found.setdefault((kind, window), []).append((per_s, latency.p50_us, latency.p99_us, cpu_us, client_us))
    return [
        row(
            SECTION,
            f"{window} in flight",
            [one[0] for one in found["direct", window]],
            _GUESS_PER_S[window],
            yardstick,
            [one[0] for one in found[kind, window]],
            p50_us=median(one[1] for one in found["direct", window]),
            p99_us=median(one[2] for one in found["direct", window]),
            broker_cpu_us=median(one[3] for one in found["direct", window]),
            client_cpu_us=median(one[4] for one in found["direct", window]),
        )
        for window in WINDOWS
        for kind, yardstick in (("durable", "durable"), ("alone", "alone"))
    ]
