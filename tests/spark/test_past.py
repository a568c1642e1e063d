"""Tests of past states, which are read if the log is complete as of the LSN; otherwise gaps are reported."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from cairnmq.analytics.scan.read_lease import held
from cairnmq.analytics.spark.batch import JournalReader
from cairnmq.analytics.spark.options import PINNED, Pinned
from cairnmq.analytics.spark.source import JournalSource
from cairnmq.analytics.views.journal import open_journal
from cairnmq.base.errors import CairnError
from tests.harness.store.churn import SMALL, Churn

_STATES = ("messages", "places", "transactions", "queues")


class Past:
    """A store with an LSN at which ten messages were queued, which were dequeued later."""

    def __init__(self, path: Path, archive: Path | None = None, *, passing: int = 2) -> None:
        self.churn = Churn(path, archive)
        store, queue = self.churn.store, self.churn.queue
        self.options = {"path": str(path)} | ({"archive": str(archive)} if archive else {})
        ids = [store.put(queue, bytes(100), 0)[0] for _ in range(10)]
        store.kick()
        self.churn.pass_through(passing)
        self.lsn = store.journal.writer.durable_lsn
        """LSN as of which ten messages are queued."""
        for message_id in ids:
            store.dequeue(message_id, queue, 0)
        store.kick()
        store.journal.writer.write_mark()

    def reclaim(self) -> None:
        """Pass messages through the store until the log begins after `lsn`."""
        while not open_journal(str(self.churn.path)).log.first_lsn > self.lsn:
            self.churn.pass_through(2)
            self.churn.store.journal.writer.write_mark()

    def rows(self, view: str, **more: str) -> list[dict[str, object]]:
        source = JournalSource(self.options | {"view": view} | more)
        reader = source.reader(source.schema())
        assert isinstance(reader, JournalReader)
        return [
            row for part in reader.partitions() for batch in reader.read(part)
            for row in pa.Table.from_batches([batch]).to_pylist()
        ]  # fmt: skip

    def depth(self, lsn: int, **more: str) -> int:
        return sum(int(str(row["depth"])) for row in self.rows("queues", endingLsn=str(lsn), **more))


def test_what_was_reclaimed_since_is_not_left_out_in_silence(tmp_path: Path) -> None:
    past = Past(tmp_path / "store")
    past.reclaim()
    for view in _STATES:
        with pytest.raises(CairnError) as raised:
            past.rows(view, endingLsn=str(past.lsn))
        said = str(raised.value)
        assert f"the view {view} as of LSN {past.lsn} needs all that the log had then" in said
        assert "was reclaimed since" in said
        assert "failOnDataLoss=false" in said
        begin = int(re.findall(r"as of LSN (\d+) and later", said)[0])
        for lsn in range(begin, past.churn.store.journal.writer.durable_lsn + SMALL, SMALL // 3):
            past.rows(view, endingLsn=str(lsn))
        past.rows(view)
        past.rows(view, endingLsn=str(past.lsn), failOnDataLoss="false")
    assert past.depth(past.lsn, failOnDataLoss="false") < 10
    past.churn.store.close()


def test_what_is_there_is_told_as_it_was(tmp_path: Path) -> None:
    """A past state is read from the log until it is reclaimed, and from an archive at any later time."""
    past = Past(tmp_path / "store", passing=0)
    assert past.depth(past.churn.store.journal.writer.durable_lsn) == 0
    assert past.depth(past.lsn) == 10
    past.churn.store.close()
    past = Past(tmp_path / "archived", tmp_path / "archive")
    past.reclaim()
    assert past.depth(past.lsn) == 10
    past.churn.store.close()


def test_an_archive_whose_beginning_was_removed(tmp_path: Path) -> None:
    past = Past(tmp_path / "store", tmp_path / "archive")
    past.reclaim()
    past.churn.store.close()
    assert past.depth(past.lsn) == 10
    min((tmp_path / "archive").glob("*.cairn")).unlink()  # as the archive's limits do
    with pytest.raises(CairnError, match=f"as of LSN {past.lsn} needs all that the log had then, and LSN 0 to {SMALL}"):
        past.depth(past.lsn)


def test_a_look_is_read_as_it_was_or_not_at_all(tmp_path: Path) -> None:
    """Views read one after another with a pinned LSN have one state, or an error, beside a running broker."""
    past = Past(tmp_path / "store", passing=0)
    path = str(past.churn.path)
    look = {PINNED: Pinned.of(open_journal(path).log).as_option}
    with held(path):
        past.reclaim()  # the files stay on the disk
        assert past.depth(past.lsn, **look) == 10
        for view in _STATES:
            past.rows(view, endingLsn=str(past.lsn), **look)

    def go_on() -> None:
        while past.depth(past.lsn, **look) == 10:
            past.churn.pass_through(2)
            past.churn.store.journal.writer.write_mark()

    with pytest.raises(CairnError, match="was there when this began, and was reclaimed since; start again; name an"):
        go_on()
    past.churn.store.close()
