"""Tests that each job prints the same rows as a table, as CSV and as JSON lines."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cairnmq.amqp.codec import sections
from cairnmq.analytics.jobs.job_run import answer, job_named
from cairnmq.analytics.jobs.table import JOBS
from cairnmq.analytics.jobs.views import Views, ViewsRequest
from cairnmq.cli.analyze.analyze import tell
from cairnmq.cli.common import output
from cairnmq.store.contract.dequeue_reason import DequeueReason
from cairnmq.store.embedded.library import open_store


@pytest.fixture(scope="module")
def views(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Views]:
    """Provide views of a store for which every job returns rows."""
    place = tmp_path_factory.mktemp("output")
    with open_store(str(place / "store")) as store:
        orders, letters, lost = (store.queue(name) for name in ("orders, all", 'the "late"', "lost"))
        lost.put(b"on a queue that SQL forgets").result()
        again = sections.properties_section(sections.Properties("pear")) + b"\x00Sw\xa1\x01x"
        ids = orders.put_all([again, again, b"plain", b"late", b"taken"]).result()
        with store.lock:
            late, prepared = (store.inner.transactions.begin(store.now_us(), xid=xid) for xid in (b"", b"\x01\xff"))
            late.dequeue(ids[3], orders.id, store.now_us(), DequeueReason.EXPIRED)
            late.put(letters.id, b"late", store.now_us())
            late.commit(store.now_us())
            prepared.put(orders.id, b"in doubt", store.now_us())
            prepared.dequeue(ids[2], orders.id, store.now_us())
            prepared.prepare(store.now_us())
            store.inner.dequeue(ids[4], orders.id, store.now_us(), DequeueReason.ACCEPTED)
            store.inner.kick()
            end = store.recorded(store.inner.next_lsn - 1, None)
        end.result(60)
    shutil.copytree(place / "store", place / "other")
    with open_store(str(place / "other")) as store:
        store.queue("orders, all").put(b"only there").result()
    with closing(sqlite3.connect(place / "store" / "wiring.sqlite")) as wiring, wiring:
        wiring.execute("delete from queue where name = 'lost'")
    (place / "sent.csv").write_text("message_id\npear\nfig\n")
    asked = ViewsRequest(other=str(place / "other"), producer_log=str(place / "sent.csv"))
    made = Views(spark, str(place / "store"), asked, many=True)
    yield made
    made.close()


@pytest.mark.parametrize("name", JOBS)
def test_a_job_says_the_same_however_it_is_asked(
    views: Views, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = job_named(name)
    table = answer(job, views)
    rows = table.to_pylist()
    assert rows
    as_json, as_csv = io.StringIO(), io.StringIO(newline="")
    tell(job, table, as_json, "json", many=False)
    tell(job, table, as_csv, "csv", many=False)
    found = [json.loads(line) for line in as_json.getvalue().splitlines()]
    assert found == [{key: plain(value) for key, value in row.items()} for row in rows]
    names, *lines = csv.reader(io.StringIO(as_csv.getvalue(), newline=""))
    assert names == table.schema.names
    assert lines == [[cell(value) for value in row.values()] for row in found]
    monkeypatch.setattr(output, "WIDTH_IN_PIPES", 3000)
    tell(job, table, sys.stdout, "table", many=True)
    told = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert told[0] == f"{name}: {job.title}"
    assert told[1].split() == names
    assert len(told) == 2 + len(rows)
    for line, row in zip(told[2:], found, strict=True):
        for value in row.values():
            assert cell(value).replace("T", " ") in line.replace("T", " ")


def plain(value: Any) -> Any:
    """Return *value* as JSON represents it."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value.isoformat() if isinstance(value, datetime) else value


def cell(value: Any) -> str:
    """Return *value* as the text of a CSV cell."""
    if isinstance(value, list | bool):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else str(value)


def test_no_rows_are_told(views: Views, capsys: pytest.CaptureFixture[str]) -> None:
    job = job_named("in-doubt")
    none = pa.table({"txn_id": pa.array([], pa.int64())})
    tell(job, none, sys.stdout, "table", many=False)
    assert capsys.readouterr().out == "nothing: no rows\n"
    rows = io.StringIO()
    tell(job, none, rows, "csv", many=False)
    assert rows.getvalue() == "txn_id\n"
