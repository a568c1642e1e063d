"""Tests of failing exports, which report the reason in one sentence and leave no incomplete commits."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cairnmq.analytics.export.exporter import export
from cairnmq.analytics.export.sources import ExportRequest
from cairnmq.analytics.export.target import Target
from cairnmq.analytics.sidecars.keeper import SidecarKeeper
from cairnmq.analytics.views.journal import open_journal
from cairnmq.base.errors import CairnError, CorruptJournal, ForeignStore, StoreInUse
from cairnmq.base.extras import install_hint
from cairnmq.store.embedded.library import open_store
from tests.harness.export.tables import KINDS, OPTIONS, SMALL, all_of, expected, fill, rows_in
from tests.harness.process import CAIRNMQ


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("made") / "store"
    fill(made, 600)
    return made


def run(*arguments: object, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [CAIRNMQ, "export", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=400, preexec_fn=limited)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_container(store: Path, tmp_path: Path, kind: str) -> None:
    """Only records before a damaged container are exported; with `skip_damaged`, only the damaged block is omitted."""
    hurt, target = tmp_path / "store", str(tmp_path / "target")
    shutil.copytree(store, hurt)
    journal = open_journal(str(hurt))
    rows, piece = expected(journal), journal.log.pieces[len(journal.log.pieces) // 2]
    victim = next(row for row in rows if row["lsn"] > piece.slot_lsn + 3000)
    assert victim["container"] == piece.slot_lsn > journal.log.first_lsn
    with open(piece.path, "r+b") as file:
        file.seek(victim["block"] - piece.slot_lsn + 100)
        file.write(b"rot")
    with pytest.raises(CorruptJournal, match=rf"{Path(piece.path).name}: LSN {victim['block']} .*--skip-damaged"):
        export(str(hurt), target, ExportRequest(kind=kind))
    assert [row["lsn"] for row in rows_in(Path(target), kind)] == [
        row["lsn"] for row in rows if row["lsn"] < piece.slot_lsn
    ]
    export(str(hurt), target, ExportRequest(skip_damaged=True))
    assert [row["lsn"] for row in rows_in(Path(target), kind)] == [
        row["lsn"] for row in rows if row["block"] != victim["block"]
    ]


def test_damaged_sidecars(store: Path, tmp_path: Path) -> None:
    beside = tmp_path / "beside"
    keeper = SidecarKeeper(str(store), str(beside), None, 1 << 30)
    keeper.step()
    keeper.close()
    with pytest.raises(CairnError, match=r"sidecars have heads only, and no payload; export the store"):
        export(str(beside), str(tmp_path / "target"), ExportRequest(columns=("lsn", "payload")))
    file = max(beside.glob("*.parquet"))
    data = bytearray(file.read_bytes())
    data[40] ^= 1
    file.write_bytes(data)
    with pytest.raises(CairnError, match=rf"{file.name}: its checksum does not match: it is damaged; remove it"):
        export(str(beside), str(tmp_path / "target"), ExportRequest(commit_bytes=1))
    rest = [row["lsn"] for row in rows_in(tmp_path / "target", "parquet", ("lsn",))]
    assert rest
    file.unlink()
    export(str(store), str(tmp_path / "target"), ExportRequest())
    found = [row["lsn"] for row in rows_in(tmp_path / "target", "parquet", ("lsn",))]
    journal = open_journal(str(store))
    first = journal.log.first_lsn  # the column index may include retired containers that are not reused yet
    assert [lsn for lsn in found if lsn >= first] == [row["lsn"] for row in expected(journal)]
    assert [lsn for lsn in found if lsn < first] == [lsn for lsn in rest if lsn < first]


def test_whose_the_target_is(store: Path, tmp_path: Path) -> None:
    other, target, full = tmp_path / "other", tmp_path / "target", tmp_path / "full"
    fill(other, 20)
    export(str(store), str(target), ExportRequest())
    complete = rows_in(target, "parquet")
    with pytest.raises(ForeignStore, match=r"the export of another log, .*name another directory"):
        export(str(other), str(target), ExportRequest())
    with pytest.raises(ForeignStore, match=r"another choice \(its format: parquet, not delta\)"):
        export(str(store), str(target), ExportRequest(kind="delta"))
    with pytest.raises(ForeignStore, match=r"another choice \(columns: lsn,.* not lsn\)"):
        export(str(store), str(target), ExportRequest(columns=("lsn",)))
    with pytest.raises(ForeignStore, match="partitioned by: day,queue, not none"):
        export(str(store), str(target), ExportRequest(partition=()))
    assert rows_in(target, "parquet") == complete
    full.mkdir()
    (full / "thesis.txt").write_text("mine")
    for wrong, reason in ((full, "not empty .'thesis.txt' is in it., and no export"), (store, "not empty")):
        with pytest.raises(ForeignStore, match=reason):
            export(str(store), str(wrong), ExportRequest())
    assert os.listdir(full) == ["thesis.txt"]
    with pytest.raises(CairnError, match="not a directory"):
        export(str(store), str(full / "thesis.txt"), ExportRequest())
    locked = Target(str(target))
    with pytest.raises(StoreInUse, match="another export is writing there"):
        export(str(store), str(target), ExportRequest())
    locked.close()


REMOTE = ["s3://bucket/table", "s3a:bucket", "dbfs:/x", "DBFS:/x", "abfss:/c@a/x", "hdfs:/x", "gs:x", "file:/x", "x-y.z://h"]


@pytest.mark.parametrize("target", REMOTE)
def test_export_target_on_an_object_store_is_refused(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(CairnError, match=f"{target}: exports go to file systems only; mount it and name"):
        export(str(store), target, ExportRequest())
    assert sorted(tmp_path.iterdir()) == before


def test_export_target_may_be_a_directory_with_such_a_name(store: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert export(str(store), "./dbfs:x", ExportRequest()).records


def test_an_older_copy_of_the_store(store: Path, tmp_path: Path) -> None:
    newer, target = tmp_path / "newer", str(tmp_path / "target")
    shutil.copytree(store, newer)
    fill(newer, 100)
    end_lsn = export(str(newer), target, ExportRequest()).end_lsn
    with pytest.raises(CairnError, match=rf"and the export contains the log up to LSN {end_lsn}; it is an older copy"):
        export(str(store), target, ExportRequest())


def test_what_says_how_far_it_has_come(store: Path, tmp_path: Path) -> None:
    export(str(store), str(tmp_path), ExportRequest())
    for name, text in (
        ("state.json", "{"), ("state.json", '{"exported": [[5, 4]], "moving": [], "is_writing": false}'),
        ("export.json", "[]"), ("export.json", '{"format": 1}'), ("export.json", '{"format": 9}'),
    ):  # fmt: skip
        place = tmp_path / "_cairnmq" / name
        kept = place.read_text()
        place.write_text(text)
        with pytest.raises(CairnError, match=f"{name}: .*(can't be read: .*; restore it, or export|newer version)"):
            export(str(store), str(tmp_path), ExportRequest())
        place.write_text(kept)
    assert export(str(store), str(tmp_path), ExportRequest()).records == 0


ODD = "we*ird {c,d} é"
"""Characters that are special in globs and URLs, and that all formats support in paths."""
UNFIT = {"parquet": "", "delta": "[]%\\", "iceberg": "#?"}


@pytest.mark.parametrize("kind", KINDS)
def test_odd_names(store: Path, tmp_path: Path, kind: str) -> None:
    """Paths may contain special characters, except those that the library of a format cannot use."""
    source, archive = tmp_path / f"store %20 #x? [ab] {ODD}", tmp_path / f"archive %20 #x? [ab] {ODD}"
    fill(source, 200, archive)
    known = sorted(os.listdir(tmp_path))
    for one in UNFIT[kind]:
        done = run(source, tmp_path / f"a{one}20b", "--format", kind)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert f"a{one}20b: the library for {kind} can't have {one!r} in the path of a table; name" in done.stderr
    assert sorted(os.listdir(tmp_path)) == known
    others = "".join(one for some in UNFIT.values() for one in some if one not in UNFIT[kind])
    target = tmp_path / f"{ODD} {others}20"
    done = run(source, target, "--format", kind, "--archive-dir", archive)
    assert done.returncode == 0, done.stderr
    assert rows_in(target, kind) == all_of(source, archive)
    assert sorted(os.listdir(tmp_path)) == sorted([*known, target.name])


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk(tmp_path: Path, kind: str) -> None:
    """If the disk or a quota is full, committed records are kept, and the export continues once space is available."""
    store, target = tmp_path / "store", tmp_path / "target"
    with open_store(str(store), options=OPTIONS) as made:
        for size in (10, 3000):
            made.queue("q").put_all([os.urandom(size) for _ in range(100)]).result()
    done = run(store, target, "--format", kind, "--commit-size", 8 * SMALL, "--payload", limit=40_000)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]  # Rust libraries may write lines before the error
    assert last.startswith(f"cairnmq: {target}: no space left"), done.stderr
    assert last.endswith("free some space or raise the quota")
    done = run(store, target, "--format", kind, "--payload", "--json")
    assert done.returncode == 0, done.stderr
    rows = expected(open_journal(str(store)))
    assert [row["lsn"] for row in rows_in(target, kind)] == [row["lsn"] for row in rows]


def test_the_command(store: Path, tmp_path: Path) -> None:
    first = run(store, tmp_path / "target")
    assert first.returncode == 0
    rows = len(expected(open_journal(str(store))))
    assert first.stdout.startswith(f"{rows} records, ")
    told = json.loads(run(store, tmp_path / "target", "--json").stdout)
    assert (told["records"], told["commits"], told["end_lsn"]) == (0, 0, told["exported"][-1][1])
    for arguments, reason in (
        ((tmp_path / "gone", tmp_path / "t"), "no such directory"),
        ((store, tmp_path / "t", "--format", "orc"), "'orc' is not one of 'parquet', 'delta', 'iceberg'"),
        ((store, tmp_path / "t", "--columns", "lsm"), "column 'lsm': unknown column; one of lsn"),
        ((store, tmp_path / "t", "--partition-by", "month"), "unknown partitioning"),
        ((store, tmp_path / "t", "--commit-size", "much"), "invalid size"),
    ):
        done = run(*arguments)
        assert (done.returncode, reason in done.stderr, done.stdout) == (2, True, ""), done.stderr
    assert not (tmp_path / "t").exists()


def test_what_is_not_installed(store: Path, tmp_path: Path) -> None:
    for kind, module in (("delta", "deltalake"), ("iceberg", "pyiceberg"), ("iceberg", "pyiceberg_core")):
        text = (
            f"import sys; sys.modules[{module!r}] = None\n"
            "from cairnmq.cli.main import cairnmq\n"
            f"cairnmq(['export', {str(store)!r}, {str(tmp_path / 't')!r}, '--format', {kind!r}])"
        )
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=400)
        assert done.returncode == 2
        assert f"--format {kind}: {module} is missing; {install_hint(kind)}" in done.stderr
