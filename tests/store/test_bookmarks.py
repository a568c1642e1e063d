"""Tests of bookmarks: the log keeps the part that a reader of its history needs, over restarts, but not forever."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.analytics.scan.files import open_log
from cairnmq.analytics.views.retention_lease import hold
from cairnmq.base.errors import CairnError
from cairnmq.journal.files.archive import archived_lsn
from cairnmq.store.journaled.metrics import measure
from cairnmq.store.journaled.retention_leases import (
    NOWHERE,
    Bookmark,
    Bookmarks,
    read_bookmark,
    read_bookmarks,
    remove_bookmark,
    write_bookmark,
)
from tests.harness.store.churn import SMALL, Churn

ROOM = 1 << 40


def test_what_lies_behind_a_bookmark_is_kept_and_goes_when_it_moves_on(tmp_path: Path) -> None:
    churn = Churn(tmp_path)
    begin = churn.pass_through(3)
    write_bookmark(str(tmp_path), Bookmark("reader", begin, ROOM))
    end = churn.pass_through(20)
    assert churn.missing_from(begin) == 0
    assert churn.store.journal.extent.base_lsn > begin + 10 * SMALL
    assert measure(churn.store).kept_containers >= 10
    assert dict(measure(churn.store).bookmarks) == {"reader": end - begin}
    middle = begin + 10 * SMALL
    write_bookmark(str(tmp_path), Bookmark("reader", middle, ROOM))
    churn.pass_through(8)
    assert churn.missing_from(middle) == 0
    assert churn.missing_from(begin) > 0
    assert remove_bookmark(str(tmp_path), "reader")
    churn.store.journal.pool.settle()
    assert measure(churn.store).kept_containers == 0
    churn.store.close()


@pytest.mark.parametrize("how", ["closed", "killed"])
@pytest.mark.parametrize("archived", [False, True])
def test_it_is_kept_over_a_restart(tmp_path: Path, how: str, *, archived: bool) -> None:
    archive = tmp_path / "archive" if archived else None
    path = tmp_path / "store"
    churn = Churn(path, archive)
    begin = churn.pass_through(3)
    write_bookmark(str(path), Bookmark("reader", begin, ROOM))
    churn.pass_through(10)
    for _ in range(3):
        if how == "closed":
            churn.store.close()
        else:
            churn.store.journal.abandon()
            churn.store._release()
        churn.store = churn.open()
        churn.pass_through(6)
        log = open_log(str(path), str(archive) if archive else None, history=True)
        assert not log.missing(begin, log.durable_lsn)
    if archive is not None:
        assert len([name for name in archive.iterdir() if archived_lsn(name.name) is not None]) > 10
    churn.store.close()


def test_one_that_is_too_far_behind_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    churn = Churn(tmp_path)
    begin = churn.pass_through(3)
    write_bookmark(str(tmp_path), Bookmark("slow", begin, 12 * SMALL))
    write_bookmark(str(tmp_path), Bookmark("other", begin, ROOM))
    with caplog.at_level(logging.WARNING):
        churn.pass_through(11)
        assert "bookmark slow is" in caplog.text
        assert "its reader is too slow or has stopped" in caplog.text
        assert read_bookmark(str(tmp_path), "slow")
        churn.pass_through(4)
    assert f"bookmark slow was dropped at LSN {begin}" in caplog.text
    assert [bookmark.name for bookmark in read_bookmarks(str(tmp_path))] == ["other"]
    assert measure(churn.store).dropped_bookmarks == 1
    assert churn.missing_from(begin) == 0
    churn.store.close()


def test_a_full_disk_drops_all(tmp_path: Path) -> None:
    store = str(tmp_path)
    write_bookmark(store, Bookmark("a", 5, ROOM))
    bookmarks = Bookmarks(store)
    assert bookmarks.kept_from(100, is_full=False) == 5
    assert bookmarks.kept_from(100, is_full=True) == NOWHERE
    assert read_bookmarks(store) == []
    assert bookmarks.dropped == 1


JUNK = [b'{"lsn": -1, "most_bytes": 1}', b"[]", b'{"lsn": "a"}', b"null"]


@given(junk=st.binary(max_size=40) | st.sampled_from(JUNK))
def test_what_is_no_bookmark_holds_nothing(tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
    path = tmp_path_factory.mktemp("junk")
    (path / "bookmarks").mkdir()
    (path / "bookmarks" / "x.json").write_bytes(junk)
    (path / "bookmarks" / "dir.json").mkdir()
    assert read_bookmarks(str(path)) == []
    write_bookmark(str(path), Bookmark("x", 1, 2))
    assert read_bookmark(str(path), "x") == Bookmark("x", 1, 2)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 65, "a b"])
def test_a_name_is_a_file_in_its_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(CairnError, match="no such name can be given"):
        write_bookmark(str(tmp_path), Bookmark(name, 1, 2))
    assert not (tmp_path / "bookmarks").exists()


def test_a_reader_that_begins_again_lets_go_of_nothing(tmp_path: Path) -> None:
    """A reader that asks for a place in the log before it reads its bookmark does not move the bookmark."""
    churn = Churn(tmp_path)
    begin = churn.pass_through(3)
    write_bookmark(str(tmp_path), Bookmark("reader", begin, ROOM))
    churn.pass_through(6)
    churn.store.journal.writer.write_mark()
    hold(open_log(str(tmp_path)), "reader", open_log(str(tmp_path)).first_lsn, ROOM)
    churn.pass_through(6)
    assert churn.missing_from(begin) == 0
    hold(open_log(str(tmp_path)), "other", begin + SMALL, ROOM)
    assert read_bookmark(str(tmp_path), "other") == Bookmark("other", begin + SMALL, ROOM)
    churn.store.close()
