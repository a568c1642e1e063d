"""Tests that jobs report exactly the damaged, missing, duplicate and different messages."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cairnmq.amqp.codec import sections
from cairnmq.analytics.jobs.job_run import answer, job_named
from cairnmq.analytics.jobs.views import Views, ViewsRequest
from cairnmq.base.errors import CairnError
from cairnmq.store.contract.dequeue_reason import DequeueReason
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.embedded.library import open_store

from .clients import SMALL, live

OPTIONS = StoreOptions(container_bytes=SMALL, min_container_bytes=SMALL, reserve_bytes=4 * SMALL)


def ask(spark: SparkSession, job: str, store: Path, **asked: Any) -> list[dict[str, Any]]:
    views = Views(spark, str(store), ViewsRequest(**asked))
    try:
        rows: list[dict[str, Any]] = answer(job_named(job), views).to_pylist()
        return rows
    finally:
        views.close()


def amqp(message_id: str | None, body: bytes) -> bytes:
    head = b"" if message_id is None else sections.properties_section(sections.Properties(message_id))
    return head + b"\x00Su\xa0" + bytes([len(body)]) + body


@pytest.fixture
def fruit(tmp_path: Path) -> tuple[Path, list[int]]:
    """Create a store with messages of known IDs on two queues, and dequeue one message."""
    path = tmp_path / "fruit"
    with open_store(str(path), options=OPTIONS) as store:
        one, two = store.queue("one"), store.queue("two")
        contents = [("apple", b"1"), ("pear", b"2"), ("apple", b"1"), ("pear", b"3"), (None, b"4"), ("fig", b"5")]
        ids = [one.put(amqp(name, body)).result() for name, body in contents]
        ids.append(two.put(amqp("apple", b"1")).result())
        message = one.take()
        assert message is not None
        message.accept().result()
    return path, ids


def test_what_came_twice(spark: SparkSession, fruit: tuple[Path, list[int]]) -> None:
    path, ids = fruit
    rows = ask(spark, "duplicates", path)
    assert [(row["amqp_message_id"], row["messages"], row["contents"], row["queues"]) for row in rows] == [
        ("apple", 3, 1, ["one", "two"]), ("pear", 2, 2, ["one"]),
    ]  # fmt: skip
    assert rows[0]["message_ids"] == [ids[0], ids[2], ids[6]]


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """Create a store with copies made by a broker, a duplicate of a producer, and a transaction of a client."""
    path = tmp_path / "moved"
    with open_store(str(path), options=OPTIONS) as store:
        orders, dead, other = (store.queue(name) for name in ("orders", "dead", "other"))
        ids = [orders.put(amqp(name, b"1")).result() for name in ("a", "b", "c", "twice", "twice", "kept")]
        reasons = DequeueReason.REJECTED, DequeueReason.EXPIRED, DequeueReason.MOVED
        for message_id, reason, to in zip(ids, reasons, (dead, dead, other), strict=False):
            now_us = store.now_us()
            with store.lock:
                tx = store.inner.transactions.begin(now_us)
                tx.dequeue(message_id, orders.id, now_us, reason)
                tx.put(to.id, amqp("abc"[ids.index(message_id)], b"with annotations"), now_us)
                copied = store.recorded(tx.commit(now_us), None)
            copied.result()
        now_us = store.now_us()
        with store.lock:
            tx = store.inner.transactions.begin(now_us)
            tx.dequeue(ids[-1], orders.id, now_us, DequeueReason.ACCEPTED)
            tx.put(other.id, amqp("kept", b"6"), now_us)
            copied = store.recorded(tx.commit(now_us), None)
        copied.result()
        store.delete_queue(other).result()
    return path


def test_copies_of_the_broker_are_no_duplicates_and_no_transactions_of_clients(
    spark: SparkSession, moved: Path
) -> None:
    """A3, A4, A5: jobs recognize copies made by the broker from the records in the log."""
    rows = [row["amqp_message_id"] for row in ask(spark, "duplicates", moved)]
    assert rows == ["kept", "twice"]  # forwarded by a client; sent twice by a producer
    kinds = {row["kind"]: row for row in ask(spark, "transactions", moved)}
    assert {kind: row["committed"] for kind, row in kinds.items()} == {"copy": 3, "local": 1}
    for row in kinds.values():
        assert (row["abort_rate"], row["p50_us"], row["p99_us"], row["max_us"]) == (None, None, None, None)
    [deleted] = {row["queue"] for row in ask(spark, "throughput", moved)} - {"orders", "dead"}
    assert deleted.startswith("$queue-")
    to = {row["reason"]: row["to_queues"] for row in ask(spark, "expiry", moved)}
    assert to["rejected"] == to["expired"] == ["dead"]
    assert to["moved"] == [deleted]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_what_became_of_what_was_sent(
    spark: SparkSession, fruit: tuple[Path, list[int]], tmp_path: Path, kind: str
) -> None:
    path, ids = fruit
    sent = ["apple", "plum", "fig", "fig", "cherry"]
    ends = [",1", "", ",1,more", ",1", ""]  # the last line is truncated
    lines = ["message_id,at", *map("".join, zip(sent, ends, strict=True)), ",1"]
    if kind == "jsonl":
        lines = [f'{{"message_id": "{name}", "at": 1}}' for name in sent]
    log = tmp_path / f"sent.{kind}"
    log.write_text("\n".join(lines) + "\n")
    rows = ask(spark, "trace-join", path, producer_log=str(log))
    assert [(row["message_id"], row["sent"], row["arrived"], row["status"], row["queues"]) for row in rows] == [
        ("cherry", 1, 0, "never arrived", []), ("plum", 1, 0, "never arrived", []),
        ("apple", 1, 3, "queued", ["one", "two"]), ("fig", 2, 1, "queued", ["one"]),
    ]  # fmt: skip
    assert rows[2]["message_ids"] == [ids[0], ids[2], ids[6]]
    assert (rows[2]["end_reasons"], rows[2]["end_time"] is not None) == (["consumed"], True)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_the_name_of_a_producers_log_is_no_pattern(
    spark: SparkSession, fruit: tuple[Path, list[int]], tmp_path: Path, kind: str
) -> None:
    names = ["a*b", "[ab]", "{c,d}", "a?%20b #x", "*\\*", "x,y ü"]
    for beside, text in (("aab", "not asked for"), ("b", "nor this")):
        (tmp_path / f"{beside}.{kind}").write_text(f'{{"id": "{text}"}}\n' if kind == "json" else f"id\n{text}\n")
    for name in names:
        log = tmp_path / f"{name}.{kind}"
        log.write_text('{"at": 1, "id": "fig"}\n' if kind == "json" else "at,id\n1,fig\n")
        [row] = ask(spark, "trace-join", fruit[0], producer_log=str(log))
        assert (row["message_id"], row["status"]) == ("fig", "queued"), name


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("log.csv", "a,b\n1,2\n", "it has the columns a, b; call the column"),
        ("log.csv", "", r"it has the columns \(none\); call the column"),
        ("log.json", '{"id": 1}\nid: 2\n', "write CSV with a line of names, or JSON lines"),
        ("10:30.csv", "id\n1\n", "Spark reads no file with a colon in its name; give it another name"),
    ],
)
def test_a_producers_log_that_can_not_be_read_is_told(
    spark: SparkSession, fruit: tuple[Path, list[int]], tmp_path: Path, name: str, text: str, told: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(CairnError, match=told) as raised:
        ask(spark, "trace-join", fruit[0], producer_log=str(tmp_path / name))
    assert "\n" not in str(raised.value)


def test_members_that_differ(spark: SparkSession, tmp_path: Path) -> None:
    """Members are compared by queue and position, as LSNs differ if one member has stored additional messages."""
    for member, more in (("a", 0), ("b", 3)):
        with open_store(str(tmp_path / member), options=OPTIONS) as store:
            for _ in range(more):
                store.queue("other").put(b"more").result()
                message = store.queue("other").take()
                assert message is not None
                message.accept().result()
            contents = [b"1", b"2", b"3"] if member == "a" else [b"1", b"two", b"3", b"4"]
            store.queue("q").put_all(contents).result()
    assert ask(spark, "compare", tmp_path / "a", other=str(tmp_path / "a")) == []
    rows = ask(spark, "compare", tmp_path / "a", other=str(tmp_path / "b"))
    assert [(row["queue"], row["place"], row["what"], row["here_bytes"], row["there_bytes"]) for row in rows] == [
        ("q", 1, "different content", 1, 3), ("q", 3, "only there", None, 1),
    ]  # fmt: skip


def test_damage_and_orphans(spark: SparkSession, tmp_path: Path) -> None:
    """`integrity` reports a flipped bit, a deleted container, and messages of a queue that is missing in SQL."""
    path = tmp_path / "store"
    with open_store(str(path), options=OPTIONS) as store:
        ids = store.queue("q").put_all([b"%04d" % number * 250 for number in range(300)]).result()
        lost = store.queue("lost")
        orphans = lost.put_all([b"1", b"2"]).result()
    with closing(sqlite3.connect(path / "wiring.sqlite")) as wiring, wiring:
        wiring.execute("delete from queue where name = 'lost'")
    assert [(row["kind"], row["count"], row["lsn"]) for row in ask(spark, "integrity", path)] == [
        ("orphan", 2, orphans[0])
    ]
    views = Views(spark, str(path))
    flipped = next(piece for piece in views.log.pieces if piece.slot_lsn < ids[150] < piece.slot_lsn + SMALL)
    missing = next(piece for piece in views.log.pieces if piece.slot_lsn < ids[80] < piece.slot_lsn + SMALL)
    with open(flipped.path, "r+b") as file:
        file.seek(SMALL // 2)
        byte = file.read(1)
        file.seek(SMALL // 2)
        file.write(bytes([byte[0] ^ 1]))
    rows = ask(spark, "integrity", path)
    assert [row["kind"] for row in rows] == ["damaged", "orphan"]
    assert (rows[0]["place"], rows[0]["lsn"]) == (Path(flipped.path).name, flipped.slot_lsn)
    Path(missing.path).unlink()
    rows = ask(spark, "integrity", path)
    assert [row["kind"] for row in rows] == ["lost", "damaged", "orphan"]
    assert (rows[0]["lsn"], rows[0]["end_lsn"]) == (missing.slot_lsn, missing.slot_lsn + SMALL)
    with pytest.raises(CairnError, match=r"is missing.*--skip-damaged"):
        ask(spark, "lifetimes", path)
    ask(spark, "lifetimes", path, skip_damaged=True)


def test_depths_without_the_archive_are_exact_from_where_nothing_is_missing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Exact depths equal those computed with the archive, and the last depths equal the current queue lengths."""
    notes = live(tmp_path, 11, [30], archived=True)
    rows = ask(spark, "depth", tmp_path / "store", archive=str(tmp_path / "archive"))
    complete = {(row["queue"], row["time"]): row for row in rows}
    rest = ask(spark, "depth", tmp_path / "store")
    exact = [row for row in rest if row["exact"]]
    assert 0 < len(exact) < len(complete)
    assert all(complete[row["queue"], row["time"]] == row for row in exact)
    last = {row["queue"]: row["depth"] for row in rest}  # rows are in order of time
    assert last == {queue: len(notes.living(queue)) for queue in last}


