"""Benchmarks of offline tools that verify a store, report its space from record headers, and dump it as JSON.

A store is filled once, every second batch of its messages is dequeued, and the store is closed; its files are in the
page cache. Rates are MB of journal per second of CPU time, as the machine may be busy; the check of the checkpoint,
which verify runs in another process, is excluded. The yardstick reads the same files and checksums every byte.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from crc32c import crc32c

from cairnmq.base.clock import SystemClock
from cairnmq.recovery.recover import open_store
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.contract.wiring_rows import QueueRow
from cairnmq.tools.explain.stat import stat_store
from cairnmq.tools.inspect.dump import Totals, dump
from cairnmq.tools.inspect.evidence import open_evidence
from cairnmq.tools.inspect.lines import JsonLines
from cairnmq.tools.inspect.row_filter import RowFilter
from cairnmq.tools.verify.store_check import verify_store
from cairnmq.tools.verify.verdicts import VerifyReport

from .running import now_us
from .table import BenchError, Row, row, show_size

SECTION = "questions to a store, MB of journal per second of CPU"
DUMP = "dump --json, records per second of CPU"
SIZES = (1 << 10, 16 << 10)
_GUESSES = {"verify": 1000, "stat": 3000}
_GOAL_VERIFY_PER_S = 1000
_GOAL_DUMP_PER_S, _GUESS_DUMP_PER_S = 300_000, 400_000
_BATCH = 50
_CHUNK_BYTES = 1 << 20


def measure(path: str, rounds: int, total_bytes: int) -> list[Row]:
    os.mkdir(path)
    rows = []
    for size_bytes in SIZES:
        store = os.path.join(path, str(size_bytes))
        _fill(store, size_bytes, max(_BATCH, total_bytes // size_bytes))
        rates: dict[str, list[float]] = {"verify": [], "stat": [], "read": []}
        dumps: list[float] = []
        reads: list[float] = []
        read_share = 0.0
        for _ in range(rounds):
            journal_bytes = 0
            report = VerifyReport(store)
            took_s = _cpu_s(lambda report=report: verify_store(report, _ignore))  # type: ignore[misc]
            if report.exit_status or not report.records:
                raise BenchError(f"{report.verdicts[:3]}")
            journal_bytes = report.bytes
            rates["verify"].append(journal_bytes / took_s / 1e6)
            begun_s = time.process_time()
            log = stat_store(store, _ignore).log
            rates["stat"].append(journal_bytes / max(1e-9, time.process_time() - begun_s) / 1e6)
            read_share = float(str(log["read_bytes"])) / journal_bytes
            read_s = _cpu_s(lambda: _read_all(store))  # noqa: B023
            rates["read"].append(journal_bytes / read_s / 1e6)
            begun_s = time.process_time()
            records = _dump(store)
            dumps.append(records / max(1e-9, time.process_time() - begun_s))
            reads.append(records / read_s)
        for what in ("verify", "stat"):
            rows.append(row(
                SECTION, f"{what}, {show_size(size_bytes)}", rates[what], _GUESSES[what], "read + crc32c",
                rates["read"], goal_per_s=_GOAL_VERIFY_PER_S if what == "verify" else None,
                note="" if what == "verify" else f"{read_share:.1%} of the log was read",
            ))  # fmt: skip
        if size_bytes == SIZES[0]:
            rows.append(row(
                DUMP, f"dump --json, {show_size(size_bytes)}", dumps, _GUESS_DUMP_PER_S, "read + crc32c", reads,
                goal_per_s=_GOAL_DUMP_PER_S,
            ))  # fmt: skip
    return rows


def _dump(path: str) -> int:
    """Dump the records of a store as lines, discard the lines, and return the number of records."""
    totals = Totals()
    with open(os.devnull, "w") as nowhere:
        dump(open_evidence([path]), RowFilter(), JsonLines({}), nowhere.write, totals)
    if totals.findings:
        raise BenchError(f"{totals.findings[:3]}")
    return totals.shown


def _fill(path: str, size_bytes: int, messages: int) -> None:
    store, _ = open_store(path, SystemClock(), StoreOptions(max_write_buffers=0))
    made: list[QueueRow | Exception] = []
    store.create_queue("bench", made.append)
    [queue] = made
    assert isinstance(queue, QueueRow)
    store.run_inline(store.became_durable)
    content = os.urandom(size_bytes)
    for number in range(0, messages, _BATCH):
        ids, _ = store.put_all(queue.id, [content] * _BATCH, now_us())
        if number % (2 * _BATCH):
            store.dequeue_all(list(ids), queue.id, now_us())
        if number % (32 * _BATCH) == 0:
            store.kick()
    store.close()


def _cpu_s(action: Callable[[], object]) -> float:
    begun_s = time.process_time()
    action()
    return max(1e-9, time.process_time() - begun_s)


def _read_all(store: str) -> int:
    journal, found = os.path.join(store, "journal"), 0
    for name in os.listdir(journal):
        with open(os.path.join(journal, name), "rb", buffering=0) as file:
            while data := file.read(_CHUNK_BYTES):
                found ^= crc32c(data)
    return found


def _ignore(what: str, done: int, total: int) -> None:
    pass
