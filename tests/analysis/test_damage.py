"""Tests of jobs on damaged journals, whose results match the remaining records if damage is skipped.

`integrity` reports the finding for each kind of damage, and no other findings.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cairnmq.analytics.jobs.job_run import answer, job_named
from cairnmq.analytics.jobs.views import Views, ViewsRequest
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.embedded.library import Store, open_store
from tests.harness.analysis import laws, space_laws
from tests.harness.analysis.crashing import Crashing
from tests.harness.analysis.told import Told, told
from tests.harness.analysis.walked import (
    CHUNK,
    DEQUEUE,
    HEAD_BYTES,
    LOG_HOLES,
    TX_COMMIT,
    TX_PREPARE,
    TX_ROLLBACK,
    Record,
    Walked,
    files_of,
    walk,
)

from .clients import SMALL

OPTIONS = StoreOptions(container_bytes=SMALL, min_container_bytes=SMALL, reserve_bytes=4 * SMALL)
LAWS = (
    laws.lifetimes, laws.throughput, laws.fan_out, laws.backlog, laws.transactions, laws.in_doubt, laws.expiry,
    laws.redeliveries, laws.duplicates, laws.trace_join,
)  # fmt: skip
SPACE_LAWS = (space_laws.shares, space_laws.spaces, space_laws.groups)
Rows = list[dict[str, Any]]


def rot(block: int, *folders: Path) -> None:
    """Flip a bit of the first record header of a block in every file that contains the block."""
    for path in files_of(block - block % SMALL, *folders):
        with path.open("r+b") as file:
            file.seek(block % SMALL + HEAD_BYTES)
            byte = file.read(1)[0]
            file.seek(-1, 1)
            file.write(bytes([byte ^ 128]))


# ---- jobs --------------------------------------------------------------------------------------------------------

OUTCOMES = (TX_PREPARE, TX_COMMIT, TX_ROLLBACK)


def blocks_of(walked: Walked) -> dict[int, list[Record]]:
    """Return the records of each block that is not the last of its container and has no reclaimed-range record."""
    found: dict[int, list[Record]] = {}
    for container in walked.containers:
        blocks = defaultdict(list)
        for record in container.records:
            blocks[record.block].append(record)
        found |= dict([*blocks.items()][:-1])
    return {block: records for block, records in found.items() if all(one.type != LOG_HOLES for one in records)}


def block_of(some: dict[int, list[Record]], chooses: Sequence[int], rng: random.Random) -> Iterator[int]:
    """Yield a random block of each container, with a record of a type in *chooses* unless *chooses* is empty."""
    chosen = {
        block - block % SMALL: block for block in rng.sample(sorted(some), len(some))
        if not chooses or any(one.type in chooses for one in some[block])
    }  # fmt: skip
    yield from chosen.values()


def without(walked: Walked, removed: Collection[int]) -> Walked:
    """Return *walked* without the blocks and containers at the LSNs in *removed*."""
    return Walked(tuple(
        one._replace(records=tuple(record for record in one.records if record.block not in removed))
        for one in walked.containers if one.slot_lsn not in removed
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("seed", "chooses"), [(44, ()), (45, OUTCOMES), (46, (CHUNK,)), (47, None)],
    ids=["any", "outcomes", "chunks", "containers"],
)  # fmt: skip


def test_jobs_say_what_whole_records_tell(
    spark: SparkSession, tmp_path: Path, seed: int, chooses: Sequence[int] | None
) -> None:
    """Jobs match the remaining records if blocks with types in *chooses* are damaged, or containers deleted (None)."""
    archive = tmp_path / "archive"
    clients = Crashing(seed, archive)
    for steps in (45, 30):
        for _ in range(steps):
            clients.step()
        clients.purge()
        clients.crash()
    store, world = clients.laid_out(tmp_path / "store"), clients.notes
    log = laws.write_log(world, tmp_path / "sent.csv")
    walked = walk(Path(store), archive)
    assert summary(told(walked.records(), world)) == summary(Told(world)), "the plain loops know the format"
    removed, rng = set[int](), random.Random(3)
    if chooses is None:
        for some in (True, False):
            ends = [*(one for one in walked.containers if one.is_archived is some)][1:-1]
            removed |= {one.slot_lsn for one in rng.sample(ends, 2)}
    else:
        removed |= {*block_of(blocks_of(walked), chooses, rng)}
    rest = without(walked, removed)
    expected = told(rest.records(), world)
    assert len(removed) > 3
    assert summary(expected) != summary(Told(world))
    folders = Path(store, "journal"), archive
    for lsn in removed:
        if chooses is not None:
            rot(lsn, *folders)
            continue
        for path in files_of(lsn, *folders):
            path.unlink()
    views = Views(spark, store, ViewsRequest(archive=str(archive), producer_log=log, skip_damaged=True))
    names = {number: name for name, number in clients.ids.items()}

    def ask(job: str) -> Rows:
        """Return the rows of a job with queue names added, as jobs without the SQL wiring have only queue IDs."""
        rows = answer(job_named(job), views).to_pylist()
        return [row | {"queue": names[row["queue_id"]]} if "queue_id" in row else row for row in rows]

    try:
        for law in LAWS:
            law(expected.notes, ask)
        for space_law in SPACE_LAWS:
            space_law(expected.notes, rest, ask)
        rows = ask("depth")
        assert not any(row["exact"] for row in rows)
        if chooses is not None:
            laws.depths(expected.notes, rows)
        assert {row["queue"]: row["depth"] for row in rows} == {
            queue: len(expected.notes.living(queue)) for queue in clients.ids
        }
        kind, begin = ("lost", log_begins(walked)) if chooses is None else ("damaged", 0)
        lsns = {lsn - lsn % SMALL for lsn in removed if lsn >= begin}
        findings_are(expected, kind, lsns, ask("integrity"))
    finally:
        views.close()


def log_begins(walked: Walked) -> int:
    """Return the LSN of the first container in the log, before which `integrity` reports no lost containers."""
    return next(one.slot_lsn for one in walked.containers if not one.is_archived)


def summary(of: Told) -> tuple[object, ...]:
    """Return the notes that can be derived from records, in a form that compares by value."""
    stays = [
        (one.message_id, one.queue, one.time_us, one.size, one.end_us, one.how, one.reason) for one in of.notes.stays
    ]
    transactions = sorted(
        (one.kind, one.began_us, one.state, one.end_us or 0, one.enqueues, one.dequeues, one.size, one.prepared_us)
        for one in of.notes.transactions
    )
    notes = of.notes
    contents = notes.contents, notes.stored_us, notes.ended, notes.staged
    return stays, transactions, contents, of.incomplete, of.without_start


def findings_are(expected: Told, kind: str, lsns: Collection[int], rows: Rows) -> None:
    """Check that *rows* report exactly the unreadable LSNs and the inconsistencies of the remaining records."""
    found = defaultdict(list)
    for row in rows:
        found[row["kind"]].append(row["lsn"] if row["kind"] != "no start" else (row["lsn"], row["place"]))
    living = {stay.message_id for stay in expected.notes.stays if stay.end_us is None}
    unfinished = [txn_id for txn_id, (said, there) in expected.prepared.items() if said != there]
    right = {
        kind: sorted(lsns),
        "no start": sorted((message, f"queue {queue}") for message, queue in expected.without_start),
        "incomplete": sorted(expected.incomplete & living),
        "unfinished": sorted(unfinished),
    }  # fmt: skip
    assert {kind: sorted(some) for kind, some in found.items()} == {kind: some for kind, some in right.items() if some}


# ---- findings ----------------------------------------------------------------------------------------------------


def wait(store: Store) -> None:
    """Wait until all records are durable, so that the next record begins another block."""
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
    """Store a message whose pieces and enqueue record are in separate blocks; return its ID."""
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
    """A damaged message on a queue is reported; dequeued messages and undamaged messages are not."""
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
        rot(parts[0 if kind == "no start" else 1].block, tmp_path / "journal")
    rows = findings(spark, tmp_path)
    assert [(row["kind"], row["lsn"], row["count"]) for row in rows] == [("damaged", 0, 2), (kind, message_id, 1)]
    assert rows[1]["place"] == ("queue 1" if kind == "no start" else "q")


def test_a_prepared_transaction_of_which_a_part_rots(spark: SparkSession, tmp_path: Path) -> None:
    """The loss of one of several blocks of a prepared transaction is reported as `unfinished`."""
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
    rot(blocks[1], tmp_path / "journal")
    lost = sum(record.block == blocks[1] for record in operations)
    rows = findings(spark, tmp_path)
    assert [row["kind"] for row in rows] == ["unfinished", "damaged"]
    assert (rows[0]["place"], rows[0]["count"]) == ("0102", lost)
    assert rows[0]["what"] == f"of {len(ids)} operations {len(ids) - lost} are there"


def test_a_transaction_whose_end_rots_was_not_rolled_back(spark: SparkSession, tmp_path: Path) -> None:
    """A transaction with a damaged commit counts as forgotten after the log is reopened, not as rolled back."""
    with open_store(str(tmp_path), options=OPTIONS) as store:
        queue = store.queue("q")
        ids = queue.put_all([b"."] * 2500).result()
        with store.lock:
            inner = store.inner.transactions.begin(1)
            for message_id in ids[::2]:
                inner.dequeue(message_id, queue.id, 1)
            inner.commit(1)
        wait(store)
    with open_store(str(tmp_path), options=OPTIONS) as store:
        store.queue("q").put(b"behind it").result()
    (commit,) = (record for record in walk(tmp_path).records() if record.type == TX_COMMIT)
    rot(commit.block, tmp_path / "journal")
    views = Views(spark, str(tmp_path), ViewsRequest(skip_damaged=True))
    try:
        (row,) = answer(job_named("transactions"), views).to_pylist()
    finally:
        views.close()
    assert (row["rolled_back"], row["committed"], row["forgotten"]) == (0, 0, 1)