def test_an_empty_store(spark: SparkSession, tmp_path: Path) -> None:
    """Jobs succeed on an empty store."""
    open_store(str(tmp_path / "store"), options=OPTIONS).close()
    for job in ("integrity", "backlog", "depth", "transactions", "in-doubt", "space", "expiry"):
        rows = ask(spark, job, tmp_path / "store")
        assert rows == [] or job == "space"


def test_living_bytes_are_those_of_the_messages_that_are_there(spark: SparkSession, tmp_path: Path) -> None:
    """Live bytes and records are exact in a store without compaction."""
    with open_store(str(tmp_path / "store"), options=OPTIONS) as store:
        queue = store.queue("q")
        queue.put_all([bytes(1000)] * 200).result()
        for _ in range(30):
            message = queue.take()
            assert message is not None
            message.accept().result()
    rows = ask(spark, "liveness", tmp_path / "store")
    assert sum(row["live_bytes"] for row in rows) == 170 * 1064
    assert sum(row["live_records"] for row in rows) == 170
    assert all(row["share"] == row["live_bytes"] / SMALL for row in rows)
    total = ask(spark, "space", tmp_path / "store")[-1]
    assert (total["hour"], total["live_bytes"]) == (None, 170 * 1064)
    assert total["space_amplification"] == pytest.approx(len(rows) * SMALL / (170 * 1064))
    assert (total["copies"], total["write_amplification"]) == (0, 1.0)
    (row,) = ask(spark, "backlog", tmp_path / "store")
    assert row["alone_bytes"] == row["pinned_bytes"] == sum(one["live_records"] > 0 for one in rows) * SMALL


