"""Tests of broken holds: on a full disk, the store reuses held containers, and their readers end with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cairnmq.analytics.export.exporter import export
from cairnmq.analytics.export.sources import ExportRequest
from cairnmq.analytics.views.journal import open_journal
from cairnmq.base.errors import HoldBroken
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.recovery.recover import recover
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.directory.hold import Hold
from cairnmq.store.journaled.directory import StoreDirectory
from cairnmq.store.wiring.wiring import Wiring
from cairnmq.tools.backup.backup import back_up
from cairnmq.tools.history.history_view import HistoryView
from cairnmq.tools.inspect.point_in_time import PointInTime
from tests.harness.export.tables import KINDS, Row, expected, rows_in
from tests.harness.store.small_disk import SmallDisk
from tests.harness.store.spares import make_spares
from tests.harness.store.stores import NOW_US, queue, shown

SIZE = 32 << 10
OPTIONS = StoreOptions(container_bytes=SIZE, min_container_bytes=4096, reserve_bytes=4 * SIZE)
REASONS = "the disk is full, and the broker had to reuse the space that was held for this; free some space"


class FullStore:
    """A store with messages on one queue, on a disk that is full to the last byte."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = StoreDirectory(str(path))
        self.disk = SmallDisk(self.place.journal, (4 << 20) + 40 * SIZE)
        wiring = Wiring.open(self.place.wiring_path)
        self.store, _ = recover(self.disk, wiring, ManualClock(), OPTIONS, self.place.close, holds=self.place)
        self.store.run_inline(self.store.became_durable)
        self.queue = queue(self.store)
        while not self.store.full():
            self.store.put_all(self.queue, [bytes(900)] * 30, NOW_US)
            self.store.kick()
            make_spares(self.store)
        self.disk.capacity_bytes = self.disk.used_bytes()

    def drain(self) -> None:
        """Dequeue all messages, for which the reserve is too small without the held containers."""
        for message_id in shown(self.store).get(self.queue, []):
            self.store.dequeue(message_id, self.queue, NOW_US)
            self.store.kick()
            make_spares(self.store)
        assert not self.place.is_held()
        assert not shown(self.store)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[FullStore]:
    made = FullStore(tmp_path / "store")
    yield made
    made.store.close()


def test_a_backup_ends_with_the_reason_and_leaves_nothing(full: FullStore, tmp_path: Path) -> None:
    def meanwhile(what: str, done: int, total: int) -> None:
        if what == "copying" and full.place.is_held():
            full.drain()

    with pytest.raises(HoldBroken, match=REASONS):
        back_up(str(full.path), str(tmp_path / "copy"), ManualClock(), meanwhile)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    made = back_up(str(full.path), str(tmp_path / "copy"), ManualClock(), lambda what, done, total: None)
    assert made.messages == 0


@pytest.mark.parametrize("kind", KINDS)
def test_an_export_commits_nothing_that_it_read_since(full: FullStore, tmp_path: Path, kind: str) -> None:
    """Rows that the export committed before are correct, and the next export continues after them."""
    target = tmp_path / "target"
    was: dict[int, Row] = {row["lsn"]: row for row in expected(open_journal(str(full.path)))}
    committed: list[int] = []

    def meanwhile(what: str, done: int, total: int) -> None:
        committed.append(done)
        if full.place.is_held():
            full.drain()

    with pytest.raises(HoldBroken, match=REASONS):
        export(str(full.path), str(target), ExportRequest(kind=kind, commit_bytes=3 * SIZE), meanwhile)
    assert len(committed) == 1
    rows = rows_in(target, kind)
    assert rows
    assert all(was[row["lsn"]] == row for row in rows)
    done = export(str(full.path), str(target), ExportRequest(commit_bytes=1 << 30))
    assert done.missing  # the range that the broker has reused is reported
    assert done.records > 0


def test_a_view_of_the_past_says_why_there_is_none(full: FullStore) -> None:
    with HistoryView([str(full.path)]) as past:
        moment = PointInTime("now", lsn=past.history.end_lsn)
        past.view(moment, lambda what, done, total: None).close()
        assert not any(REASONS in remark for remark in past.all_remarks())
        full.drain()
        assert any(REASONS in remark for remark in past.all_remarks())
        with pytest.raises(HoldBroken, match=REASONS):
            past.view(moment, lambda what, done, total: None)


def test_who_holds_anew_holds(full: FullStore) -> None:
    """A broken hold does not affect later ones, and the end of a hold does not end another one."""
    first = Hold(str(full.path))
    assert full.place.break_holds()
    assert not full.place.is_held()
    second, third = Hold(str(full.path)), Hold(str(full.path))
    with pytest.raises(HoldBroken, match=REASONS):
        first.check()
    first.end()
    second.end()
    third.check()
    assert full.place.is_held()
    third.end()
    assert not full.place.is_held()
