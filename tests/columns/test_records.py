"""Tests that the view `records` equals a simple loop over the log."""

from __future__ import annotations

import os
import pickle
import random
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cairnmq.analytics.scan.files import grouped, open_log
from cairnmq.analytics.scan.selection import TYPES, Selection
from cairnmq.analytics.views.journal import Journal, open_journal
from cairnmq.analytics.views.records import SCHEMA, ReadOptions
from cairnmq.base.disk.real import RealFile
from cairnmq.base.errors import CairnError, CorruptJournal
from cairnmq.journal.format.record import Flag, type_name
from cairnmq.store.embedded.library import open_store
from tests.harness.columns.logs import COMPARED, as_rows, lay_out, live, plain, rows
from tests.harness.store.histories import MIXES, Traffic

HEADS = [name for name in COMPARED if name != "payload"]
WOUNDS = st.tuples(st.floats(0, 1), st.integers(1, 600))
"""Damaged ranges: the position as a fraction of the log, and the size in bytes."""


@settings(max_examples=12)
@given(seed=st.integers(0, 1 << 30), steps=st.integers(0, 600), verify=st.booleans())
def test_history_agrees_with_model(seed: int, steps: int, verify: bool) -> None:
    """The view equals the loop after transactions, compaction, reclaimed ranges, purges and kills."""
    with TemporaryDirectory() as path:
        store = lay_out(live(seed, steps).files, Path(path))
        journal = open_journal(store)
        assert rows(journal, ReadOptions(verify=verify)) == as_rows(plain(store, journal.log.durable_lsn))
        parts = [
            row
            for some in grouped(journal.log.pieces, journal.log.container_bytes, 3 * journal.log.container_bytes)
            for batch in journal.records(columns=["lsn"], pieces=some)
            for row in batch["lsn"].to_pylist()
        ]
        assert parts == [row["lsn"] for row in rows(journal, columns=["lsn"])]


def heads_are_read_alone(journal: Journal) -> None:
    """Check that header columns read alone equal those of complete records, also with damaged headers."""
    for verify in (False, True):
        reading = ReadOptions(verify=verify, permissive=True)
        heads = [{name: row[name] for name in HEADS} for row in rows(journal, reading)]
        assert rows(journal, reading, HEADS) == heads


@pytest.mark.parametrize("mix", [*MIXES][::2])
def test_large_records_and_crashes(mix: str, tmp_path: Path) -> None:
    """Records of large messages are the same after a kill, after a power cut, and after recovery."""
    traffic = Traffic(mix, 5)
    for _ in range(60):
        traffic.step()
        if traffic.rng.random() < 0.05:
            store = lay_out(traffic.disk.files.after_power_cut(traffic.rng), tmp_path / "cut")
            journal = open_journal(store)
            assert rows(journal) == as_rows(plain(store, journal.log.durable_lsn))
            heads_are_read_alone(journal)
            traffic.reopen()
    traffic.rest()
    traffic.store.close()
    store = lay_out(traffic.disk.files, tmp_path / "end")
    journal = open_journal(store)
    found = rows(journal)
    assert found == as_rows(plain(store, 1 << 62))
    assert found == rows(pickle.loads(pickle.dumps(journal)))
    heads_are_read_alone(journal)
    rng = random.Random(mix)
    for piece in rng.sample(journal.log.pieces, min(4, len(journal.log.pieces))):
        with open(piece.path, "r+b") as file:
            file.seek(rng.randrange(512, os.path.getsize(piece.path)))
            file.write(rng.randbytes(rng.choice((1, 600, 5000))))
    heads_are_read_alone(open_journal(store))


def test_payloads_are_not_read_where_nobody_asks_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(open_store(str(tmp_path / "store"))) as made:
        for _ in range(40):
            made.queue("long").put_all([bytes(60_000)] * 10).result()
    read = list[int]()
    real = RealFile.read_into
    journal = open_journal(str(tmp_path / "store"))

    def counted(self: RealFile, offset: int, view: memoryview) -> int:
        read.append(len(view))
        return real(self, offset, view)

    monkeypatch.setattr(RealFile, "read_into", counted)
    assert sum(row["size"] for row in rows(journal, columns=["size"])) >= 400 * 60_000
    assert sum(read) < 400 * 60_000 / 5
    complete = sum(read)
    rows(journal, columns=["payload"])
    assert sum(read) - complete >= 400 * 60_000


def since(store: str, end: int, time_us: int) -> int:
    """Return the LSN of the first record at *time_us* or later that is not a copy, or *end*."""
    late = (r.lsn for r in plain(store, end) if r.head.time_us >= time_us and not r.head.flags & Flag.MOVED)
    return next(late, end)


