"""Tests of `cairnmq sql`: results equal those of other tools, only necessary data is read, and the end is clean."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from cairnmq.analytics.views import sql as engine
from cairnmq.analytics.views.journal import VIEWS, Journal, open_journal
from cairnmq.base.extras import install_hint
from cairnmq.cli.common import row_writers
from cairnmq.store import open_store as open_library
from cairnmq.store.contract.options import StoreOptions
from tests.harness.process import CAIRNMQ, DEADLINE_S

from .conftest import Dump, Store

MB = 1 << 20
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a store of a few containers with two queues and a transaction."""
    path = tmp_path_factory.mktemp("sql") / "store"
    with open_library(str(path), options=StoreOptions(container_bytes=512 << 10)) as store:
        orders, done = store.queue("orders"), store.queue("done")
        for number in range(60):
            orders.put(b"%06d" % number * 5000).result()
        for _ in range(10):
            message = orders.take()
            assert message is not None
            message.accept().result()
        with store.transaction() as both:
            for _ in range(2):
                message = both.take(orders)
                assert message is not None
                both.put(done, b"done")
    return path


def test_answers_are_those_of_the_dump(lived: Path, command: Dump) -> None:
    records = command("dump", lived, "--json").records
    query = "select lsn, type, queue, size, message_id from records order by lsn"
    rows = command("sql", lived, query, "--json").objects
    assert [row["lsn"] for row in rows] == [record["lsn"] for record in records]
    assert [row["size"] for row in rows] == [record["size_bytes"] for record in records]
    query = "select type, count(*) as n from records group by type"
    counts = {row["type"]: row["n"] for row in command("sql", lived, query, "--json").objects}
    assert counts == Counter(record["type"] for record in records)
    first, last = records[5]["lsn"], records[40]["lsn"]
    query = f"select lsn from records where lsn between {first} and {last} and type = 'start'"
    expected = [one["lsn"] for one in records[5:41] if one["type"] == "start"]
    assert [row["lsn"] for row in command("sql", lived, query, "--json").objects] == expected


def test_every_table_can_be_asked(lived: Path, command: Dump) -> None:
    schemas = json.loads(command("sql", lived, "--schema", "--json").out)
    assert set(schemas) == set(VIEWS)  # A7: those that Spark has
    for name in schemas:
        found = command("sql", lived, f"select * from {name} limit 3", "--json")
        assert (found.status, bool(found.out)) == (0, name != "orphan_records"), found.err
    query = "select queue, count(*) from messages where state = 'queued' group by queue order by queue"
    assert command("sql", lived, query).lines[1:] == ["done               2", "orders            48"]
    query = "select m.queue, q.depth from queues q join wiring m on q.queue = m.name"
    assert command("sql", lived, query).status == 0
    assert "enqueues" in command("sql", lived, ".tables").out
    assert "select" not in command("sql", lived).out


@pytest.mark.parametrize(
    ("text", "beginning", "end"),
    [("--help", "The tables are ", ";"), ("reference/store-tools.md", "The tables are those that Spark sees: ", ";")],
)
def test_tables_in_help_and_docs_are_those_there_are(command: Dump, text: str, beginning: str, end: str) -> None:
    told = command("sql", "--help").out if text == "--help" else (ROOT / "docs" / text).read_text()
    listed = " ".join(told.split()).partition(beginning)[2].partition(end)[0]
    assert sorted(re.findall(r"[a-z_]+", listed.replace(" and ", " "))) == sorted(VIEWS)


def test_tables_in_the_page_about_spark_are_those_there_are() -> None:
    page = (ROOT / "docs/reference/spark.md").read_text().partition("## Views")[2].partition("##")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(VIEWS)


def asked(journal: Journal, query: str) -> list[dict[str, Any]]:
    sql = engine.JournalSql(journal, memory_limit_bytes=256 * MB, spill="")
    try:
        found = sql.query(query)
        assert found is not None
        return [row for batch in sql.batches(found) for row in batch.to_pylist()]
    finally:
        sql.close()


