"""With damage that may be left out jobs say what clients did, but for what no record tells any more.

Each kind of finding of `integrity` is had from a disk that rots, and told with nothing beside it.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cairnmq.analysis.running import answer, job_named
from cairnmq.analysis.views import Asked, Views
from cairnmq.store.library import Store, open_store
from cairnmq.store.options import StoreOptions

from . import laws
from .clients import SMALL, Notes
from .test_histories import Crashing
from .walked import DEQUEUE, ENQUEUE, HEAD_BYTES, PREPARED, START, WITH_ENQUEUE, Record, Walked, walk

OPTIONS = StoreOptions(container_bytes=SMALL, min_container_bytes=SMALL, reserve_bytes=4 * SMALL)
LAWS = (
    laws.lifetimes, laws.throughput, laws.fan_out, laws.dead_stock, laws.transactions, laws.in_doubt, laws.expiry,
    laws.redeliveries,
)  # fmt: skip
QUEUE_DELETE = 33
Rows = list[dict[str, Any]]


def rot(walked: Walked, block: int) -> None:
    """Flip a bit of that block's first record head."""
    [one] = [container for container in walked.containers if any(record.block == block for record in container.records)]
    with one.path.open("r+b") as file:
        file.seek(block - one.slot_lsn + HEAD_BYTES)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 128]))


# ---- jobs --------------------------------------------------------------------------------------------------------


def alone(world: Notes, walked: Walked) -> dict[int, list[Record]]:
    """Blocks in which messages came and went one by one, or were copied, and behind which another one stands."""
    names = {number: name for name, number in world.ids.items()}
    many = {stay.message_id for stay in world.stays} - {
        stay.message_id for stay in world.stays if sum(one.message_id == stay.message_id for one in world.stays) == 1
    }
    found = {}
    for container in walked.containers:
        blocks = defaultdict(list)
        for record in container.records:
            blocks[record.block].append(record)
        for block, records in [*blocks.items()][:-1]:
            if all(
                one.type in (START, DEQUEUE) and not one.txn_id and one.queue_id in names and one.message_id not in many
                for one in records
            ):
                found[block] = records
    return found


def struck(world: Notes, walked: Walked, gone: Iterable[Record]) -> tuple[Notes, int]:
    """What clients did as far as anything but *gone* tells of it; how much that takes away or leaves open."""
    rest, killed, changed = deepcopy(world), {record.lsn for record in gone}, 0
    came, went, placed = set(), set(), set()
    for record in walked.records():
        if record.lsn in killed or record.flags & PREPARED:
            continue
        place = record.message_id, record.queue_id
        if record.type == START:
            came.add(record.message_id)
        if record.type == ENQUEUE or (record.type == START and record.flags & WITH_ENQUEUE):
            placed.add(place)
        if record.type == DEQUEUE:
            went.add(place)
    for stay in [*rest.stays]:
        place = stay.message_id, rest.ids[stay.queue]
        if stay.message_id not in came or (place not in placed and place not in went):
            rest.stays.remove(stay)
            changed += 1
        elif stay.how == "dequeued" and place not in went:
            purges = (one for one in walked.records() if one.type == QUEUE_DELETE and one.queue_id == place[1])
            first = next((one for one in purges if one.lsn > stay.message_id and not one.moved), None)
            stay.end_us, stay.how, stay.why = (first.time_us, "purged", "") if first else (None, "", "")
            changed += 1
    rest.contents = {message_id: content for message_id, content in rest.contents.items() if message_id in came}
    return rest, changed


