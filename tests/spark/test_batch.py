"""Tests of the Spark data source: rows equal the column views, and errors are one sentence."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from cairnmq.analytics.spark.session import journal
from cairnmq.analytics.views.journal import VIEWS, Journal, open_journal
from cairnmq.analytics.views.records import ReadOptions
from cairnmq.store.embedded.library import open_store
from cairnmq.store.journaled.retention_leases import read_bookmark
from tests.harness.columns.contents import content
from tests.harness.spark.streams import newer_format, run, streamed

from ..readme_blocks import DOCS, blocks_of
from .conftest import OPTIONS, SMALL, Fill


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("store")
    with open_store(str(made), options=OPTIONS) as store:
        queue, other = store.queue("orders"), store.queue("other")
        for number in range(40):
            queue.put_all([content(b"%d" % number) for _ in range(20)]).result()
            other.put(b"no amqp").result()
            taken = [message for _ in range(15) if (message := queue.take()) is not None]
            queue.accept(taken).result()
            with store.transaction() as both:
                message = both.take(queue)
                assert message is not None
                both.put(other, b"instead")
    return made


def rows(of: Journal, copies: str = "new") -> list[dict[str, object]]:
    return [row for batch in of.records(ReadOptions(copies=copies)) for row in batch.to_pylist()]


@pytest.mark.parametrize("view", [view for view in VIEWS if view not in ("live_set", "orphan_records")])
def test_each_view_is_what_the_columns_are(spark: SparkSession, path: Path, view: str) -> None:
    found = journal(spark, str(path), view=view, maxPartitionBytes="128k").toArrow()
    own = open_journal(str(path))
    expected = rows(own) if view == "records" else getattr(own, view)().to_pylist()
    key = expected[0].keys().__iter__().__next__()
    assert expected

    def plain(some: list[dict[str, object]]) -> list[str]:
        return sorted(repr({name: str(value) for name, value in row.items()}) for row in some)

    assert plain(found.to_pylist()) == plain(expected), key


def test_live_set_and_orphan_records_of_partitions_add_up(spark: SparkSession, path: Path) -> None:
    """A partition covers some messages, so that the rows of a container in all partitions add up to its content."""
    own = open_journal(str(path))
    found = journal(spark, str(path), view="live_set", maxPartitionBytes="128k")
    assert found.rdd.getNumPartitions() > 1
    held: dict[int, Counter[str]] = {}
    queue_ids: dict[int, set[int]] = {}
    for row in found.toArrow().to_pylist():
        queue_ids.setdefault(row["container"], set()).update(row.pop("queue_ids"))
        held.setdefault(row.pop("container"), Counter()).update(row)
    expected = own.live_set().to_pylist()
    assert expected
    told = [{"container": one, **held[one], "queue_ids": sorted(queue_ids[one])} for one in sorted(held)]
    assert told == expected
    orphan_records = journal(spark, str(path), view="orphan_records", maxPartitionBytes="128k").toArrow().to_pylist()
    assert sorted(orphan_records, key=lambda row: row["lsn"]) == own.orphan_records().to_pylist()


def test_what_workers_imported_is_no_garbage(spark: SparkSession, path: Path) -> None:
    """In Spark's workers, which collect garbage after each task, imported modules are excluded from the collection."""
    before = gc.get_freeze_count()
    journal(spark, str(path), maxPartitionBytes="64k").count()

    def frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"n": [gc.get_freeze_count()] * batch.num_rows})

    in_workers = spark.range(0, 8, 1, 8).mapInArrow(frozen, "n long").collect()
    assert max(row.n for row in in_workers) > 10_000
    assert gc.get_freeze_count() <= before  # a process other than a Spark worker freezes no objects


def test_filters_of_one_frame_are_not_those_of_another(spark: SparkSession, path: Path) -> None:
    frame = journal(spark, str(path))
    every = frame.count()
    starts = frame.filter("type = 'start'").count()
    assert 0 < starts < every == frame.count()
    assert frame.groupBy("type").count().agg(f.sum("count")).collect()[0][0] == every