@settings(max_examples=10)
@given(data=st.data())
def test_what_is_selected(data: st.DataObject) -> None:
    with TemporaryDirectory() as path:
        store = lay_out(live(data.draw(st.integers(0, 99)), 300).files, Path(path))
        journal = open_journal(store)
        end = journal.log.durable_lsn
        lsns = st.integers(0, end + 1000)
        start_lsn, end_lsn = data.draw(lsns), data.draw(st.none() | lsns)
        types = tuple(data.draw(st.sets(st.sampled_from([*TYPES.values()]), max_size=3)))
        queue_ids = tuple(data.draw(st.sets(st.integers(1, 3), max_size=2)))
        times = st.none() | st.integers(0, 14)
        start_us, end_us = data.draw(times), data.draw(times)
        known = sorted({read.head.message_id for read in plain(store, end)})
        message_ids = tuple(data.draw(st.lists(st.sampled_from([*known, end]), max_size=5)))
        selection = Selection(start_lsn, end_lsn, start_us, end_us, types, queue_ids, message_ids)
        begin, until = (0 if start_us is None else since(store, end, start_us)), 1 << 62 if end_lsn is None else end_lsn
        if end_us is not None:
            until = min(until, since(store, end, end_us))
        expected = [
            read.lsn
            for read in plain(store, end)
            if max(begin, start_lsn) <= read.lsn < until
            and (not types or read.head.type in types)
            and (not queue_ids or read.head.queue_id in queue_ids)
            and (not message_ids or read.head.message_id in message_ids)
        ]
        assert [row["lsn"] for row in rows(journal, ReadOptions(selection=selection), ["lsn"])] == expected
        columns = data.draw(st.lists(st.sampled_from(SCHEMA.names), min_size=1, unique=True))
        for batch in journal.records(ReadOptions(selection=selection), columns):
            assert batch.schema.names == columns


@settings(max_examples=25)
@given(seed=st.integers(0, 20), wounds=st.lists(WOUNDS, min_size=1, max_size=3))
@example(seed=0, wounds=[(0.0, 600)])
@example(seed=0, wounds=[(0.999, 600)])
def test_damage_costs_its_block(seed: int, wounds: list[tuple[float, int]]) -> None:
    """FAILFAST reports the file and LSN; PERMISSIVE omits and counts exactly the damaged blocks."""
    with TemporaryDirectory() as path:
        store = lay_out(live(seed, 400).files, Path(path))
        complete = open_journal(store)
        for place, size in wounds:
            piece = complete.log.pieces[int(place * (len(complete.log.pieces) - 1))]
            begin = 512 + int(place * 6151) % (8192 - 512)
            with open(piece.path, "r+b") as file:
                file.seek(begin)
                old = file.read(size)[: 8192 - begin]
                file.seek(begin)
                file.write(bytes(byte ^ 0x55 for byte in old))
        hurt = open_journal(store)
        expected = as_rows(plain(store, complete.log.durable_lsn))
        kind = ReadOptions(verify=True, permissive=True)
        found = rows(hurt, kind)
        assert hurt.log.durable_lsn <= complete.log.durable_lsn
        assert found == [row for row in expected if row["lsn"] < hurt.log.durable_lsn]
        told = hurt.containers(kind).to_pylist()
        damaged = sum(row["damaged_blocks"] for row in told)
        whole_rows = rows(complete, kind)
        if damaged:
            with pytest.raises(CorruptJournal, match=r"\.cairn: LSN \d+ to \d+ can't be read"):
                rows(hurt, ReadOptions(verify=True))
            counted = {
                row["container"]: row["damaged_blocks"]
                for batch in hurt.records(kind, ["container", "damaged_blocks"])
                for row in batch.to_pylist()
            }
            assert counted == {row["container"]: row["damaged_blocks"] for row in told if row["records"]}
        else:
            missing = [row for row in whole_rows if row not in found]
            assert not missing or missing[0]["lsn"] >= hurt.log.durable_lsn


@settings(max_examples=8)
@given(seed=st.integers(0, 99))
def test_copies_can_be_left_out(seed: int) -> None:
    """Each relocated message has one Start record, whether its original is still stored or not."""
    with TemporaryDirectory() as path:
        journal = open_journal(lay_out(live(seed, 800).files, Path(path)))
        new = rows(journal, ReadOptions(copies="new"), ["type", "message_id", "flags"])
        starts = [row for row in new if row["type"] == "start"]
        ids = [row["message_id"] for row in starts]
        every = {row["message_id"] for row in rows(journal, columns=["type", "message_id"]) if row["type"] == "start"}
        assert len(ids) == len(set(ids))
        assert set(ids) == every
        assert not any(row["flags"] & Flag.MOVED for row in rows(journal, ReadOptions(copies="none")))


def test_what_is_asked_for_in_vain(tmp_path: Path) -> None:
    """Invalid columns and paths cause a one-line error each."""
    store = lay_out(live(0, 50).files, tmp_path / "store")
    with pytest.raises(CairnError, match="column 'lsm': unknown column; one of lsn, container"):
        open_journal(store).records(columns=["lsm"]).__next__()
    with pytest.raises(CairnError, match="'lsn' is named twice"):
        open_journal(store).records(columns=["lsn", "lsn"]).__next__()
    (tmp_path / "empty").mkdir()
    for name, reason in (("gone", "no such directory"), ("empty", "the directory is empty")):
        with pytest.raises(CairnError, match=f"{name}: {reason}; name a store directory"):
            open_log(str(tmp_path / name))
    (tmp_path / "file").write_text("")
    with pytest.raises(CairnError, match="not a directory"):
        open_log(str(tmp_path / "file"))


def test_a_new_store_has_next_to_nothing(tmp_path: Path) -> None:
    journal = open_journal(lay_out(live(0, 0).files, tmp_path))
    assert [row["type"] for row in rows(journal)] == ["log-open"]
    assert journal.messages().num_rows == journal.transactions().num_rows == journal.queues().num_rows == 0


def test_every_type_has_a_name() -> None:
    assert {type_name(number) for number in TYPES.values()} == {*TYPES}
