"""Contents of export targets, read with the library of each format, and the expected contents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from sqlalchemy import URL

from cairnmq.analytics.views.journal import Journal, open_journal
from cairnmq.analytics.views.records import DEFAULT, ReadOptions
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.embedded.library import open_store
from tests.harness.columns.contents import content

if TYPE_CHECKING:
    from pyiceberg.table import Table

KINDS = ("parquet", "delta", "iceberg")
SMALL = 16 << 10
OPTIONS = StoreOptions(container_bytes=SMALL, min_container_bytes=SMALL, reserve_bytes=4 * SMALL)
QUEUES = ("orders", "eu/orders", "a=b ü%", "..", "17", "long" * 70)
Row = dict[str, Any]


def fill(path: Path, messages: int, archive: Path | None = None) -> None:
    """Pass messages through queues with unusual names; leave some on the queues."""
    options = StoreOptions(**{**vars(OPTIONS), "archive_dir": str(archive) if archive else None})
    with open_store(str(path), options=options) as store:
        queues = [store.queue(name) for name in QUEUES]
        for number in range(0, messages, 20):
            queue = queues[number // 20 % len(queues)]
            queue.put_all([content(b"%06d" % at * 5) for at in range(number, number + 20)]).result()
            taken = [message for _ in range(17) if (message := queue.take()) is not None]
            queue.accept(taken).result()


def iceberg(target: Path) -> Table:
    from pyiceberg.catalog.sql import SqlCatalog  # here: it takes 0.6 s, and all test processes import this module

    uri = URL.create("sqlite", database=f"{target}/catalog.sqlite").render_as_string()
    catalog = SqlCatalog("cairnmq", uri=uri, warehouse=f"file://{target}")
    return catalog.load_table("cairnmq.records")


def table_in(target: Path, kind: str) -> pa.Table:
    if kind == "delta":
        return DeltaTable(target).to_pyarrow_table()
    if kind == "iceberg":
        return iceberg(target).scan().to_arrow()
    return ds.dataset(target, partitioning=ds.partitioning(
        pa.schema([("day", pa.date32()), ("queue", pa.string())]), flavor="hive")
    ).to_table()  # fmt: skip


def rows_in(target: Path, kind: str, columns: tuple[str, ...] = DEFAULT) -> list[Row]:
    """Return the rows of a target in LSN order, duplicates included."""
    found = table_in(target, kind).sort_by("lsn")
    if "day" in found.schema.names:
        assert found["day"].to_pylist() == [time.date() for time in found["time"].to_pylist()]
    rows: list[Row] = found.select(list(columns)).to_pylist()
    return rows


def expected(journal: Journal, columns: tuple[str, ...] = DEFAULT) -> list[Row]:
    """Return the rows of *journal*, with queue names as exports write them."""
    some = dict.fromkeys((*columns, "queue_id"))
    batches = journal.records(ReadOptions(verify=True), list(some))
    rows = [row for batch in batches for row in batch.to_pylist()]
    for row in rows:
        if row["queue_id"] and "queue" in row:
            name = row["queue"]
            row["queue"] = name if name and len(name) < 240 else f"$queue-{row['queue_id']}"
    return [{name: row[name] for name in columns} for row in rows]


def all_of(store: Path, archive: Path) -> list[Row]:
    return expected(open_journal(str(store), archive=str(archive)))
