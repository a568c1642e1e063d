"""Command `python -m bench.spark`: the CPU time of Spark for reading a journal, over the complete process tree.

A journal is created first. All ways to read the journal, and each job of `cairnmq analyze`, then run in turns in one
session on two cores with the configuration of that command. The first round, in which Java compiles code, is not
counted, and the page cache is warm. Yardsticks are implementations without the data source, with `binaryFile` and
`mapInArrow`, and with numpy over the record headers or struct.unpack for each record.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from statistics import median

import click
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from cairnmq.analytics.jobs.job_run import answer, conf_for
from cairnmq.analytics.jobs.table import JOBS, Job
from cairnmq.analytics.jobs.views import Views
from cairnmq.analytics.sidecars.keeper import SidecarKeeper
from cairnmq.analytics.spark.session import journal, session
from cairnmq.analytics.views.journal import open_journal
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.embedded.library import open_store

from .cpu import CpuClock

_MASTER = "local[2]"
_PAYLOAD_BYTES = 237
_AT_ONCE = 5000
_FIELDS = {
    "lsn": "long", "type": "int", "flags": "int", "size": "int", "message_id": "long", "queue_id": "long",
    "txn_id": "long", "time_us": "long", "extra": "long",
}  # fmt: skip
_COLUMNS = ", ".join(f"{name} {kind}" for name, kind in _FIELDS.items())
GOALS = {"count": 1.5, "count, verify=full": 2.5, "count, from sidecars": 0.7, "analyze lifetimes": 4}
"""Maximum CPU seconds per GiB."""


def make(path: str, size_bytes: int) -> int:
    """Create a journal of about *size_bytes* with messages of 237 bytes, a fourth of which are accepted.

    Return the size of the journal without reclaimed containers.
    """
    with open_store(path, options=StoreOptions(checkpoint_bytes=0)) as store:
        queue = store.queue("orders")
        while store.inner.next_lsn * 3 // 4 < size_bytes:  # the oldest fourth is reclaimed
            queue.put_all([bytes(_PAYLOAD_BYTES)] * _AT_ONCE)
            queue.put_all([bytes(_PAYLOAD_BYTES)] * _AT_ONCE).result()
            queue.accept([message for _ in range(_AT_ONCE // 2) if (message := queue.take()) is not None])
    log = open_journal(path).log
    return len(log.pieces) * log.container_bytes


def _by_numpy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import numpy as np

    from cairnmq.journal.format.block import BadBlock, peek
    from cairnmq.journal.format.record import TABLE

    fields = ("type", "flags", "size", "message_id", "queue_id", "txn_id", "time_us", "extra")
    kinds = {"type": np.int32, "flags": np.int32, "size": np.int32}
    for batch in batches:
        for content in batch["content"]:
            view = memoryview(content.as_buffer())
            slot_lsn = int.from_bytes(view[48:56], "little")
            log_id = int.from_bytes(view[16:24], "little")
            at = 512
            try:
                while at < len(view):
                    head = peek(view[at:], slot_lsn + at, log_id)
                    heads = np.frombuffer(view, TABLE, head.records, at + 64)
                    lsns = np.arange(head.records, dtype=np.int64) * 64 + head.lsn + 64
                    arrays = [lsns, *(heads[name].astype(kinds.get(name, np.int64)) for name in fields)]
                    yield pa.RecordBatch.from_arrays([pa.array(one) for one in arrays], names=["lsn", *fields])
                    at += -(-head.size_bytes // 512) * 512
            except BadBlock:
                pass


def _by_struct(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from cairnmq.journal.format.block import BadBlock, peek
    from cairnmq.journal.format.record import HEAD

    names = [*_FIELDS]
    kinds = [pa.int32() if kind == "int" else pa.int64() for kind in _FIELDS.values()]
    for batch in batches:
        for content in batch["content"]:
            view = memoryview(content.as_buffer())
            slot_lsn = int.from_bytes(view[48:56], "little")
            log_id = int.from_bytes(view[16:24], "little")
            at = 512
            rows: list[tuple[int, ...]] = []
            try:
                while at < len(view):
                    head = peek(view[at:], slot_lsn + at, log_id)
                    for number in range(head.records):
                        place = at + 64 + 64 * number
                        kind, flags, _, _, size, _, _, message, queue, txn, when, extra = HEAD.unpack_from(view, place)
                        rows.append((slot_lsn + place, kind, flags, size, message, queue, txn, when, extra))
                    at += -(-head.size_bytes // 512) * 512
            except BadBlock:
                pass
            if rows:
                columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, names=names)


def beside(path: str, directory: str) -> None:
    """Write column indexes of all sealed containers to *directory*."""
    keeper = SidecarKeeper(path, directory, None, 1 << 40)
    keeper.step()
    keeper.close()


def _ways(spark: SparkSession, path: str, target: str, sidecars: str) -> dict[str, Callable[[], object]]:
    nine = "lsn,type,flags,size,message_id,queue_id,txn_id,time,extra"

    def write(frame: DataFrame) -> None:
        frame.write.mode("overwrite").parquet(target)

    def files() -> DataFrame:
        return spark.read.format("binaryFile").load(f"{path}/journal/*.cairn").select("content")

    return {
        "count": lambda: journal(spark, path, columns=nine).count(),
        "count, verify=full": lambda: journal(spark, path, columns=nine, verify="full").count(),
        "count, one column": lambda: journal(spark, path, columns="lsn").count(),
        "count, from sidecars": lambda: journal(spark, path, columns=nine, sidecarDir=sidecars).count(),
        "records to Parquet": lambda: write(journal(spark, path, columns=nine)),
        "messages, count": lambda: journal(spark, path, view="messages").count(),
        "places, count": lambda: journal(spark, path, view="places").count(),
        "queues": lambda: journal(spark, path, view="queues").collect(),
        "count, binaryFile + mapInArrow": lambda: files().mapInArrow(_by_numpy, _COLUMNS).count(),
        "count, struct.unpack per record": lambda: files().mapInArrow(_by_struct, _COLUMNS).count(),
    }


def _jobs(spark: SparkSession, path: str) -> dict[str, Callable[[], object]]:
    def run(job: Job) -> None:
        with closing(Views(spark, path)) as views:
            answer(job, views)

    return {f"analyze {job.name}": partial(run, job) for job in JOBS.values() if not job.needs}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--mib", default=1024, show_default=True, type=click.IntRange(1), help="Of the journal.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--dir", "directory", type=click.Path(file_okay=False, exists=True), help="Where to write.")
@click.option("--only", multiple=True, help="What has this in its name; can be repeated.")
@click.option("--memory", default="4g", show_default=True, help="Of Spark's process.")
def main(mib: int, rounds: int, directory: str | None, only: tuple[str, ...], memory: str) -> None:
    """Measure the data source."""
    place = tempfile.mkdtemp(prefix="cairnmq-bench-", dir=directory)
    try:
        path = os.path.join(place, "store")
        gib = make(path, mib << 20) / (1 << 30)
        sidecars = os.path.join(place, "sidecars")
        beside(path, sidecars)
        spark = session(_MASTER, "bench", conf_for(_MASTER) | {"spark.driver.memory": memory})
        ways = _ways(spark, path, os.path.join(place, "parquet"), sidecars) | _jobs(spark, path)
        ways = {name: way for name, way in ways.items() if not only or any(part in name for part in only)}
        records = journal(spark, path, columns="lsn").count()
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        with CpuClock() as clock:
            for number in range(rounds + 1):
                for name, way in ways.items():
                    click.echo(f"round {number} of {rounds}: {name}", err=True)  # all rounds can take an hour
                    begun, begun_cpu = time.perf_counter(), clock.cpu_s()
                    way()
                    if number:
                        taken[name].append((clock.cpu_s() - begun_cpu, time.perf_counter() - begun))
        spark.stop()
        Console(width=100).print(_table(taken, gib, records))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _table(taken: dict[str, list[tuple[float, float]]], gib: float, records: int) -> Table:
    table = Table(title=f"{gib:.2f} GiB, {records:,} records, {_MASTER}; medians")
    for title in ("", "CPU s", "CPU s/GiB", "goal", "wall s", "M records per CPU s"):
        table.add_column(title, justify="left" if not title else "right")
    for name, figures in taken.items():
        cpu, wall = (median(one[at] for one in figures) for at in (0, 1))
        goal = f"{GOALS[name]}" if name in GOALS else ""
        rate = records / cpu / 1e6
        table.add_row(name, f"{cpu:.2f}", f"{cpu / gib:.2f}", goal, f"{wall:.2f}", f"{rate:.2f}")
    return table


if __name__ == "__main__":
    main()
