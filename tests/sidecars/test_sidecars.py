"""Tests that column indexes equal the records of their containers, also after an interrupted compaction."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.analytics.sidecars import folder
from cairnmq.analytics.sidecars.folder import Folder
from cairnmq.analytics.sidecars.keeper import SidecarKeeper
from cairnmq.analytics.sidecars.sidecar import COLUMNS, HALF, HELD, SUFFIX, Summary, is_complete, make, merge, read
from cairnmq.analytics.views.journal import open_journal
from cairnmq.analytics.views.records import ReadOptions
from cairnmq.base.disk.seam import Directory
from cairnmq.base.errors import ForeignStore, StoreInUse
from tests.harness.columns.live_store import written
from tests.harness.columns.logs import lay_out, live

BIG = 1 << 30


def as_table(sidecars: Folder) -> pa.Table:
    return pa.concat_tables(pq.read_table(one.path).replace_schema_metadata(None) for one in sidecars.sidecars)


def expected(store: str, containers: set[int]) -> pa.Table:
    journal = open_journal(store, history=True)
    pieces = tuple(piece for piece in journal.log.pieces if piece.slot_lsn in containers)
    batches = journal.records(ReadOptions(COLUMNS, permissive=True), list(COLUMNS), pieces=pieces)
    return pa.Table.from_batches(batches)


def files_of(seed: int) -> Directory:
    files: Directory = live(seed, 600).files
    return files


@settings(max_examples=12)
@given(seed=st.integers(0, 2**32), together=st.integers(2, 4))
def test_sidecars_hold_the_heads_of_all_sealed_containers(
    tmp_path_factory: pytest.TempPathFactory, seed: int, together: int
) -> None:
    path = tmp_path_factory.mktemp("sidecars")
    store = lay_out(files_of(seed), path / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder, "TOGETHER", together)
        keeper = SidecarKeeper(store, str(path / "beside"), None, BIG)
        made = keeper.step()
        assert keeper.step() == 0
        keeper.close()
    found = Folder(str(path / "beside"), open_journal(store).log.uuid)
    sealed = {piece.slot_lsn for piece in open_journal(store, history=True).log.pieces if piece.last_lsn}
    assert found.containers == sealed
    assert len(sealed) == made
    assert not found.remarks
    if sealed:
        assert as_table(found) == expected(store, sealed)


def test_a_summary_counts_what_is_there(tmp_path: Path) -> None:
    store = lay_out(files_of(5), tmp_path / "store")
    journal = open_journal(store, history=True)
    piece = next(piece for piece in journal.log.pieces if piece.last_lsn)
    os.mkdir(tmp_path / "beside")
    sidecar = make(journal, [piece], str(tmp_path / "beside"))
    rows = expected(store, {piece.slot_lsn}).to_pylist()
    types = {row["type"] for row in rows}
    puts = [row for row in rows if row["type"] == "enqueue" or (row["type"] == "start" and row["flags"] & 1)]
    takes = [row for row in rows if row["type"] == "dequeue"]
    ids = [row["message_id"] for row in rows if row["message_id"]]
    queues = {row["queue_id"] for row in puts + takes if not row["moved"]}
    assert sidecar.summaries == (
        Summary(
            container=piece.slot_lsn, incarnation=piece.incarnation, last_lsn=piece.last_lsn,
            first_lsn=rows[0]["lsn"], end_lsn=rows[-1]["lsn"] + 1, records=len(rows),
            moved=sum(row["moved"] for row in rows), payload_bytes=sum(row["size"] for row in rows),
            first_us=sidecar.summaries[0].first_us, last_us=sidecar.summaries[0].last_us,
            first_message_id=min(ids), last_message_id=max(ids), damaged_blocks=0,
            types={kind: sum(row["type"] == kind for row in rows) for kind in types},
            queues={
                str(queue): (
                    sum(row["queue_id"] == queue and not row["moved"] for row in puts),
                    sum(row["queue_id"] == queue and not row["moved"] for row in takes),
                )
                for queue in queues
            },
        ),
    )  # fmt: skip
    assert read(sidecar.path) == sidecar
    assert is_complete(sidecar)
    data = bytearray(Path(sidecar.path).read_bytes())
    data[len(data) // 2] ^= 1
    Path(sidecar.path).write_bytes(data)
    assert not is_complete(sidecar)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the automatic compaction of column indexes."""
    monkeypatch.setattr(folder, "TOGETHER", 1000)


@pytest.mark.usefixtures("apart")
def test_after_a_crash_while_they_are_compacted_nothing_is_there_twice(tmp_path: Path) -> None:
    store = lay_out(files_of(7), tmp_path / "store")
    beside = str(tmp_path / "beside")
    keeper = SidecarKeeper(store, beside, None, BIG)
    keeper.step()
    keeper.close()
    uuid = open_journal(store).log.uuid
    parts = Folder(beside, uuid).sidecars
    assert len(parts) > 4
    before = as_table(Folder(beside, uuid))
    merge(parts[1:4], beside)
    half = Path(beside, f"{'0' * 16}-{'1' * 16}{SUFFIX}{HALF}")
    half.write_bytes(b"cut off")
    cut = Folder(beside, uuid)  # the merged parts were not deleted yet
    assert len(cut.sidecars) == len(parts) - 2
    assert as_table(cut) == before
    keeper = SidecarKeeper(store, beside, None, BIG)
    assert not half.exists()
    assert len(list(Path(beside).glob(f"*{SUFFIX}"))) == len(parts) - 2
    assert keeper.step() == 0
    keeper.close()


