"""Tests that the records of a journal are the same with and without column indexes, complete or damaged."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cairnmq.analytics.sidecars import folder
from cairnmq.analytics.sidecars.folder import Folder
from cairnmq.analytics.sidecars.keeper import SidecarKeeper
from cairnmq.analytics.sidecars.sidecar import HELD, SUFFIX
from cairnmq.analytics.spark.options import parse
from cairnmq.analytics.spark.session import journal
from cairnmq.analytics.spark.united import planned
from cairnmq.analytics.views.journal import open_journal
from cairnmq.base.errors import CairnError
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.embedded.library import open_store
from tests.harness.export.tables import OPTIONS, SMALL, fill

Rows = list[str]


class Made(NamedTuple):
    """A store, its archive, and two directories of column indexes: compacted ones, and one for each container."""

    store: Path
    archive: Path
    compacted: Path
    single: Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    path = tmp_path_factory.mktemp("made")
    found = Made(*(path / name for name in Made._fields))
    found.archive.mkdir()
    _traffic(found.store, found.archive)
    with pytest.MonkeyPatch.context() as patch:
        for directory, together in ((found.compacted, 4), (found.single, 1000)):
            patch.setattr(folder, "TOGETHER", together)
            keeper = SidecarKeeper(str(found.store), str(directory), str(found.archive), 1 << 30)
            keeper.step()
            keeper.close()
    return found


def _traffic(store: Path, archive: Path) -> None:
    """Dequeue 2400 messages, and enqueue every tenth to a queue where it stays, so that it is relocated."""
    options = StoreOptions(**{**vars(OPTIONS), "archive_dir": str(archive)})
    with open_store(str(store), options=options) as opened:
        orders, staying = opened.queue("orders"), opened.queue("staying")
        for number in range(60):
            orders.put_all([b"%06d" % number * 8] * 40).result()
            with opened.transaction() as both:
                for place in range(40):
                    message = both.take(orders)
                    if message is not None and place % 10 == 0:
                        both.put(staying, message.content)


def rows(spark: SparkSession, made: Made, **options: object) -> Rows:
    found = journal(spark, str(made.store), **{"archive": made.archive, **options}).toArrow().to_pylist()
    return sorted(map(str, found))


def served(made: Made, directory: Path, **options: object) -> int:
    """Return the number of containers that are read from column indexes."""
    given = {"path": str(made.store), "archive": str(made.archive), "sidecarDir": str(directory)}
    plan = planned(parse({**given, **{name: str(value) for name, value in options.items()}}))
    return 0 if plan is None else sum(end - first for first, end in plan.elsewhere.runs) // SMALL


def test_what_options_select(spark: SparkSession, made: Made) -> None:
    own = open_journal(str(made.store), archive=str(made.archive))
    every = [row for batch in own.records() for row in batch.to_pylist()]
    assert any(row["moved"] for row in every), "nothing was relocated"
    time = next(row["time"] for row in every[len(every) // 2 :] if not row["moved"])  # a copy has its original's time
    low, high = every[len(every) // 5]["lsn"], every[-len(every) // 5]["lsn"]
    for options in (
        {"copies": "all", "types": "start,dequeue", "queues": "orders"},
        {"copies": "none", "startingTimestamp": time.isoformat(), "columns": "queue,lsn"},
        {"startingLsn": low, "endingLsn": high, "failOnDataLoss": False},
        {"endingTimestamp": time.isoformat(), "columns": "lsn,crc_ok,damaged_blocks", "mode": "PERMISSIVE"},
    ):  # fmt: skip
        without = rows(spark, made, useSidecar=False, **options)
        assert without
        assert served(made, made.compacted, **options) > 3
        assert rows(spark, made, sidecarDir=made.compacted, **options) == without


def test_whichever_there_are_and_however_they_are(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    """Column indexes may be missing, damaged, truncated, or of another log or container; the records are the same."""
    without = rows(spark, made, useSidecar=False)
    rng = random.Random(5)
    other = tmp_path / "other"
    fill(other, 200)
    keeper = SidecarKeeper(str(other), str(tmp_path / "others"), None, 1 << 30)
    keeper.step()
    keeper.close()
    complete = served(made, made.single)
    for number, source in enumerate((made.single, made.compacted, made.single, made.single)):
        without_second_names = shutil.ignore_patterns(HELD)
        beside = Path(shutil.copytree(source, tmp_path / f"beside-{number}", ignore=without_second_names))
        files = sorted(beside.glob(f"*{SUFFIX}"))
        if number == 0:
            for file in rng.sample(files, len(files) // 2):
                file.unlink()
        if number == 1:
            files[0].unlink()
        if number == 2:  # flipped bits, a truncated file, and an empty file
            for file in files[:4]:
                data = bytearray(file.read_bytes())
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                file.write_bytes(data)
            files[4].write_bytes(files[4].read_bytes()[:-50])
            files[5].write_bytes(b"")
            files[6].write_bytes(files[7].read_bytes())
        if number == 3:
            for file in (tmp_path / "others").glob(f"*{SUFFIX}"):
                for own in files[:5]:
                    if own.name[:33] == file.name[:33]:
                        own.unlink()
                shutil.copy(file, beside)
        assert 0 < served(made, beside) < complete
        assert rows(spark, made, sidecarDir=beside) == without


def test_what_only_sidecars_still_have(spark: SparkSession, made: Made) -> None:
    """Records that are left only in column indexes are read on demand; by default they are not."""
    log = open_journal(str(made.store)).log
    alone = sorted(map(str, journal(spark, str(made.store), useSidecar=False).toArrow().to_pylist()))
    auto = journal(spark, str(made.store), sidecarDir=made.compacted).toArrow().to_pylist()
    assert sorted(map(str, auto)) == alone
    options = {"startingLsn": 0, "failOnDataLoss": False, "copies": "all"}
    demanded = journal(spark, str(made.store), sidecarDir=made.compacted, useSidecar=True, **options)
    every = open_journal(str(made.store), archive=str(made.archive), history=True).records(columns=["lsn"])
    expected = [lsn for batch in every for lsn in batch["lsn"].to_pylist()]
    assert sorted(row.lsn for row in demanded.select("lsn").collect()) == expected
    assert expected[0] < log.first_lsn


def test_an_archive_with_sidecars_of_all_needs_no_container(spark: SparkSession, made: Made) -> None:
    frame = journal(spark, str(made.archive), sidecarDir=made.single, endingLsn=5 * SMALL)
    assert all(f"/{HELD}/" in name for name in frame.inputFiles()), "the broker may have others by then"
    assert len(frame.inputFiles()) == 5
    assert "BatchScan" not in frame._jdf.queryExecution().executedPlan().toString()
    assert frame.count() == journal(spark, str(made.archive), useSidecar=False, endingLsn=5 * SMALL).count()


def test_names_of_directories_are_no_patterns(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    """Directory names may have glob characters and characters with a meaning in URLs."""
    without = rows(spark, made, useSidecar=False)
    detailed = Made(*(tmp_path / f"{name} [ab] {{c,d}} *? %20 #x \\ ü" for name in Made._fields))
    for source, target in zip(made, detailed, strict=True):
        shutil.copytree(source, target)
    assert served(detailed, detailed.single) > 3
    for options in ({"useSidecar": False}, {"sidecarDir": detailed.single}, {"sidecarDir": detailed.compacted}):
        assert rows(spark, detailed, **options) == without


def test_where_sidecars_can_not_serve(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    for options, reason in (
        ({"view": "messages"}, "the view messages is made of containers"),
        ({"includePayload": True}, "the column payload is asked for"),
        ({"columns": "lsn,subject"}, "the column subject is asked for"),
        ({"verify": "full"}, "verify=full reads containers"),
        ({"sidecarDir": tmp_path}, f"{tmp_path}: no sidecar fits this log"),
    ):
        with pytest.raises(CairnError, match=reason):
            journal(spark, str(made.store), **{"sidecarDir": made.single, "useSidecar": True, **options})
        if "sidecarDir" not in options:
            assert served(made, made.single, **options) == 0
    summed = sum(one.records for sidecar in Folder(str(made.single), None).sidecars for one in sidecar.summaries)
    assert spark.read.parquet(str(made.single)).count() == summed, "second names are not passed by"
    with pytest.raises(PySparkException, match="'perhaps' is none of auto, true, false"):
        journal(spark, str(made.store), useSidecar="perhaps").count()
    with pytest.raises(PySparkException, match="the format journal reads containers only"):
        spark.read.format("journal").option("useSidecar", "true").load(str(made.store)).count()
    assert not Folder(str(made.single), None).remarks
