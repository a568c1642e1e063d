"""Tests of backups of divergent state: each is complete as of its LSN, whatever changes in the store later."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from cairnmq.base.disk import real
from cairnmq.base.errors import CairnError, DiskFull
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.journal.files import space_reserve as room
from cairnmq.recovery.recover import open_store
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.journaled.discarded_state import Aside
from cairnmq.store.journaled.store import JournalStore
from cairnmq.tools.inspect.journal_check import check_journal
from tests.harness.thorough import EVERY

SIZE = 512 << 10


class Kept:
    """A store, and the messages that its queue must contain."""

    def __init__(self, path: Path, seed: int = 1) -> None:
        self.path = path
        self.random = random.Random(seed)
        self.clock = ManualClock()
        self.live: dict[int, bytes] = {}
        self.store = open_store(str(path), self.clock, StoreOptions(SIZE))[0]
        self.queue = 0
        self.store.create_queue("q", self._created)

    def _created(self, row: Any) -> None:
        self.queue = row.id

    def put(self, count: int) -> None:
        for _ in range(count):
            content = self.random.randbytes(8) + bytes(20_000)
            self.live[self.store.put(self.queue, content, self.clock.wall_us())[0]] = content
        self.store.kick()

    def take(self, count: int) -> None:
        for message_id in self.random.sample([*self.live], min(count, len(self.live))):
            self.store.dequeue(message_id, self.queue, self.clock.wall_us())
            del self.live[message_id]
        self.store.kick()

    def aside(self, most: int = 2) -> Aside:
        return Aside(str(self.path), self.clock, most)


def contents(place: Path, scratch: Path) -> dict[int, bytes]:
    """Return the messages of a store without changing it, from a copy that is opened as by a broker."""
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(place, scratch)
    store, report = open_store(str(scratch), ManualClock())
    try:
        assert not report.homeless
        return {number: load(store, number) for numbers in store.messages().values() for number in numbers}
    finally:
        store.close()


def load(store: JournalStore, message_id: int) -> bytes:
    return b"".join(store.load_piece(message_id, number) for number in range(store.piece_count(message_id)))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_set_aside_stays_while_the_store_is_emptied_and_used_anew(tmp_path: Path, seed: int) -> None:
    made = Kept(tmp_path / "store", seed)
    for _ in range(20):
        made.put(30)
        made.take(made.random.choice((20, 25, 35)))
    there = dict(made.live)
    place = Path(made.aside().keep(made.store.durable_lsn).path)
    assert contents(place, tmp_path / "copy") == there
    made.take(len(made.live))
    for _ in range(20):
        made.put(60)
        made.take(60)
    assert contents(place, tmp_path / "copy") == there
    made.store.close()
    check_journal(real.RealDirectory(str(place / "journal")), "", lambda *_: None)
    assert contents(made.path, tmp_path / "copy") == made.live
    again = open_store(str(made.path), made.clock, StoreOptions(SIZE))[0]
    assert set(made.live) == {number for numbers in again.messages().values() for number in numbers}
    again.close()


def test_what_was_not_flushed_yet_may_be_missing_and_nothing_else(tmp_path: Path) -> None:
    made = Kept(tmp_path / "store")
    made.put(10)
    durable = dict(made.live)
    made.store.put(made.queue, b"later", 0)
    place = Path(made.aside().keep(made.store.durable_lsn).path)
    assert contents(place, tmp_path / "copy") == durable
    made.store.close()


def test_as_many_are_kept_as_are_wanted_and_the_oldest_goes_first(tmp_path: Path) -> None:
    made = Kept(tmp_path / "store")
    aside = made.aside(2)
    places = []
    for _ in range(4):
        made.put(3)
        made.clock.advance(60)
        places.append(Path(aside.keep(made.store.durable_lsn).path))
    assert [str(tmp_path / "store" / "aside" / name) for name in aside.names()] == [*map(str, places[2:])]
    aside.make_room()
    assert os.listdir(aside.path) == []
    made.store.close()


def test_without_room_for_the_log_once_more_older_ones_go_and_then_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Kept(tmp_path / "store")
    made.put(100)
    aside = made.aside()
    aside.keep(made.store.durable_lsn)
    least = room.high_water(SIZE)
    monkeypatch.setattr(real.RealDirectory, "free_bytes", lambda _: least)
    with pytest.raises(DiskFull, match=r"the log takes \d+ MiB anew, and \d+ MiB are left"):
        aside.keep(made.store.durable_lsn)
    assert os.listdir(aside.path) == []
    made.store.close()


FILE_EVENTS = ("open", "os.link", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "sqlite3.connect")


def killed_at(step: int, aside: Aside, durable_lsn: int) -> bool:
    """Fork a process that backs up the store; return whether it was killed at its *step*th file operation."""
    child = os.fork()
    if not child:
        try:
            left = step

            def count(event: str, _: tuple[Any, ...]) -> None:
                nonlocal left
                if event in FILE_EVENTS:
                    left -= 1
                    if left < 0:
                        os.kill(os.getpid(), signal.SIGKILL)

            sys.addaudithook(count)
            aside.keep(durable_lsn)
        except BaseException:
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def test_a_kill_at_each_step_leaves_what_is_whole_and_the_next_one_clears_up(tmp_path: Path) -> None:
    made = Kept(tmp_path / "store")
    for _ in range(4):
        made.put(30)
        made.take(15)
    older = made.aside(1)
    older.keep(made.store.durable_lsn)
    durable_lsn = made.store.durable_lsn
    made.clock.advance(60)
    there = dict(made.live)
    step = kills = 0
    while killed_at(step, made.aside(1), durable_lsn):
        kills += 1
        names = made.aside().names()
        assert names, "the older one goes when the newer one is whole"
        for name in names:
            assert contents(tmp_path / "store" / "aside" / name, tmp_path / "copy") == there
        assert {number: load(made.store, number) for number in there} == there
        step += EVERY
    assert kills > 10
    made.clock.advance(60)
    made.aside(1).keep(durable_lsn)
    assert len(os.listdir(made.aside().path)) == 1
    made.store.close()


def test_a_store_with_some_set_aside_is_no_error_for_who_opens_it(tmp_path: Path) -> None:
    made = Kept(tmp_path / "store")
    made.put(10)
    place = Path(made.aside().keep(made.store.durable_lsn).path)
    made.store.close()
    shutil.rmtree(tmp_path / "store" / "journal")
    with pytest.raises(CairnError, match="the journal is missing"):
        open_store(str(made.path), made.clock)
    assert contents(place, tmp_path / "copy") == made.live
