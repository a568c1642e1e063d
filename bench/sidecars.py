"""Benchmarks of the cost of column indexes (`cairnmq broker --sidecars`) for the clients of the broker.

Two brokers with small containers, one of them with column indexes, take turns. *taken* has a receiver, so containers
are soon reused, and the process that writes column indexes races with their reuse; *kept* has only a sender, so each
container gets an index. The indexing process is stopped during the turns of the other broker.
"""

from __future__ import annotations

import os
import signal
from itertools import count
from pathlib import Path
from statistics import median

from cairnmq.analytics.sidecars.folder import Folder
from cairnmq.analytics.views.journal import open_journal
from cairnmq.base.errors import CairnError

from .broker import Broker, cpu_s_of
from .client import Clients, Job
from .table import BenchError, Row, row

SECTION = "sidecars, 256 B, 1000 in flight, containers of 512 KiB"
GOAL = 0.97
"""Goal as a fraction of the rate without column indexes."""
TIMES = 8
"""Duration of a turn in rounds, as the indexing process looks for work every two seconds."""
_GUESS_PER_S = 40_000
_CONTAINER = ("--container-size", str(512 << 10))


def measure(path: str, rounds: int, round_s: float) -> list[Row]:
    """Measure both kinds of load, with and without column indexes, in turns."""
    names = count()
    found: dict[tuple[str, bool], list[tuple[float, float, float]]] = {}
    messages = max(2, round(_GUESS_PER_S * round_s * TIMES))
    directory = os.path.join(path, "with")
    with (
        Broker(directory, *_CONTAINER, "--sidecars") as beside,
        Broker(os.path.join(path, "without"), *_CONTAINER) as alone,
        Clients() as clients,
    ):
        keeper = _keeper_of(beside.pid)
        try:
            for number in range(-1, rounds):
                for kind in ("taken", "kept"):
                    for broker in (beside, alone) if number % 2 else (alone, beside):
                        os.kill(keeper, signal.SIGCONT if broker is beside else signal.SIGSTOP)
                        figures = _turn(broker, clients, f"bench-{next(names)}", messages, kind)
                        if number >= 0:
                            found.setdefault((kind, broker is beside), []).append(figures)
        finally:
            os.kill(keeper, signal.SIGCONT)
        note = f"{_made(os.path.join(directory, 'store'))}, by {cpu_s_of(keeper):.1f} s of CPU"
    return [
        row(
            SECTION, kind, [one[0] for one in found[kind, True]], _GUESS_PER_S, "without",
            [one[0] for one in found[kind, False]], goal_ratio=GOAL,
            p99_us=median(one[1] for one in found[kind, True]),
            broker_cpu_us=median(one[2] for one in found[kind, True]), note=note if kind == "kept" else "",
        )
        for kind in ("taken", "kept")
    ]  # fmt: skip


def _turn(broker: Broker, clients: Clients, address: str, messages: int, kind: str) -> tuple[float, float, float]:
    """Run one turn; return messages per second, p99 and the CPU time of the broker per message in microseconds."""
    before_s = broker.cpu_s()
    jobs = [Job(sender, broker.port, address, messages, 256, 1000, True) for sender in (False, True)]
    results = clients.run_all(jobs if kind == "taken" else jobs[1:])
    begun_ns, ended_ns = min(one.begun_ns for one in results), max(one.ended_ns for one in results)
    cpu_us = (broker.cpu_s() - before_s) / messages * 1e6
    return messages / (ended_ns - begun_ns) * 1e9, results[-1].latency.p99_us, cpu_us


def _keeper_of(pid: int) -> int:
    """Return the ID of the process started by the broker that writes column indexes."""
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            if "sidecars.keeper" in Path(f"/proc/{child}/cmdline").read_text():
                return int(child)
    raise BenchError(f"process {pid} has started none that makes sidecars")


def _made(store: str) -> str:
    """Return a text with the numbers of column indexes and of sealed containers."""
    try:
        log = open_journal(store).log
        made = len(Folder(os.path.join(store, "sidecars"), log.uuid).containers)
    except CairnError as error:
        raise BenchError(str(error)) from error
    return f"sidecars of {made} containers of {log.durable_lsn // log.container_bytes}"