def test_jobs_say_what_whole_records_tell(spark: SparkSession, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    clients = Crashing(44, archive)
    for steps in (45, 30):
        for _ in range(steps):
            clients.step()
        clients.purge()
        clients.crash()
    store, world = clients.laid_out(tmp_path / "store"), clients.notes
    walked = walk(Path(store), archive)
    blocks = alone(world, walked)
    chosen = {block - block % SMALL: block for block in random.Random(3).sample(sorted(blocks), len(blocks))}
    gone = [record for block in chosen.values() for record in blocks[block]]
    rest, changed = struck(world, walked, gone)
    assert len(chosen) > 3
    assert changed > 3
    assert any(record.moved for record in gone)
    for block in chosen.values():
        rot(walked, block)
    views = Views(spark, store, Asked(archive=str(archive), skip_damaged=True))
    names = {number: name for name, number in clients.ids.items()}

    def ask(job: str) -> Rows:
        """There is no SQL, so queues have no names here."""
        rows = answer(job_named(job), views).to_pylist()
        return [row | {"queue": names[row["queue_id"]]} if "queue_id" in row else row for row in rows]

    try:
        for law in LAWS:
            law(rest, ask)
        rows = ask("depth")
        assert not any(row["exact"] for row in rows)
        laws.depths(rest, rows)
        assert {row["lsn"]: row["count"] for row in ask("integrity")} == dict.fromkeys(chosen, 1)
    finally:
        views.close()


# ---- findings ----------------------------------------------------------------------------------------------------


def wait(store: Store) -> None:
    """Until all of it is durable: what comes next stands in another block."""
    with store.lock:
        store.inner.kick()
        end = store.recorded(store.inner.next_lsn - 1, None)
    end.result(60)


def findings(spark: SparkSession, store: Path) -> Rows:
    views = Views(spark, str(store))
    try:
        rows: Rows = answer(job_named("integrity"), views).to_pylist()
        return rows
    finally:
        views.close()


def in_pieces(store: Store) -> int:
    """A message whose pieces and whose place stand in blocks of their own; the id."""
    queue = store.queue("q").id
    with store.lock:
        message_id = store.inner.stage(b"first", 1)
    wait(store)
    for number in range(2):
        with store.lock:
            store.inner.append_content(message_id, b"%d" % number, 1, last=number == 1)
        wait(store)
    with store.lock:
        store.inner.enqueue(message_id, queue, 1)
    wait(store)
    return message_id


@pytest.mark.parametrize("kind", ["no start", "incomplete"])
def test_a_message_of_which_a_part_rots(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Others beside it are in order, and so it is not told again once it was taken."""
    with open_store(str(tmp_path), options=OPTIONS) as store:
        store.queue("q").put(b"whole").result()
        message_id = in_pieces(store)
        taken = in_pieces(store)
        with store.lock:
            store.inner.dequeue(taken, store.queue("q").id, 2)
        wait(store)
        store.queue("q").put(b"behind it").result()
    walked = walk(tmp_path)
    for whose in (message_id, taken):
        parts = [record for record in walked.records() if record.message_id == whose]
        rot(walked, parts[0 if kind == "no start" else 1].block)
    rows = findings(spark, tmp_path)
    assert [(row["kind"], row["lsn"], row["count"]) for row in rows] == [("damaged", 0, 2), (kind, message_id, 1)]
    assert rows[1]["place"] == ("queue 1" if kind == "no start" else "q")


def test_a_prepared_transaction_of_which_a_part_rots(spark: SparkSession, tmp_path: Path) -> None:
    """It is so large that it stands in several blocks."""
    with open_store(str(tmp_path), options=OPTIONS) as store:
        ids = store.queue("q").put_all([b"."] * 2500).result()
        with store.lock:
            inner = store.inner.transactions.begin(1, xid=b"\x01\x02")
            for message_id in ids:
                inner.dequeue(message_id, store.queue("q").id, 1)
            inner.prepare(1)
        wait(store)
    walked = walk(tmp_path)
    operations = [record for record in walked.records() if record.type == DEQUEUE]
    blocks = sorted({record.block for record in operations})
    assert len(operations) == len(ids)
    assert len(blocks) > 2
    assert findings(spark, tmp_path) == []
    rot(walked, blocks[1])
    lost = sum(record.block == blocks[1] for record in operations)
    rows = findings(spark, tmp_path)
    assert [row["kind"] for row in rows] == ["unfinished", "damaged"]
    assert (rows[0]["place"], rows[0]["count"]) == ("0102", lost)
    assert rows[0]["what"] == f"of {len(ids)} operations {len(ids) - lost} are there"
