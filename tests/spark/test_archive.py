"""Tests that a batch with an archive is complete, or reports the missing containers."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairnmq.analytics.spark.source import JournalSource
from cairnmq.analytics.views.journal import open_journal
from cairnmq.base.errors import CairnError

from .conftest import fill_store


def test_an_archive_that_misses_something_fails_a_batch(tmp_path: Path) -> None:
    path, archive = tmp_path / "store", tmp_path / "archive"
    fill_store(path, 4000, archive)
    options = {"path": str(path), "archive": str(archive)}

    def parts(**more: str) -> int:
        source = JournalSource(options | more)
        return len(source.reader(source.schema()).partitions())

    first, second, third, *_ = sorted(archive.glob("*.cairn"))
    complete = parts(maxPartitionBytes="64k")
    first.unlink()  # as the archive's limits do
    assert parts(maxPartitionBytes="64k") == complete - 1
    third.unlink()
    [gap] = open_journal(str(path), archive=str(archive)).log.gaps[1:]
    with pytest.raises(CairnError, match=rf"LSN {gap.first_lsn} to {gap.end_lsn} was asked for.*failOnDataLoss"):
        parts()
    assert parts(maxPartitionBytes="64k", failOnDataLoss="false") == complete - 2
    assert parts(maxPartitionBytes="64k", startingLsn=str(gap.end_lsn)) < complete
    assert second.exists()