def test_where_dead_letters_went(spark: SparkSession, tmp_path: Path) -> None:
    """`expiry` reports the target queues of dead letters, which one commit moves to one or two queues."""
    with open_store(str(tmp_path / "store"), options=OPTIONS) as store:
        orders, letters, copies = store.queue("orders"), store.queue("letters"), store.queue("copies")
        ids = orders.put_all([b"order"] * 4).result()
        with store.lock:
            expired = DequeueReason.EXPIRED
            for message_id, reason in zip(ids, (expired, expired, DequeueReason.REJECTED, expired), strict=True):
                inner = store.inner.transactions.begin(store.now_us())
                inner.dequeue(message_id, orders.id, store.now_us(), reason)
                if message_id != ids[3]:
                    inner.put(letters.id, b"letter", store.now_us())
                if reason == DequeueReason.REJECTED:
                    inner.put(copies.id, b"letter", store.now_us())
                inner.commit(store.now_us())
    found: dict[tuple[str, str], int] = {}
    for row in ask(spark, "expiry", tmp_path / "store"):  # the test may span the end of an hour
        key = row["queue"], row["reason"]
        assert row["to_queues"] == (["copies", "letters"] if row["reason"] == "rejected" else ["letters"])
        found[key] = found.get(key, 0) + row["messages"]
    assert found == {("orders", "expired"): 3, ("orders", "rejected"): 1}
