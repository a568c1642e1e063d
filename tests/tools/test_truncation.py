"""Tests of truncated histories: each tool that reads one reports this in one line on standard error."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.harness.process import broker
from tests.harness.store.churn import Churn

from .conftest import Dump


def filled(path: Path, *, stays: bool, archive: Path | None = None) -> str:
    """Write a store with a truncated log, and return its path; with *stays*, live messages leave gaps in the log."""
    churn = Churn(path, archive)
    for _ in range(8):
        if stays:
            churn.store.put(churn.queue, bytes(10_000), 0)
            churn.store.kick()
        churn.pass_through(2)
    churn.store.put(churn.queue, b"the last one", 0)
    churn.store.kick()
    churn.store.close()
    return str(path)


def calls(store: str, target: Path, *more: str) -> list[list[str]]:
    """Return a call of each tool, with the options that name an archive."""
    return [
        ["sql", store, "select count(*) from messages", *more],
        ["dump", store, "--summary", *more],
        ["as-of", store, *more, "end"],
        ["trace", store, "--message-id", "nothing", *more],
        ["export", store, str(target), *more],
        *([] if more else [["stat", store]]),
    ]


@pytest.mark.parametrize("stays", [False, True])
def test_an_answer_over_a_truncated_history_says_so(tmp_path: Path, command: Dump, stays: bool) -> None:
    store = filled(tmp_path / "store", stays=stays)
    said = "history has gaps: " if stays else "history begins at LSN "
    for call in calls(store, tmp_path / "lake"):
        lines = [line for line in command(*call).err.splitlines() if said in line]
        assert len(lines) == 1, call
        assert "reclaimed" in lines[0]
        assert "use --archive-dir to keep them" in lines[0]


@pytest.mark.parametrize("stays", [False, True])
def test_replay_of_a_truncated_history_says_so(tmp_path: Path, command: Dump, stays: bool) -> None:
    store = filled(tmp_path / "store", stays=stays)
    said = "history has gaps: " if stays else "history begins at LSN "
    with broker(tmp_path / "target") as running:
        found = command("replay", store, "--to", f"127.0.0.1:{running.port}/there", "--create")
    [line] = [line for line in found.err.splitlines() if said in line]
    assert "reclaimed" in line


def test_a_complete_history_needs_no_such_line(tmp_path: Path, command: Dump) -> None:
    store = filled(tmp_path / "store", stays=False, archive=tmp_path / "archive")
    for call in calls(store, tmp_path / "lake", "--archive-dir", str(tmp_path / "archive")):
        assert "reclaimed" not in command(*call).err, call


def test_spark_warns_when_it_plans(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from cairnmq.analytics.spark.source import JournalSource

    source = JournalSource({"path": filled(tmp_path / "store", stays=False), "view": "messages"})
    with caplog.at_level(logging.WARNING):
        source.reader(source.schema()).partitions()
    [record] = [record for record in caplog.records if "history begins at LSN" in record.getMessage()]
    assert record.levelno == logging.WARNING
