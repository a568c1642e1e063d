"""Tests of the first offset, which must be the same if Spark was stopped in its first batch and requests it again."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StringType, StructField, StructType

from cairnmq.analytics.scan.files import open_log
from cairnmq.analytics.spark.options import parse
from cairnmq.analytics.spark.schemas import batch_schema, schema_of
from cairnmq.analytics.spark.source import JournalSource
from cairnmq.analytics.spark.stream import JournalStreamReader, Offset
from cairnmq.base.errors import CairnError
from cairnmq.store.journaled.retention_leases import read_bookmark
from tests.harness.store.churn import SMALL, Churn
from tests.harness.store.stores import NOW_US


@pytest.mark.parametrize("begin", ["earliest", "latest"])
def test_a_slot_says_where_the_first_batch_began(tmp_path: Path, begin: str) -> None:
    churn = Churn(tmp_path)
    churn.pass_through(5)
    churn.store.journal.writer.write_mark()

    def reader() -> JournalStreamReader:
        options = parse({"path": str(tmp_path), "slot": "s", "startingOffsets": begin})
        return JournalStreamReader(options, batch_schema(schema_of(options), options))

    first = reader().initialOffset()
    churn.pass_through(10)
    churn.store.journal.writer.write_mark()
    again = reader().initialOffset()
    assert again == first
    end = reader().reportLatestOffset()
    assert reader().partitions(first, {**first, **end})
    reader().commit({**first, **end})
    found = read_bookmark(str(tmp_path), "s")
    assert found is not None
    assert found.lsn == end["lsn"]
    churn.store.close()


def with_holes(path: Path) -> tuple[Churn, list[int]]:
    """Return a store with reclaimed containers between staying messages, and the IDs of these messages."""
    churn = Churn(path)
    staying = []
    for _ in range(8):
        staying.append(churn.store.put(churn.queue, bytes(10_000), NOW_US)[0])
        churn.store.kick()
        churn.pass_through(2)
    churn.store.journal.writer.write_mark()
    return churn, staying


def test_containers_state_the_reclaimed_bytes_before_them(tmp_path: Path) -> None:
    """A column of `containers` has the reclaimed bytes before each container, for any partitions and start."""
    churn, _ = with_holes(tmp_path)
    log = open_log(str(tmp_path))
    sizes = {gap.end_lsn: gap.end_lsn - gap.first_lsn for gap in log.gaps}
    assert len(sizes) > 3
    assert reclaimed_before(tmp_path) == sizes
    assert reclaimed_before(tmp_path, maxPartitionBytes="1") == sizes
    middle = log.pieces[len(log.pieces) // 2].slot_lsn
    later = {lsn: size for lsn, size in sizes.items() if lsn >= middle}
    assert reclaimed_before(tmp_path, startingLsn=str(middle), failOnDataLoss="false") == later
    churn.store.close()


def test_containers_state_the_bytes_before_the_first_one(tmp_path: Path) -> None:
    churn = Churn(tmp_path)
    assert reclaimed_before(tmp_path) == {}
    churn.pass_through(8)
    churn.store.journal.writer.write_mark()
    first_lsn = open_log(str(tmp_path)).first_lsn
    assert first_lsn > 0
    assert reclaimed_before(tmp_path)[first_lsn] == first_lsn
    churn.store.close()


def reclaimed_before(path: Path, **more: str) -> dict[int, int]:
    """Return the nonzero values of `reclaimed_before` by container, from the view `containers` read as Spark does."""
    source = JournalSource({"path": str(path), "view": "containers", **more})
    reader = source.reader(source.schema())
    parts = [pickle.loads(pickle.dumps(part)) for part in reader.partitions()]
    assert more.get("maxPartitionBytes") != "1" or len(parts) > 3
    rows = [
        row for part in parts for batch in reader.read(part) for row in pa.Table.from_batches([batch]).to_pylist()
    ]  # fmt: skip
    return {row["container"]: row["reclaimed_before"] for row in rows if row["reclaimed_before"]}


def reader_of(path: Path, **more: str) -> JournalStreamReader:
    options = parse({"path": str(path), **more})
    return JournalStreamReader(options, batch_schema(SHAPE, options))


def read(reader: JournalStreamReader, start: Offset, end: Offset) -> list[dict[str, object]]:
    return [
        row for part in reader.partitions(start, end) for batch in reader.read(part)
        for row in pa.Table.from_batches([batch]).to_pylist()
    ]  # fmt: skip


SHAPE = StructType([StructField("lsn", LongType()), StructField("type", StringType()),
                    StructField("message_id", LongType())])  # fmt: skip


@pytest.mark.parametrize("slot", ["", "s"])
def test_a_stream_from_earliest_starts_on_a_log_with_holes(tmp_path: Path, slot: str) -> None:
    """A2: containers reclaimed before the query began are not data loss, and each live message is read once."""
    churn, staying = with_holes(tmp_path)
    log = open_log(str(tmp_path))
    assert len(log.gaps) > 3
    assert log.first_lsn == 0
    given = {"slot": slot} if slot else {}
    reader = reader_of(tmp_path, **given)
    start = reader.initialOffset()
    assert start["reclaimed"] == [[gap.first_lsn, gap.end_lsn] for gap in log.gaps]
    assert start["began"] == log.durable_lsn
    half = {**start, "lsn": log.durable_lsn // 2}
    end = reader.latestOffset(half, ReadAllAvailable())
    assert end["reclaimed"] == start["reclaimed"]  # later records may be copies of reclaimed ones
    batches = [read(reader, start, half), read(reader, half, end)]
    shown = [row for batch in batches for row in batch]
    begun = Counter(row["message_id"] for row in shown if row["type"] == "start")
    assert set(begun) >= set(staying)
    assert set(begun.values()) == {1}
    # a container that left the log but is not overwritten yet does not change the batch
    again = [read(reader_of(tmp_path, **given), start, half), read(reader_of(tmp_path, **given), half, end)]
    assert again == batches
    churn.pass_through(2)
    churn.store.journal.writer.write_mark()
    later = reader_of(tmp_path, **given).latestOffset(end, ReadAllAvailable())
    assert not {"reclaimed", "began"} & later.keys()
    assert read(reader, end, later)
    churn.store.close()


def test_what_leaves_the_log_while_a_stream_is_away_is_data_loss(tmp_path: Path) -> None:
    """A2: containers reclaimed after the query began and before it read them are data loss."""
    churn, staying = with_holes(tmp_path)
    start = reader_of(tmp_path).initialOffset()
    end = reader_of(tmp_path).latestOffset(start, ReadAllAvailable())
    read(reader_of(tmp_path), start, end)
    churn.store.dequeue(staying[3], churn.queue, NOW_US)
    piece = next(one for one in open_log(str(tmp_path)).pieces if one.slot_lsn + SMALL > staying[3])

    def is_used_again() -> bool:
        churn.pass_through(2)
        churn.store.journal.writer.write_mark()
        return all(one.slot_lsn != piece.slot_lsn for one in open_log(str(tmp_path), history=True).pieces)

    assert any(is_used_again() for _ in range(20))
    with pytest.raises(CairnError, match=r"was asked for, and \d+ bytes of it were reclaimed"):
        read(reader_of(tmp_path), start, end)
    lost = read(reader_of(tmp_path, failOnDataLoss="false"), start, end)
    assert staying[0] in {row["message_id"] for row in lost}
    churn.store.close()


def test_stream_that_an_earlier_version_began_is_told_to_begin_anew(tmp_path: Path) -> None:
    """A stream of an earlier version, whose offsets lack the reclaimed ranges, requires a new checkpoint location."""
    churn, _ = with_holes(tmp_path)
    new = reader_of(tmp_path).initialOffset()
    old = {"lsn": new["lsn"]}
    end = {"lsn": new["began"]}
    with pytest.raises(CairnError, match=r"reclaimed; .*an earlier version of CairnMQ began needs a new checkpointLoc"):
        reader_of(tmp_path).partitions(old, end)
    assert read(reader_of(tmp_path), new, {**new, **end})
    churn.store.close()
