"""A report page of invented answers, with many queues and long names, written without Spark."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pyarrow as pa

from cairnmq.analytics.jobs.report import html_of
from cairnmq.analytics.jobs.table import JOBS
from cairnmq.analytics.scan.files import Log, LogPiece

BEGIN = datetime(2026, 5, 17, 8, tzinfo=UTC)
MIB = 1 << 20


def tables(queues: int, hours: int) -> dict[str, pa.Table]:
    """Return the answers of the jobs that have plots, and of `integrity`."""
    rng = random.Random(queues * 1000 + hours)
    names = ["orders", "<img src=x onerror=alert(1)>", "a-queue-with-a-very-long-name-" + "x" * 80]
    names = [*names, *(f"events.region-{number}" for number in range(queues))][:queues]
    ids = dict(zip(names, range(1, queues + 1), strict=True))
    times = [BEGIN + timedelta(minutes=number) for number in range(hours * 60)] if hours > 1 else [BEGIN]
    each_hour = [BEGIN + timedelta(hours=number) for number in range(hours)]
    depth, flow, lives, left = [], [], [], []
    for name in names:
        on = 0
        for time in times:
            came, went = rng.randint(0, 400 // ids[name] + 2), rng.randint(0, 380 // ids[name] + 2)
            went = min(went, on + came)
            on += came - went
            who = {"queue_id": ids[name], "queue": name, "time": time}
            depth.append({**who, "arrived": came, "left": went, "depth": on, "peak": on + went, "exact": True})
            flow.append({**who, "arrived": came, "arrived_bytes": came * 700, "left": went, "left_bytes": went * 700})
        for hour in each_hour:
            stay = int(10 ** rng.uniform(2, 9.5))
            who = {"queue_id": ids[name], "queue": name, "hour": hour}
            lives.append({**who, "messages": rng.randint(1, 9000), "p50_us": stay, "p90_us": stay * 3,
                          "p99_us": stay * 8, "max_us": stay * 20, "mean_us": stay * 1.5})  # fmt: skip
            left.append({**who, "reason": rng.choice(["expired", "rejected", "moved"]), "messages": rng.randint(1, 500),
                         "bytes": rng.randint(1, MIB), "to_queues": ["dead", "letters"]})  # fmt: skip
    stock = [
        {"queue_id": ids[name], "queue": name, "messages": rng.randint(1, 90_000),
         "bytes": int(10 ** rng.uniform(2, 9)), "oldest_id": rng.randint(640, 10**9), "oldest_time": BEGIN,
         "age_s": 301.626 + hours * 3600,
         "containers": 3, "pinned_bytes": int(10 ** rng.uniform(6, 9.5)), "alone_bytes": MIB}
        for name in names
    ]  # fmt: skip
    live = sorted(rng.random() ** 3 for _ in range(700))
    return {
        "integrity": pa.table({"kind": pa.array([], pa.string())}),
        "backlog": pa.Table.from_pylist(stock),
        "liveness": pa.Table.from_pylist([
            {"container": number * MIB, "file": f"{number:08d}.cairn", "live_records": int(share * 1000),
             "live_bytes": int(share * MIB), "share": share, "messages": int(share * 900)}
            for number, share in enumerate(live)
        ]),
        "space": pa.Table.from_pylist([
            {"hour": hour, "containers": 7, "log_bytes": 7 * MIB, "records": 1000,
             "new_bytes": rng.randint(1, 700 * MIB), "copies": 10, "copied_bytes": rng.randint(1, 100 * MIB),
             "write_amplification": 1.1234567}
            for hour in [*each_hour, None]
        ]),
        "groups": pa.Table.from_pylist([
            {"time": time, "blocks": 10, "records": 80, "bytes": 9000, "records_per_block": rng.uniform(1, 40)}
            for time in times
        ]),
        "depth": pa.Table.from_pylist(depth),
        "lifetimes": pa.Table.from_pylist(lives),
        "throughput": pa.Table.from_pylist(flow),
        "fan-out": pa.table(
            {"queues": [1, 2, 3], "messages": [900, 20, 1], "bytes": [9, 9, 9], "saved_bytes": [0, 9, 18]}
        ),
        "transactions": pa.Table.from_pylist([
            {"kind": kind, "hour": hour, "transactions": 9, "committed": 7, "rolled_back": 1, "prepared": 1, "open": 0,
             "forgotten": 0, "abort_rate": 0.125, "operations": 50, "bytes": 9000, "p50_us": 274_694_405,
             "p99_us": 10**9, "max_us": 10**10}
            for hour in each_hour for kind in ("local", "distributed")
        ]),
        "expiry": pa.Table.from_pylist(left),
    }  # fmt: skip


def write_report(path: Path, queues: int, hours: int) -> None:
    answers = [(JOBS[name], table) for name, table in tables(queues, hours).items()]
    pieces = tuple(LogPiece(f"{number:08d}.cairn", number * MIB, b"", 0, 0, 0, 0, 0, 0, False) for number in range(700))
    log = Log("./data", UUID(int=7), MIB, 0, 700 * MIB, pieces, ())
    with path.open("w", encoding="utf-8") as file:
        file.writelines(html_of(answers, "./data", log, BEGIN + timedelta(hours=hours, minutes=23)))
