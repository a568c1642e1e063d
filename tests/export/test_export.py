"""An export contains the rows that `columns` reads, regardless of the number and size of its steps."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.analytics.export.exporter import export
from cairnmq.analytics.export.sources import ExportRequest
from cairnmq.analytics.scan.ranges import Ranges
from cairnmq.analytics.sidecars.folder import Folder
from cairnmq.analytics.sidecars.keeper import SidecarKeeper
from cairnmq.analytics.views.amqp_columns import SCHEMA as AMQP
from cairnmq.analytics.views.journal import open_journal
from cairnmq.analytics.views.records import DEFAULT
from tests.harness.columns.live_store import SMALL as LIVE_BYTES
from tests.harness.columns.live_store import written
from tests.harness.columns.logs import go_on, lay_out
from tests.harness.export.tables import KINDS, SMALL, Row, all_of, expected, fill, iceberg, rows_in, table_in
from tests.harness.store.transaction_histories import Life


@settings(max_examples=6)
@given(
    seed=st.integers(0, 1 << 30), cuts=st.lists(st.integers(0, 200), min_size=1, max_size=4), commit=st.integers(1, 9)
)
def test_any_history_in_any_pieces(seed: int, cuts: list[int], commit: int) -> None:
    """Each record is exported once and unchanged, regardless of kills, compaction and reclaim between exports."""
    with TemporaryDirectory() as path:
        life = Life(seed)
        target = Path(path, "target")
        seen: dict[int, Row] = {}
        for steps in cuts:
            go_on(life, steps)
            store = lay_out(life.files, Path(path, "store"))
            for row in expected(open_journal(store)):
                assert seen.setdefault(row["lsn"], row) == row
            before = len(rows_in(target, "parquet", ("lsn",))) if target.exists() and seen else 0
            done = export(store, str(target), ExportRequest(commit_bytes=commit * 8192))
            assert done.records == len(seen) - before
            assert export(store, str(target), ExportRequest()).records == 0
        assert not seen or rows_in(target, "parquet") == [seen[lsn] for lsn in sorted(seen)]


@settings(max_examples=100)
@given(runs=st.lists(st.integers(0, 60), unique=True), holes=st.integers(0, 60))
def test_ranges(runs: list[int], holes: int) -> None:
    """Ranges contain exactly the LSNs that were added."""
    ranges = Ranges()
    for lsn in runs:
        ranges = ranges.added(lsn, lsn + 1)
    assert Ranges.of(ranges.runs) == ranges
    assert {lsn for first, end in ranges.runs for lsn in range(first, end)} == set(runs)
    missing = {lsn for first, end in ranges.without(holes, 61) for lsn in range(first, end)}
    assert missing == set(range(holes, 61)) - set(runs)
    assert ranges.from_on(holes) == next(lsn for lsn in range(holes, 99) if lsn not in runs)


def test_parquet_export_gives_arrow_no_function_of_python(tmp_path: Path) -> None:
    """No callback is passed to Arrow: if its pool releases one during process exit, Python 3.11 aborts."""
    arguments: list[object] = []

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is ds.write_dataset.__code__:
            arguments.extend(frame.f_locals.values())

    fill(tmp_path / "store", 60)
    sys.setprofile(look)
    try:
        assert export(str(tmp_path / "store"), str(tmp_path / "target"), ExportRequest()).records
    finally:
        sys.setprofile(None)
    assert arguments
    assert not [argument for argument in arguments if callable(argument)]


def test_parquet_export_commits_its_own_files_also_behind_symbolic_links(tmp_path: Path) -> None:
    """A partition that was moved to another disk gets its rows; a leftover file does not become a part of the table."""
    store, target, elsewhere = tmp_path / "store", tmp_path / "target", tmp_path / "elsewhere"
    fill(store, 120)
    export(str(store), str(target), ExportRequest())
    partition = next(target.glob("day=*/queue=orders"))
    partition.rename(elsewhere)
    partition.symlink_to(elsewhere, target_is_directory=True)
    (elsewhere / ".0000000000000001-0000000000000002-0.half").write_bytes(b"no Parquet")
    (target / "self").symlink_to(target, target_is_directory=True)
    os.mkfifo(target / ".fifo.half")
    rows = expected(open_journal(str(store)))
    fill(store, 120)
    assert export(str(store), str(target), ExportRequest()).records
    (target / "self").unlink()  # a reader would follow it
    seen = {row["lsn"]: row for row in [*rows, *expected(open_journal(str(store)))]}
    assert rows_in(target, "parquet") == [seen[lsn] for lsn in sorted(seen)]


@pytest.mark.parametrize("kind", KINDS)
def test_each_format_read_back(tmp_path: Path, kind: str) -> None:
    """Each format is readable by its own library and by DuckDB, after growth, with contents and unusual queue names."""
    store, archive, target = tmp_path / "store", tmp_path / "archive", tmp_path / "target"
    archive.mkdir()
    columns = (*DEFAULT, "payload", *AMQP.names)
    asked = ExportRequest(kind=kind, columns=columns, archive=str(archive), commit_bytes=2 * SMALL)
    fill(store, 240, archive)
    first = export(str(store), str(target), asked)
    fill(store, 240, archive)
    second = export(str(store), str(target), ExportRequest(archive=str(archive), commit_bytes=2 * SMALL))
    assert export(str(store), str(target), asked).records == 0
    rows = expected(open_journal(str(store), archive=str(archive)), columns)
    assert first.records + second.records == len(rows)
    assert first.commits > 2
    assert not second.missing
    assert plain(rows_in(target, kind, columns)) == plain(rows)
    found = by_duckdb(target, kind)
    assert found == [(row["lsn"], row["queue"]) for row in rows]
    assert {queue for _, queue in found} == {None, "orders", "eu/orders", "a=b ü%", "..", "17", "$queue-6"}


def plain(rows: list[Row]) -> list[Row]:
    """Sort the entries of maps, as tables do not preserve their order."""
    maps = [field.name for field in AMQP if pa.types.is_map(field.type)]
    return [{**row, **{name: row[name] and sorted(row[name]) for name in maps}} for row in rows]


def by_duckdb(target: Path, kind: str) -> list[tuple[int, str]]:
    """Read LSNs and queues with DuckDB, without its Delta and Iceberg extensions, which require a download."""
    found: list[tuple[int, str]]
    if kind == "iceberg":
        connection = iceberg(target).scan(selected_fields=("lsn", "queue")).to_duckdb("records")
        found = connection.sql("SELECT lsn, queue FROM records ORDER BY lsn").fetchall()
        return found
    files = DeltaTable(target).file_uris() if kind == "delta" else f"{target}/**/*.parquet"
    types = "hive_types = {'day': DATE, 'queue': VARCHAR}"
    text = f"SELECT lsn, queue FROM read_parquet($1, hive_partitioning = true, {types}) ORDER BY lsn"
    found = duckdb.execute(text, [files]).fetchall()
    return found


def test_delta_and_iceberg_are_partitioned(tmp_path: Path) -> None:
    fill(tmp_path / "store", 60)
    for kind in ("delta", "iceberg"):
        export(str(tmp_path / "store"), str(tmp_path / kind), ExportRequest(kind=kind))
    assert DeltaTable(tmp_path / "delta").metadata().partition_columns == ["day", "queue"]
    spec = iceberg(tmp_path / "iceberg").spec()
    assert [(field.name, str(field.transform)) for field in spec.fields] == [("day", "day"), ("queue", "identity")]
    assert "day" not in table_in(tmp_path / "iceberg", "iceberg").schema.names


def test_beside_a_writer(tmp_path: Path) -> None:
    """Exports of a store and its archive in turns are complete, although containers are archived out of log order."""
    store, archive, target = tmp_path / "store", tmp_path / "archive", tmp_path / "target"
    archive.mkdir()
    with written(store, archive):
        while not list(archive.glob("*.cairn")):
            pass
        end_lsn = 0
        while end_lsn < 80 * LIVE_BYTES:
            export(str(archive), str(target), ExportRequest(names_of=str(store)))
            end_lsn = export(str(store), str(target), ExportRequest(archive=str(archive))).end_lsn
    done = export(str(store), str(target), ExportRequest(archive=str(archive)))
    assert done.runs == ((0, done.end_lsn),)
    assert not done.missing
    assert rows_in(target, "parquet") == all_of(store, archive)


def test_an_archive_alone_is_exported_when_all_has_come(tmp_path: Path) -> None:
    store, archive, some = tmp_path / "store", tmp_path / "archive", tmp_path / "some"
    for directory in (archive, some):
        directory.mkdir()
    fill(store, 600, archive)
    files = sorted(archive.glob("*.cairn"))
    for number in (*range(1, len(files), 2), *range(0, len(files), 2)):
        shutil.copy(files[number], some)
        if number % 6 == 1:
            export(str(some), str(tmp_path / "target"), ExportRequest(partition=("day",)))
    assert export(str(some), str(tmp_path / "target"), ExportRequest()).runs == ((0, len(files) * SMALL),)
    rows = [row["lsn"] for row in expected(open_journal(str(archive)), ("lsn",))]
    assert [row["lsn"] for row in rows_in(tmp_path / "target", "parquet", ("lsn",))] == rows


def test_sidecars(tmp_path: Path) -> None:
    """An export of a store continues the export of its column index, and vice versa."""
    store, archive, beside, target = (tmp_path / name for name in ("store", "archive", "beside", "target"))
    archive.mkdir()
    fill(store, 300, archive)
    keeper = SidecarKeeper(str(store), str(beside), str(archive), 1 << 30)
    keeper.step()
    keeper.close()
    sealed = len(Folder(str(beside), None).containers)
    done = export(str(beside), str(target), ExportRequest(names_of=str(store)))
    assert done.runs == ((0, sealed * SMALL),)
    fill(store, 300, archive)
    export(str(store), str(target), ExportRequest(archive=str(archive)))
    assert rows_in(target, "parquet") == all_of(store, archive)
    assert export(str(beside), str(target), ExportRequest()).records == 0


def test_only_what_is_sealed(tmp_path: Path) -> None:
    fill(tmp_path / "store", 300)
    log = open_journal(str(tmp_path / "store")).log
    done = export(str(tmp_path / "store"), str(tmp_path / "target"), ExportRequest(sealed_only=True))
    assert done.end_lsn == log.durable_lsn - log.durable_lsn % SMALL
