"""Benchmarks of the cost of checkpoints and compaction for the traffic of a store with its threads.

Batches of messages are enqueued, and as many older messages are dequeued, with several batches in flight. A settlement
lasts from the enqueue to the durability notice. *plain* dequeues messages in order without a checkpoint; *checkpoints*
is the same traffic with a checkpoint every few MiB; *stragglers* keeps one message in a hundred for a long time, so
that the log does not shrink without compaction. Each kind has a separate store, and the kinds take turns.
"""

from __future__ import annotations

import os
import random
import time
from collections import deque
from statistics import median, quantiles

from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.journaled.metrics import measure as figures_of

from .running import Running, now_us
from .table import Row, row

_BATCH = 64
_IN_FLIGHT = 4
BACKLOG = 10_000
_STRAGGLERS = 4_000
_CHECKPOINT_BYTES = 16 << 20
P99_GOAL = 1 / 1.2
"""Goal: checkpoints increase the p99 to at most 1.2 times its value without checkpoints."""
SECTION = "store under load, 256 B, batches of 64"


class Traffic:
    """A continuous load of one kind on a separate store."""

    def __init__(self, path: str, *, checkpoint_bytes: int, stragglers_percent: int, backlog: int) -> None:
        self._running = Running(path, StoreOptions(initial_containers=8, checkpoint_bytes=checkpoint_bytes))
        self._percent = stragglers_percent
        self._random = random.Random(1)
        self._contents = [os.urandom(256) for _ in range(_BATCH)]
        self._here: deque[int] = deque()
        self._left: deque[int] = deque()
        self._flying: deque[tuple[float, int]] = deque()
        self._backlog = backlog
        while len(self._here) < backlog:
            self._put()
        while self._flying:
            self._land()
        self.rates: list[float] = []
        self.p50_us: list[float] = []
        self.p99_us: list[float] = []

    def run(self, round_s: float) -> None:
        """Run a round until all batches are settled."""
        begun_s = time.perf_counter()
        took_us: list[float] = []
        batches = 0
        while not batches or time.perf_counter() < begun_s + round_s:
            self._take()
            self._put()
            batches += 1
            while len(self._flying) >= _IN_FLIGHT:
                took_us += self._land()
        while self._flying:
            took_us += self._land()
        self.rates.append(batches * _BATCH / (time.perf_counter() - begun_s))
        self.p50_us.append(median(took_us))
        self.p99_us.append(quantiles([*took_us, max(took_us)], n=100)[-1])

    def note(self) -> str:
        """Return a text with metrics of the store."""
        found = figures_of(self._running.store)
        return (
            f"log {found.used_bytes / max(1, found.live_bytes):.1f} x live bytes of {found.live_bytes / 1e6:.1f} MB, "
            f"write amplification {found.write_amplification:.2f}, {found.emptied_slots} slots emptied, "
            f"{found.checkpoints} checkpoints"
        )

    def close(self) -> None:
        self._running.close()

    def _put(self) -> None:
        running = self._running
        begun_s = time.perf_counter()
        ids, lsn = running.store.put_all(running.queue_id, self._contents, now_us())
        running.store.kick()
        self._here.extend(ids)
        self._flying.append((begun_s, lsn))

    def _take(self) -> None:
        dequeue, queue_id, time_us = self._running.store.dequeue, self._running.queue_id, now_us()
        while len(self._here) > self._backlog:
            message_id = self._here.popleft()
            if self._percent and self._random.randrange(100) < self._percent:
                self._left.append(message_id)
            else:
                dequeue(message_id, queue_id, time_us)
        while len(self._left) > _STRAGGLERS:
            dequeue(self._left.popleft(), queue_id, time_us)

    def _land(self) -> list[float]:
        """Wait for a durability notice; return the settlement times of its batches in microseconds."""
        durable_lsn = self._running.hear()
        now_s = time.perf_counter()
        took_us = []
        while self._flying and self._flying[0][1] < durable_lsn:
            took_us.append((now_s - self._flying.popleft()[0]) * 1e6)
        return took_us


def measure(path: str, rounds: int, round_s: float, backlog: int) -> list[Row]:
    os.mkdir(path)
    ways = {"plain": (0, 0), "checkpoints": (_CHECKPOINT_BYTES, 0), "stragglers": (0, 1)}
    traffic = {
        name: Traffic(
            os.path.join(path, name), checkpoint_bytes=checkpoint_bytes, stragglers_percent=percent, backlog=backlog
        )
        for name, (checkpoint_bytes, percent) in ways.items()
    }
    try:
        for turn in range(rounds):
            first = turn % len(ways)
            for name in [*ways][first:] + [*ways][:first]:
                traffic[name].run(round_s)
        return _rows(traffic)
    finally:
        for one in traffic.values():
            one.close()


def _rows(traffic: dict[str, Traffic]) -> list[Row]:
    plain = traffic["plain"]
    rows = []
    for name, found in traffic.items():
        times = {"p50_us": median(found.p50_us), "p99_us": median(found.p99_us)}
        other = "plain" if found is not plain else ""
        rows.append(
            row(SECTION, f"messages, {name}", found.rates, 120_000, other, plain.rates, note=found.note(), **times)
        )
    for name, found in traffic.items():
        if found is not plain:
            slowness, yardstick = ([1e6 / took_us for took_us in one.p99_us] for one in (found, plain))
            goal = P99_GOAL if name == "checkpoints" else None
            what = f"1 / p99 of settlement, {name}"
            rows.append(row(SECTION, what, slowness, 250, "plain", yardstick, goal_ratio=goal))
    return rows
