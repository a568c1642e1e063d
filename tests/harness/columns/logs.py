"""Random journals for the tests of this folder, written to a real disk, and a plain loop that reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cairnmq.analytics.views.journal import Journal
from cairnmq.analytics.views.records import ReadOptions
from cairnmq.base.disk.real import RealDirectory
from cairnmq.base.disk.seam import Directory
from cairnmq.journal.format.record import RecordHead, type_name
from cairnmq.journal.read.scanner import Damage, LogReader
from tests.harness.store.transaction_histories import Life


class Read(NamedTuple):
    """A record as read by the plain loop."""

    lsn: int
    block: int
    head: RecordHead
    payload: bytes


def lay_out(files: Directory, path: Path) -> str:
    """Write *files* into the directory *path* as a store's journal; return the path of the store."""
    journal = path / "journal"
    journal.mkdir(parents=True, exist_ok=True)
    for old in journal.iterdir():
        old.unlink()
    for name in files.names():
        file = files.open(name)
        (journal / name).write_bytes(file.read_at(0, file.size_bytes()))
    return str(path)


def plain(path: str, end_lsn: int) -> Iterator[Read]:
    """Yield the records of the store at *path* up to *end_lsn*, without damaged ranges."""
    for block in LogReader(RealDirectory(f"{path}/journal")).scan():
        if isinstance(block, Damage) or block.end_lsn > end_lsn:
            continue
        for number, head in enumerate(block.heads()):
            yield Read(block.record_lsn(number), block.lsn, head, bytes(block.payload(head)))


def as_rows(reads: Iterator[Read]) -> list[dict[str, Any]]:
    """Return the records of *reads* as rows of the view `records`."""
    return [
        {
            "lsn": read.lsn, "block": read.block, "type": type_name(read.head.type), "flags": read.head.flags,
            "message_id": read.head.message_id or None, "txn_id": read.head.txn_id or None,
            "queue_id": read.head.queue_id or None, "size": read.head.size,
            "undo_prev": read.head.undo_prev or None, "extra": read.head.extra or None, "payload": read.payload,
        }
        for read in reads
    ]  # fmt: skip


COMPARED = [
    "lsn", "block", "type", "flags", "message_id", "txn_id", "queue_id", "size", "undo_prev", "extra", "payload",
]  # fmt: skip


def rows(
    journal: Journal, reading: ReadOptions | None = None, columns: list[str] | None = None
) -> list[dict[str, Any]]:
    return [row for batch in journal.records(reading, columns or COMPARED) for row in batch.to_pylist()]


def shown_by(journal: Journal, reading: ReadOptions | None = None) -> dict[int, list[int]]:
    """Return the ids of the messages on each queue, in order and by queue id, from the view `messages`."""
    found: dict[int, list[tuple[int, int]]] = {}
    for row in journal.messages(reading).to_pylist():
        for place in row["places"]:
            if place["end"] is None:
                found.setdefault(place["queue_id"], []).append((place["position"], row["message_id"]))
    return {queue_id: [message_id for _, message_id in sorted(on)] for queue_id, on in found.items()}


def live(seed: int, steps: int, *, kills: bool = True) -> Life:
    """Return a history of single messages and transactions in small containers, which ends with everything durable."""
    life = Life(seed)
    go_on(life, steps, kills=kills)
    return life


def go_on(life: Life, steps: int, *, kills: bool = True) -> None:
    """Continue a history by *steps* steps, and end with everything durable."""
    actions = [life.put] * 4 + [life.take] * 5 + [life.transaction] * 2 + [life.outcome, life.kick, life.kick]
    if kills:
        actions.append(life.kill)
    for _ in range(steps):
        life.rng.choice(actions)()
        if life.rng.random() < 0.02:
            life.purge()
        del life.checkpoint.commits[:-1]  # a kill leaves the newest one or none
    life.kick()
    life.store.journal.writer.write_mark()
