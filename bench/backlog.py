"""Benchmarks of consuming a deep queue with content on disk, against a queue in memory.

In each round, brokers are filled with the same messages, and a receiver consumes all of them. `memory`: the broker has
enough memory for the queue. `deep`: the memory limit is far smaller, and content is read ahead from the disk.
`restarted`: as `deep`, after a restart of the broker, which also marks each message as possibly delivered. The files
are in the page cache, as after a short absence of the receiver. Every message is checked.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from itertools import count
from statistics import median

from .broker import Broker
from .client import Clients, Job, Result
from .table import Row, row, show_size

BODY_BYTES = 256
CREDIT = 1000
LIMITS = {"memory": "4G", "deep": "1M", "restarted": "1M"}
GUESSES_PER_S = {"memory": 1e6 / 6, "deep": 1e6 / 8, "restarted": 1e6 / 9}
"""Guess: CPU time of the broker per message of 6 us for delivery, 2 us for reading from disk, and 1 us for marking."""
GOAL_RATIO = 0.70


def measure(path: str, rounds: int, round_s: float) -> list[Row]:
    """Measure all kinds, each for about *round_s* per round, on brokers whose stores are in *path*."""
    messages = max(10, round(GUESSES_PER_S["memory"] * round_s))
    rates: dict[str, list[float]] = {kind: [] for kind in LIMITS}
    broker_us: dict[str, list[float]] = {kind: [] for kind in LIMITS}
    client_us: dict[str, list[float]] = {kind: [] for kind in LIMITS}
    numbers = count()
    with Clients() as clients:
        for kind in tuple(LIMITS) * rounds:
            place = os.path.join(path, str(next(numbers)))
            start = partial(Broker, place, "--memory-limit", LIMITS[kind])
            result, broker_s = _consume(clients, start, kind, messages)
            shutil.rmtree(place)
            rates[kind].append(messages / (result.ended_ns - result.begun_ns) * 1e9)
            broker_us[kind].append(broker_s / messages * 1e6)
            client_us[kind].append(result.cpu_s / messages * 1e6)
    return [
        row(
            "deep queue, consumed",
            f"{show_size(BODY_BYTES)}, {messages:,} messages: {kind}",
            rates[kind],
            GUESSES_PER_S[kind],
            "" if kind == "memory" else "memory",
            rates["memory"],
            goal_ratio=None if kind == "memory" else GOAL_RATIO,
            broker_cpu_us=median(broker_us[kind]),
            client_cpu_us=median(client_us[kind]),
        )
        for kind in LIMITS
    ]


def _consume(clients: Clients, start: Callable[[], Broker], kind: str, messages: int) -> tuple[Result, float]:
    """Fill and consume a queue; return the result of the receiver and the CPU time of the broker for consuming."""
    broker = start()
    with broker:
        clients.run_one(Job(True, broker.port, "deep", messages, BODY_BYTES, CREDIT, True))
        if kind != "restarted":
            return _take(clients, broker, Job(False, broker.port, "deep", messages, BODY_BYTES, CREDIT, True))
    broker = start()
    with broker:
        return _take(clients, broker, Job(False, broker.port, "deep", messages, BODY_BYTES, CREDIT, True, True))


def _take(clients: Clients, broker: Broker, job: Job) -> tuple[Result, float]:
    before_s = broker.cpu_s()
    result = clients.run_one(job)
    return result, broker.cpu_s() - before_s
