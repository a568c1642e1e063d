"""Tests that the views of messages, queues and transactions match the store and the operations of its clients."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.analytics.lifetimes.lifetimes import NEVER
from cairnmq.analytics.scan.selection import Selection
from cairnmq.analytics.views.journal import open_journal
from cairnmq.analytics.views.records import ReadOptions
from cairnmq.store.contract.dequeue_reason import DequeueReason
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.embedded.library import open_store
from tests.harness.columns.logs import lay_out, live, shown_by
from tests.harness.store.histories import MIXES, Traffic
from tests.harness.store.stores import NOW_US, Disk, put, queue, shown


@settings(max_examples=8)
@given(seed=st.integers(0, 1 << 30), steps=st.integers(0, 900))
def test_the_queues_are_as_the_store_has_them(seed: int, steps: int) -> None:
    """IDs, order, sizes and contents match the store after transactions, compaction, purges and kills."""
    with TemporaryDirectory() as path:
        life = live(seed, steps)
        journal = open_journal(lay_out(life.files, Path(path)))
        expected = {queue_id: ids for queue_id, ids in life.model.on.items() if ids}
        assert shown_by(journal) == shown(life.store) == expected
        contents = life.model.contents
        told = {row["queue_id"]: row for row in journal.queues().to_pylist()}
        for queue_id, ids in expected.items():
            row, size = told[queue_id], sum(len(contents[message_id]) for message_id in ids)
            assert (row["depth"], row["size"], row["oldest_id"]) == (len(ids), size, ids[0])
        found = {row["message_id"]: row for row in journal.messages().to_pylist()}
        on = {message_id for ids in expected.values() for message_id in ids}
        assert {message_id for message_id, row in found.items() if row["state"] == "queued"} == on
        waiting = {message_id for message_id, row in found.items() if row["state"] == "in doubt"}
        assert waiting == contents.keys() - on
        for row in journal.messages(columns=["message_id", "state", "payload", "size", "complete"]).to_pylist():
            if row["message_id"] in contents:
                assert row["payload"] == contents[row["message_id"]]
                assert row["complete"]
                assert row["size"] == len(row["payload"])
            else:
                assert row["state"] in ("removed", "staged")


def test_containers_with_one_record_each(tmp_path: Path) -> None:
    """Containers are read into one reused buffer, so results must not refer to it."""
    options = StoreOptions(container_bytes=64 << 10, min_container_bytes=64 << 10, reserve_bytes=256 << 10)
    with open_store(str(tmp_path), options=options) as store:
        ids = [store.queue("q").put(bytes(60_000)).result() for _ in range(10)]
    journal = open_journal(str(tmp_path))
    assert len(journal.log.pieces) == len(ids)
    (row,) = journal.queues().to_pylist()
    assert (row["depth"], row["size"], row["oldest_id"]) == (10, 600_000, ids[0])
    assert journal.messages()["message_id"].to_pylist() == ids


def test_contents_are_read_from_the_first_message_on(tmp_path: Path) -> None:
    """Messages from an ID on are the same as in the complete view, also if earlier containers are missing."""
    columns = ["message_id", "payload"]
    journal = open_journal(lay_out(live(3, 600).files, tmp_path))
    complete = journal.messages(columns=columns).to_pylist()
    assert len(journal.log.pieces) > 4
    for piece in journal.log.pieces[:-1]:
        ids = piece.slot_lsn, NEVER
        assert journal.messages(columns=columns, ids=ids).to_pylist() == [
            row for row in complete if row["message_id"] >= ids[0]
        ]
        os.unlink(piece.path)
    assert journal.messages(columns=columns, ids=(NEVER - 1, NEVER)).num_rows == 0


@settings(max_examples=6)
@given(seed=st.integers(0, 1 << 30))
def test_transactions_are_as_the_store_has_them(seed: int) -> None:
    with TemporaryDirectory() as path:
        life = live(seed, 500)
        rows = open_journal(lay_out(life.files, Path(path))).transactions().to_pylist()
        prepared = {row["xid"]: row for row in rows if row["state"] == "prepared"}
        assert prepared.keys() == life.model.prepared.keys()
        for xid, work in life.model.prepared.items():
            assert prepared[xid]["enqueues"] == sum(what == "put" for what, _, _ in work)
            assert prepared[xid]["dequeues"] == sum(what == "take" for what, _, _ in work)
            assert prepared[xid]["kind"] == "distributed"
        by_hand = {row["xid"]: row["state"] for row in rows if row["decided_by_hand"]}
        for xid, commit in life.model.decided.items():
            assert by_hand[xid] == ("committed" if commit else "rolled back")
        assert not [row for row in rows if row["state"] == "open"]


def test_why_a_message_left_is_told(tmp_path: Path) -> None:
    disk = Disk()
    store, _ = disk.open()
    number = queue(store)
    ids = {reason: put(store, number) for reason in DequeueReason}
    for reason, message_id in ids.items():
        store.dequeue(message_id, number, NOW_US, reason)
    store.close()
    journal = open_journal(lay_out(disk.files, tmp_path))
    words = {ids[reason]: reason.words if reason else None for reason in DequeueReason}
    found = journal.messages().to_pylist()
    assert {row["message_id"]: row["dequeue_reason"] for row in found} == words
    assert {row["message_id"]: row["places"][0]["dequeue_reason"] for row in found} == words
    assert {row["end_reason"] for row in found} == {"consumed"}
    names = ["type", "message_id", "dequeue_reason"]
    rows = [row for batch in journal.records(columns=names) for row in batch.to_pylist()]
    assert {row["message_id"]: row["dequeue_reason"] for row in rows if row["type"] == "dequeue"} == words
    assert {row["dequeue_reason"] for row in rows if row["type"] != "dequeue"} == {None}


@pytest.mark.parametrize("mix", MIXES)
def test_lives_are_what_the_clients_did(mix: str, tmp_path: Path) -> None:
    """Each place still recorded in the log begins and ends at the LSNs that were returned to the clients."""
    traffic = Traffic(mix, 11)
    moments = []
    for _ in range(50):
        traffic.step()
        if traffic.rng.random() < 0.03:
            traffic.reopen()
        durable_lsn = traffic.store.journal.writer.durable_lsn
        moments.append((durable_lsn, {q: list(ids) for q, ids in traffic.on.items() if ids}))
    traffic.rest()
    traffic.store.close()
    journal = open_journal(lay_out(traffic.disk.files, tmp_path))
    given_at: dict[tuple[int, int, int], int] = {}
    ends: dict[tuple[int, int, int], int] = {}
    at: dict[tuple[int, int], int] = {}
    for lsn, puts, message_id, queue_id in traffic.operations:
        if puts:
            at[message_id, queue_id] = lsn
            given_at[message_id, queue_id, lsn] = lsn
        else:
            ends[message_id, queue_id, at[message_id, queue_id]] = lsn
    live_rows = 0
    for row in journal.messages().to_pylist():
        assert row["size"] == len(traffic.contents[row["message_id"]])
        for place in row["places"]:
            key = row["message_id"], place["queue_id"], place["position"]
            assert key in given_at
            if place["end"] is None:
                live_rows += 1
                assert key not in ends
            else:
                assert place["end_lsn"] >= ends[key]  # a copy of the dequeue replaces a reclaimed one
                assert place["end"] == "dequeued"
        is_live = any(place["end"] is None for place in row["places"])
        assert row["state"] == ("queued" if is_live else "removed")
        assert row["end_reason"] in ((None,) if is_live else ("consumed",))
    assert live_rows == sum(len(ids) for ids in traffic.on.values())
    if not journal.log.gaps and journal.log.base_lsn < journal.log.container_bytes:  # nothing was reclaimed
        for end_lsn, on in moments[::7]:
            assert shown_by(journal, ReadOptions(selection=Selection(end_lsn=end_lsn))) == on


@settings(max_examples=6)
@given(seed=st.integers(0, 99), end=st.integers(10, 60))
def test_depth_as_of_an_lsn(seed: int, end: int) -> None:
    """Until the first reclaim, the log yields the queue contents as of any LSN."""
    traffic = Traffic("exponential lifetimes", seed)
    moments = []
    for _ in range(end):
        traffic.step(6)
        extent = traffic.store.journal.extent
        if extent.base_lsn >= traffic.store.journal.container_bytes or extent.holes:
            break
        durable_lsn = traffic.store.journal.writer.durable_lsn
        moments.append((durable_lsn, {q: list(ids) for q, ids in traffic.on.items() if ids}))
        files = traffic.disk.files.after_kill()
    with TemporaryDirectory() as path:
        journal = open_journal(lay_out(files, Path(path)))
        for end_lsn, on in moments[:: max(1, len(moments) // 8)]:
            reading = ReadOptions(selection=Selection(end_lsn=end_lsn))
            if end_lsn <= journal.log.durable_lsn:
                assert shown_by(journal, reading) == on
                depths = {row["queue_id"]: row["depth"] for row in journal.queues(reading).to_pylist() if row["depth"]}
                assert depths == {queue_id: len(ids) for queue_id, ids in on.items()}