def test_only_what_is_asked_for_is_read(lived: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query reads only its columns, and only the containers that match its conditions on LSNs."""
    journal = open_journal(str(lived))
    seen: list[tuple[tuple[str, ...], int]] = []
    real = Journal.records

    def records(self: Journal, reading: Any, columns: list[str], *, pieces: Any) -> Any:
        seen.append((tuple(columns), pieces[0].slot_lsn))
        return real(self, reading, columns, pieces=pieces)

    monkeypatch.setattr(Journal, "records", records)
    pieces = [piece.slot_lsn for piece in journal.log.pieces]
    assert len(pieces) > 3
    asked(journal, "select sum(size) from records")
    assert seen == [(("size",), lsn) for lsn in pieces]
    seen.clear()
    asked(journal, f"select count(*) from records where lsn >= {pieces[1]} and lsn < {pieces[2]} and queue = 'orders'")
    assert {lsn for _, lsn in seen} == {pieces[1]}
    assert {name for names, _ in seen for name in names} <= {"lsn", "queue"}
    seen.clear()
    asked(journal, f"select type from records where container = {pieces[0]} or container = {pieces[2]}")
    assert {lsn for _, lsn in seen} == {pieces[0], pieces[2]}
    seen.clear()
    assert "payload" not in asked(journal, "select * from records limit 1")[0]
    assert "payload" not in {name for names, _ in seen for name in names}
    assert len(asked(journal, "select payload from records where type = 'start'")[0]["payload"]) == 30_000
    seen.clear()
    asked(journal, "select 1 as one")
    assert not seen


def test_ways_to_write_rows(lived: Path, tmp_path: Path, command: Dump) -> None:
    query = "select queue_id, queue, depth, payload from queues join (select min(payload) payload from records"
    query += " where type = 'start') on true order by queue_id"
    objects = command("sql", lived, query, "--json").objects
    assert b64decode(objects[0]["payload"]).startswith(b"000000")
    rows = list(csv.DictReader(io.StringIO(command("sql", lived, query, "--csv").out)))
    assert [row["queue"] for row in rows] == [one["queue"] for one in objects]
    file = tmp_path / "rows.arrow"
    assert command("sql", lived, query, "--arrow", file).status == 0
    assert pa.ipc.open_stream(file.read_bytes()).read_all().num_rows == len(objects)
    assert os.listdir(tmp_path) == ["rows.arrow"]
    assert command("sql", lived, query, "--json", "--csv-raw").status == 2


def test_what_is_wrong_is_one_line(lived: Path, tmp_path: Path, command: Dump) -> None:
    for query in ("select", "select x from records", "select * from nowhere", "drop table records", "select 1/"):
        found = command("sql", lived, query)
        assert (found.status, found.out, len(found.err.splitlines())) == (2, "", 1), found
    assert command("sql", tmp_path / "nowhere", "select 1").status == 2
    assert command("sql", lived).err.startswith("cairnmq: sql: no query")


def test_damage(store: Store, command: Dump) -> None:
    store.name_queues("orders")
    store.fill(3)
    store.journal.close()
    store.overwrite((512 << 10) + 512, bytes(64))
    found = command("sql", store.path, "select count(*) from records")
    assert found.status == 2
    assert "--skip-damaged" in found.err
    found = command("sql", store.path, "select count(*) n from records", "--skip-damaged", "--json")
    assert found.status == 0
    assert 10 < found.objects[0]["n"] < 27


def test_a_missing_package_is_told(lived: Path) -> None:
    program = "import sys; sys.modules['duckdb'] = None; from cairnmq.cli.main import main; main()"
    command = [sys.executable, "-c", program, "sql", str(lived), "select 1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 2
    assert done.stderr == f"cairnmq: sql: duckdb is missing; {install_hint('sql')}\n"


# ---- interruptions --------------------------------------------------------------------------------------------------

LONG = "select r.lsn, s.lsn from records r, records s, records t, generate_series(1000000)"


def test_head_has_seen_enough(lived: Path) -> None:
    for verb in (["sql", str(lived), LONG, "--json"], ["stat", str(lived), "--json"]):
        started = subprocess.Popen([CAIRNMQ, *verb], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert started.stdout is not None
        assert started.stderr is not None
        assert started.stdout.readline()
        started.stdout.close()
        assert started.wait(DEADLINE_S) == 0, verb
        assert started.stderr.read() == b"", verb
        started.stderr.close()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full disk here")
def test_a_full_disk_for_the_output(lived: Path) -> None:
    for verb in (["sql", str(lived), LONG, "--json"], ["verify", str(lived)],
                 ["sql", str(lived), LONG, "--arrow", "/dev/full"]):  # fmt: skip
        with open("/dev/full", "wb") as full:
            done = subprocess.run([CAIRNMQ, *verb], stdout=full, stderr=subprocess.PIPE, timeout=DEADLINE_S)
        assert done.returncode == 2, verb
        assert len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize("query", ["select lsn from records", "select count(*) from records where size > 5"])
def test_an_interruption_while_a_view_is_read_stays_one(
    lived: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """DuckDB turns the interruption into an error of its own."""

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "records", interrupted)
    with pytest.raises(KeyboardInterrupt):
        asked(open_journal(str(lived)), query)


def test_a_query_reaches_no_file(lived: Path, tmp_path: Path, command: Dump) -> None:
    """A query can read or write no file, and so can't overwrite a container."""
    container = min((lived / "journal").glob("*.cairn"))
    before = container.read_bytes()
    for query in (
        f"copy (select 1) to '{container}'", f"attach '{tmp_path}/x.db'", f"export database '{tmp_path}/x'",
        f"select * from read_csv('{lived}/wiring.sqlite')", "set enable_external_access = true",
        "install httpfs", f"set temp_directory = '{tmp_path}/y'",
    ):  # fmt: skip
        found = command("sql", lived, query)
        assert (found.status, len(found.err.splitlines())) == (2, 1), (query, found)
    assert container.read_bytes() == before
    assert os.listdir(tmp_path) == []


def test_a_container_that_is_gone_is_told(lived: Path, tmp_path: Path, command: Dump) -> None:
    """A missing container is an error, so that the rest of the log does not pass for all of it."""
    store = tmp_path / "store"
    shutil.copytree(lived, store)
    lost = open_journal(str(store)).log.pieces[1]
    for container in (store / "journal").glob("*.cairn"):
        if int.from_bytes(container.read_bytes()[48:56], "little") == lost.slot_lsn:
            container.unlink()
    query = "select count(*) n from records"
    found = command("sql", store, query)
    assert found.status == 2
    assert f"LSN {lost.slot_lsn} to " in found.err
    assert "is missing: no container holds it; --skip-damaged" in found.err
    assert command("sql", store, "select count(*) from wiring").status == 0
    [left] = command("sql", store, query, "--json", "--skip-damaged").objects
    [all_there] = command("sql", lived, query, "--json").objects
    assert 0 < left["n"] < all_there["n"]


@pytest.fixture(params=["Python's", "another"])
def hearing_ctrl_c(request: pytest.FixtureRequest) -> Iterator[None]:
    """Install Python's SIGINT handler, or another one that raises the same exception, as Spark's does."""

    def another(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    handler = another if request.param == "another" else signal.default_int_handler
    before = signal.signal(signal.SIGINT, handler)
    yield
    assert signal.getsignal(signal.SIGINT) is handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hearing_ctrl_c")
@pytest.mark.parametrize("place", ["_View.scanner", "_View.batches", "_Scan.to_reader", "the file is made"])
def test_ctrl_c_at_any_step_is_told_as_such(
    lived: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Dump, place: str
) -> None:
    """DuckDB raises an error of its own, or Python's; a file that was just created is removed again."""

    def interrupted(*arguments: Any, **_: Any) -> Any:
        found = open(*arguments) if place == "the file is made" else None  # noqa: SIM115
        signal.raise_signal(signal.SIGINT)
        return found

    if place == "the file is made":
        monkeypatch.setattr(row_writers, "open", interrupted, raising=False)
    else:
        kind, name = place.split(".")
        monkeypatch.setattr(getattr(engine, kind), name, interrupted)
    found = command("sql", lived, "select count(*) from records", "--arrow", tmp_path / "rows")
    assert (found.status, found.err) == (130, "cairnmq: interrupted\n")
    assert os.listdir(tmp_path) == []


def test_ctrl_c(lived: Path, tmp_path: Path) -> None:
    """Ctrl-C ends a query with status 130, also within DuckDB; written rows stay in a `.partial` file."""
    for query, written in ((LONG, True), (f"select count(*) from ({LONG})", False)):
        # a shell ignores SIGINT for its background jobs
        command = ["env", "--default-signal=INT", CAIRNMQ, "sql", str(lived), query, "--arrow", str(tmp_path / "rows")]
        started = subprocess.Popen(command, stderr=subprocess.PIPE)
        partial = tmp_path / "rows.partial"
        try:
            while not partial.exists() or (written and partial.stat().st_size < MB):
                assert started.poll() is None
            started.send_signal(signal.SIGINT)
            _, err = started.communicate(timeout=DEADLINE_S)
        finally:
            started.kill()  # it would fill the disk
        assert (started.returncode, err) == (130, b"cairnmq: interrupted\n")
        assert not (tmp_path / "rows").exists()
        assert partial.exists() == written
        partial.unlink(missing_ok=True)


def test_beside_a_writer(tmp_path: Path, command: Dump) -> None:
    path = tmp_path / "live"
    with open_library(str(path), options=StoreOptions(container_bytes=512 << 10)) as store:
        queue = store.queue("orders")
        for number in range(10):
            for _ in range(5):
                queue.put(bytes(50_000)).result()
                if number % 2:
                    message = queue.take()
                    assert message is not None
                    message.accept().result()
            found = command("sql", path, "select count(*) n from messages where state = 'queued'", "--json")
            assert found.status == 0, found.err
            assert found.objects[0]["n"] <= 50


@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_time_that_no_calendar_has_is_shown_as_a_number(lived: Path, command: Dump, output: str) -> None:
    # S3
    query = "select make_timestamp(9000000000000000000) as far, make_timestamp(0) as near"
    found = command("sql", lived, query, "--output", output)
    assert (found.status, found.err) == (0, "")
    assert "@9000000000000000000" in found.out
    assert "1970-01-01" in found.out