@pytest.mark.usefixtures("apart")
def test_what_is_no_sidecar_is_said_and_made_again(tmp_path: Path) -> None:
    store = lay_out(files_of(9), tmp_path / "store")
    beside = tmp_path / "beside"
    keeper = SidecarKeeper(store, str(beside), None, BIG)
    made = keeper.step()
    keeper.close()
    first = min(beside.glob(f"*{SUFFIX}"))
    first.write_bytes(first.read_bytes()[:-20])
    damaged = first.rename(first.with_name(first.name.replace(first.name[34:42], "00000000")))
    found = Folder(str(beside), open_journal(store).log.uuid)
    assert [str(damaged) in remark and "remove it" in remark for remark in found.remarks] == [True]
    assert len(found.containers) == made - 1
    keeper = SidecarKeeper(store, str(beside), None, BIG)
    assert not first.exists()  # damaged: deleted, so that it is not read
    assert keeper.step() == 1
    keeper.close()
    assert first.exists()
    assert not damaged.exists()


def test_what_became_part_of_another_is_there_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, beside = lay_out(files_of(9), tmp_path / "store"), tmp_path / "beside"
    monkeypatch.setattr(folder, "TOGETHER", 2)
    keeper = SidecarKeeper(store, str(beside), None, BIG)
    assert keeper.step() > 2
    keeper.close()
    held = {path.name for path in (beside / HELD).iterdir()}
    assert held > {path.name for path in beside.glob(f"*{SUFFIX}")}
    seen = ds.dataset(beside, format="parquet", exclude_invalid_files=True)  # the lock file is not a Parquet file
    assert seen.count_rows() == len(as_table(keeper.folder))
    monkeypatch.setattr(folder, "HELD_S", -1.0)
    keeper.folder.let_go()
    assert {path.name for path in (beside / HELD).iterdir()} == {path.name for path in beside.glob(f"*{SUFFIX}")}


@pytest.mark.usefixtures("apart")
def test_they_keep_to_their_limit(tmp_path: Path) -> None:
    store = lay_out(files_of(11), tmp_path / "store")
    keeper = SidecarKeeper(store, str(tmp_path / "beside"), None, BIG)
    keeper.step()
    keeper.close()
    before = keeper.folder.sidecars
    assert len(before) > 2
    most_bytes = sum(one.size_bytes for one in before) - 1
    keeper = SidecarKeeper(store, str(tmp_path / "beside"), None, most_bytes)
    assert keeper.step() == 0  # a deleted file is not created again by this process
    keeper.close()
    assert keeper.folder.sidecars == before[1:]
    assert {one.path for one in before[1:]} == {str(path) for path in (tmp_path / "beside").glob(f"*{SUFFIX}")}


def test_one_process_keeps_them_and_those_of_one_log(tmp_path: Path) -> None:
    store = lay_out(files_of(13), tmp_path / "store")
    other = lay_out(files_of(13), tmp_path / "other")
    keeper = SidecarKeeper(store, str(tmp_path / "beside"), None, BIG)
    keeper.step()
    with pytest.raises(StoreInUse, match="another process"):
        SidecarKeeper(store, str(tmp_path / "beside"), None, BIG)
    keeper.close()
    shutil.rmtree(tmp_path / "other")
    with written(tmp_path / "other"):
        pass
    with pytest.raises(ForeignStore, match="another log"):
        SidecarKeeper(str(tmp_path / "other"), str(tmp_path / "beside"), None, BIG)
    assert other


def test_beside_a_log_that_is_written_recycled_and_relocated(tmp_path: Path) -> None:
    """Beside a store that is written, recycled and compacted, all sealed containers are indexed completely."""
    path = tmp_path / "store"
    archive = tmp_path / "archive"
    with written(path, archive):
        while not (path / "wiring.sqlite").exists():
            pass
        keeper = SidecarKeeper(str(path), str(tmp_path / "beside"), str(archive), BIG)
        while len(keeper.folder.containers) < 100:
            keeper.step()
    keeper.step()
    keeper.close()
    journal = open_journal(str(path), archive=str(archive), history=True)
    found = Folder(str(tmp_path / "beside"), journal.log.uuid)
    pieces = tuple(piece for piece in journal.log.pieces if piece.last_lsn)
    assert found.containers == {piece.slot_lsn for piece in pieces}
    complete = pa.Table.from_batches(journal.records(ReadOptions(COLUMNS), list(COLUMNS), pieces=pieces))
    assert as_table(found) == complete
