"""Tests of reading a journal while it is written, recycled and compacted: rows are correct, complete and unique."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cairnmq.analytics.scan.files import LogPiece, _containers, find_again, open_log
from cairnmq.analytics.scan.scanner import Reclaimed
from cairnmq.analytics.views.journal import Journal, open_journal
from cairnmq.analytics.views.records import ReadOptions
from cairnmq.base.disk.real import RealDirectory
from cairnmq.journal.format.container import decode_head, encode_head, file_name
from cairnmq.journal.read.scanner import LogReader
from tests.harness.columns.live_store import SMALL, written
from tests.harness.columns.logs import COMPARED, rows

Row = dict[str, Any]


def check_lives(journal: Journal) -> int:
    """Check that messages are unique and in a valid state, and return the number of queued ones."""
    found = journal.messages(ReadOptions(lose=True), ["message_id", "state", "places"]).to_pylist()
    ids = [row["message_id"] for row in found]
    assert ids == sorted(set(ids))
    for row in found:
        assert len(row["places"]) <= 1
        assert row["state"] in ("queued", "removed", "open"), row
    return sum(row["state"] == "queued" for row in found)


def test_reading_beside_a_writer(tmp_path: Path) -> None:
    """With an archive, each reader sees all records that were ever in the log, up to its end LSN."""
    path, archive = tmp_path / "store", tmp_path / "archive"
    archive.mkdir()
    looks: list[tuple[Journal, list[Row]]] = []
    with written(path, archive):
        while len(looks) < 12 or looks[-1][0].log.durable_lsn < 60 * SMALL:
            journal = open_journal(str(path), archive=str(archive))
            looks.append((journal, rows(journal, ReadOptions(verify=True))))
            assert check_lives(journal) < 1000
    everything = rows(open_journal(str(path), archive=str(archive)))
    assert everything[0]["lsn"] == 576
    assert open_journal(str(path)).log.base_lsn > SMALL, "nothing was reclaimed"
    for journal, seen in looks:
        assert not journal.log.gaps  # also while containers were being archived
        assert seen == [row for row in everything if row["lsn"] < journal.log.durable_lsn]


def test_what_waited_for_the_archive_at_a_kill_is_read(tmp_path: Path) -> None:
    """Containers that left the log and were not archived before a kill are read, too."""
    path, archive = tmp_path / "store", tmp_path / "archive"
    archive.mkdir()
    with written(path, archive):
        while open_journal(str(path)).log.base_lsn < 20 * SMALL:
            pass
    everything = rows(open_journal(str(path), archive=str(archive)))
    archived = sorted(archive.glob("*.cairn"))
    assert len(archived) > 6
    free = max(int(file.stem) for file in (path / "journal").glob("*.cairn"))
    for number, file in enumerate([archived[0], *archived[-3:]], free + 1):  # back in the journal, under other numbers
        data = file.read_bytes()
        head = encode_head(decode_head(data, str(file))._replace(number=number))
        (path / "journal" / file_name(number)).write_bytes(head + data[len(head) :])
        file.unlink()
    journal = open_journal(str(path), archive=str(archive))
    assert not journal.log.gaps
    assert rows(journal) == everything
    for file in archived[1:4]:
        file.unlink()  # as the archive's limits do
    journal = open_journal(str(path), archive=str(archive))
    assert not journal.log.missing(journal.log.first_lsn, journal.log.durable_lsn)
    assert rows(journal) == [row for row in everything if row["lsn"] >= journal.log.first_lsn > 0]


def test_reading_without_an_archive(tmp_path: Path) -> None:
    """A container reclaimed while it is read is reported or left out; records of another slot never appear in it."""
    path = tmp_path / "store"
    seen: dict[int, Row] = {}
    reclaimed = 0
    with written(path):
        while len(seen) < 3000 or reclaimed < 3:
            journal = open_journal(str(path))
            found = rows(journal, ReadOptions(lose=True))
            lsns = [row["lsn"] for row in found]
            assert lsns == sorted(set(lsns))
            assert not lsns or lsns[-1] < journal.log.durable_lsn
            for row in found:
                assert seen.setdefault(row["lsn"], row) == row
            first = journal.log.pieces[0]
            batches = journal.records(columns=COMPARED, pieces=(first,))
            while open_journal(str(path)).log.base_lsn <= first.slot_lsn:
                pass
            try:
                late = [row for batch in batches for row in batch.to_pylist()]
            except Reclaimed:
                reclaimed += 1
                continue
            for row in late:
                assert seen.setdefault(row["lsn"], row) == row
    assert reclaimed


def test_a_container_that_moved_into_the_archive_is_found_there(tmp_path: Path) -> None:
    path, archive = tmp_path / "store", tmp_path / "archive"
    archive.mkdir()
    with written(path, archive):
        while (journal := open_journal(str(path))).log.durable_lsn < 3 * SMALL:
            pass
        journal = open_journal(str(path), archive=str(archive))
        first = journal.log.pieces[-1]
        while not (again := find_again(journal.log, first.slot_lsn)) or not again.path.startswith(str(archive)):
            pass
    assert again.is_archived
    assert [row["lsn"] for row in rows(open_journal(str(archive)), columns=["lsn"])]
    piece = replace(first, path=str(path / "journal" / "gone.cairn"))
    found = [row for batch in journal.records(columns=COMPARED, pieces=(piece,)) for row in batch.to_pylist()]
    assert found == [row for row in rows(open_journal(str(archive))) if row["lsn"] in {one["lsn"] for one in found}]
    assert found


def test_a_container_made_anew_under_the_name_is_not_the_one_that_was_seen(tmp_path: Path) -> None:
    """A file that was archived between two reads of its header and replaced by a free one is not used."""
    path = tmp_path / "store"
    with written(path):
        while open_journal(str(path)).log.durable_lsn < 10 * SMALL:
            pass
    journal = path / "journal"
    reader = LogReader(RealDirectory(str(journal)))
    slot = reader.slots[1]
    (journal / file_name(reader.heads.by_slot[slot].number)).write_bytes(bytes(SMALL))
    assert _containers(str(journal), reader, history=False).keys() == {*reader.slots} - {slot}


@pytest.mark.parametrize("history", [False, True])
def test_what_left_the_log_may_still_be_there(tmp_path: Path, *, history: bool) -> None:
    path = tmp_path / "store"
    found: list[list[LogPiece]] = []
    with written(path):
        while len(found) < 5 or (history and not any(found)):
            log = open_log(str(path), history=history)
            if log.base_lsn >= 10 * SMALL:
                found.append([piece for piece in log.pieces if piece.slot_lsn + SMALL <= log.base_lsn])
    assert any(found) == history
    assert log.missing(0, log.first_lsn)[0].is_reclaimed