def test_what_options_select(spark: SparkSession, path: Path) -> None:
    own = open_journal(str(path))
    middle = own.log.durable_lsn // 2
    every = rows(own)
    frame = journal(spark, str(path), types=["start", "dequeue"], queues="orders", startingLsn=SMALL, endingLsn=middle,
                    columns="lsn,queue,time", maxPartitionBytes=SMALL)  # fmt: skip
    assert frame.columns == ["lsn", "queue", "time"]
    assert frame.rdd.getNumPartitions() == len(own.log.between(SMALL, middle)) > 1
    expected = [
        row["lsn"] for row in every
        if row["type"] in ("start", "dequeue") and row["queue"] == "orders" and SMALL <= row["lsn"] < middle  # type: ignore[operator]
    ]  # fmt: skip
    assert sorted(row.lsn for row in frame.collect()) == expected
    time = every[len(every) // 2]["time"]
    later = journal(spark, str(path), startingTimestamp=time.isoformat()).count()  # type: ignore[attr-defined]
    begin = next(row["lsn"] for row in every if row["time"] >= time and not row["moved"])  # type: ignore[operator]
    assert later == sum(row["lsn"] >= begin for row in every)  # type: ignore[operator]
    before = journal(spark, str(path), endingTimestamp=time.isoformat()).count()  # type: ignore[attr-defined]
    assert before + later == len(every)
    assert journal(spark, str(path), endingLsn=0).count() == 0
    schema = "queue string, lsn long"
    pruned = spark.read.format("journal").schema(schema).load(str(path))
    assert pruned.columns == ["queue", "lsn"]
    assert pruned.count() == len(every)


def test_contents_and_amqp(spark: SparkSession, path: Path) -> None:
    frame = journal(spark, str(path), view="messages", includePayload=True, includeAmqp=True).filter("queue = 'orders'")
    found = frame.groupBy("body", "subject").count().collect()
    own = open_journal(str(path)).messages(columns=["queue", "body"]).to_pylist()
    expected = Counter(row["body"] for row in own if row["queue"] == "orders")
    assert {(bytes(row.body), row.subject): row["count"] for row in found} == {
        (body, "subject"): count for body, count in expected.items()
    }
    tags = frame.selectExpr("application_properties['red'] as red", "ttl_ms", "payload").distinct().collect()
    assert {(row.red, row.ttl_ms) for row in tags} == {("true", 5000)}
    assert {bytes(row.payload) for row in tags} == {content(body) for body in expected}
    starts = journal(spark, str(path), types="start", columns="subject,amqp_error").groupBy("subject").count().collect()
    assert {row.subject: row["count"] for row in starts} == {
        "subject": expected.total(), None: len(own) - expected.total()
    }


def test_sql_alone(spark: SparkSession, path: Path) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW q USING journal OPTIONS (path '{path}', view 'queues')")
    assert {row.queue: row.depth for row in spark.sql("SELECT * FROM q").collect()} == {"orders": 160, "other": 80}


def test_what_the_tutorial_shows(
    spark: SparkSession, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "data").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    [program] = [block.text for block in blocks_of(DOCS / "tutorials/spark.md") if block.title == "lifetimes.py"]
    exec(program, {})
    assert "consumed|accepted" in capsys.readouterr().out.replace(" ", "")


WRONG: dict[str, dict[str, object]] = {
    "unknown option; one of path, view": {"colums": "lsn"},
    "'recrods' is none of records, messages": {"view": "recrods"},
    "column 'lsm': unknown column": {"columns": "lsm"},
    "the view queues has none; one of queue_id": {"view": "queues", "columns": "lsn"},
    "type 'begin': unknown record type; one of start": {"types": "begin"},
    "queue 'ordres': no queue has this name; known are orders, other; or give its number": {"queues": "ordres"},
    "'-1' is not an LSN": {"startingLsn": "-1"},
    "option startingLsn: it lies behind endingLsn": {"startingLsn": 5, "endingLsn": 4},
    "invalid time 'yesterday'; write for example": {"startingTimestamp": "yesterday"},
    "invalid size '0'": {"maxPartitionBytes": "0"},
    "'maybe' is none of false, true": {"includePayload": "maybe"},
    "'lazy' is none of FAILFAST, PERMISSIVE": {"mode": "lazy"},
    "it is for streams; use startingLsn": {"startingOffsets": "latest"},
    "option slot: invalid name 'a/b'": {"slot": "a/b"},
    "the view messages has no records to choose from": {"view": "messages", "types": "start"},
}


@pytest.mark.parametrize("reason", WRONG)
def test_wrong_options(spark: SparkSession, path: Path, reason: str) -> None:
    with pytest.raises(PySparkException) as raised:
        journal(spark, str(path), **WRONG[reason]).count()
    assert reason in str(raised.value)


NO_STORE = {
    "a directory that is not there": "no such directory", "an empty directory": "directory is empty",
    "a store of a newer format": "is newer than this", "a store without its mark": "log.mark is missing",
}  # fmt: skip


@pytest.mark.parametrize("what", NO_STORE)
def test_what_is_no_store(spark: SparkSession, tmp_path: Path, what: str) -> None:
    place = tmp_path / "store"
    if what == "an empty directory":
        place.mkdir()
    elif what != "a directory that is not there":
        open_store(str(place)).close()
        mark = place / "journal" / "log.mark"
        data = bytearray(mark.read_bytes())
        for at in (0, 4096):
            newer_format(data, at)
        mark.write_bytes(data)
        if "mark" in what:
            mark.unlink()
    with pytest.raises(PySparkException, match=NO_STORE[what]):
        journal(spark, str(place)).count()


def test_a_store_that_holds_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """An empty store yields views without rows of messages, but with columns."""
    open_store(str(tmp_path)).close()
    for view in ("messages", "places", "transactions", "queues"):
        assert journal(spark, str(tmp_path), view=view).count() == 0
    assert {row.type for row in journal(spark, str(tmp_path), columns="type").collect()} <= {"log-open", "log-holes"}


def test_what_lies_on_no_file_system(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="stores and archives are on file systems only"):
        journal(spark, "s3a://bucket/store").count()


def test_a_damaged_container(spark: SparkSession, tmp_path: Path, fill: Fill) -> None:
    """FAILFAST reports the file and LSN of damage; PERMISSIVE omits and counts the block."""
    fill(tmp_path, 1000)
    own = open_journal(str(tmp_path))
    complete = rows(own)
    piece = own.log.pieces[1]
    victim = next(row for row in complete if row["lsn"] > piece.slot_lsn + 3000)  # type: ignore[operator]
    with open(piece.path, "r+b") as file:
        file.seek(int(str(victim["block"])) - piece.slot_lsn + 100)
        file.write(b"rot")
    with pytest.raises(PySparkException, match=rf"{Path(piece.path).name}: LSN {victim['block']} to \d+ can't be read"):
        journal(spark, str(tmp_path), verify="full").count()
    frame = journal(spark, str(tmp_path), verify="full", mode="permissive")
    left = frame.select("lsn", "damaged_blocks", "container", "crc_ok").collect()
    assert sorted(row.lsn for row in left) == [row["lsn"] for row in complete if row["block"] != victim["block"]]
    assert {row.damaged_blocks for row in left if row.container == piece.slot_lsn} == {1}
    assert {row.damaged_blocks for row in left if row.container != piece.slot_lsn} == {0}
    assert {row.crc_ok for row in left} == {True}


def test_a_reclaimed_range(spark: SparkSession, tmp_path: Path, fill: Fill) -> None:
    fill(tmp_path, 6000)
    with open_store(str(tmp_path), options=OPTIONS) as store:
        store.queue("staying").purge().result()
        store.queue("passing").purge().result()
    first = open_journal(str(tmp_path)).log.first_lsn
    assert first > 0
    with pytest.raises(PySparkException) as raised:
        journal(spark, str(tmp_path), startingLsn=0).count()
    said = f"LSN 0 to {first} was asked for, and {first} bytes of it were reclaimed; the log begins at LSN {first}"
    assert said in str(raised.value)
    assert journal(spark, str(tmp_path), startingLsn=0, failOnDataLoss=False).count() > 0
    with pytest.raises(StreamingQueryException, match="were reclaimed"):
        run(spark, tmp_path, tmp_path / "lost", startingOffsets='{"lsn": 0}')


def test_a_stream_in_bounded_batches(spark: SparkSession, tmp_path: Path, fill: Fill) -> None:
    """Batches respect the size limit, later records are read by the next run, and no record is read twice."""
    store, to = tmp_path / "store", tmp_path / "to"
    fill(store, 1500)
    expected = [row["lsn"] for row in rows(open_journal(str(store)))]
    sizes = run(spark, store, to, maxBytesPerTrigger="64k", slot="test")
    assert len(sizes) > 2
    assert streamed(spark, to) == expected
    assert read_bookmark(str(store), "test")
    assert run(spark, store, to, slot="test") == []
    fill(store, 1000)
    assert sum(run(spark, store, to, slot="test")) > 1000
    later = open_journal(str(store), history=True)
    found = streamed(spark, to)
    assert len(found) == len(set(found))
    assert set(found) >= {row["lsn"] for row in rows(later, copies="none") if row["lsn"] > expected[-1]}  # type: ignore[operator]


def test_where_a_stream_begins(spark: SparkSession, tmp_path: Path, fill: Fill) -> None:
    store = tmp_path / "store"
    fill(store, 500)
    log = open_journal(str(store)).log
    assert run(spark, store, tmp_path / "latest", startingOffsets="latest") == []
    middle = log.durable_lsn // 2
    run(spark, store, tmp_path / "json", startingOffsets=f'{{"lsn": {middle}}}')
    expected = [row["lsn"] for row in rows(open_journal(str(store))) if int(str(row["lsn"])) >= middle]
    assert streamed(spark, tmp_path / "json") == expected
    own = rows(open_journal(str(store)), copies="none")
    time = own[len(own) // 2]["time"]
    begin = next(row["lsn"] for row in own if row["time"] >= time)  # type: ignore[operator]
    assert begin > SMALL  # type: ignore[operator]
    run(spark, store, tmp_path / "time", startingTimestamp=time.isoformat())  # type: ignore[attr-defined]
    since = [row["lsn"] for row in rows(open_journal(str(store))) if row["lsn"] >= begin]  # type: ignore[operator]
    assert streamed(spark, tmp_path / "time") == since
    assert run(spark, store, tmp_path / "future", startingTimestamp="2999-01-01") == []
    for options, reason in (
        ({"view": "messages"}, "a stream has the view records, not messages"),
        ({"startingLsn": "5"}, "it is for batches; use startingOffsets"),
        ({"endingTimestamp": "2026-11-22"}, "it is for batches; use startingOffsets"),
        ({"startingTimestamp": "2026-11-22", "startingOffsets": "latest"}, "startingOffsets is given, too"),
        ({"startingOffsets": '{"lsn": 99999999}'}, "LSN 99999999 lies behind the log's durable end"),
        ({"startingOffsets": "soon"}, "invalid offset 'soon'"),
    ):
        with pytest.raises(PySparkException, match=reason):
            run(spark, store, tmp_path / "wrong", **options)
