"""Stores whose history is known record by record, and checks of their contents after damage: for tests of bad files."""

from __future__ import annotations

import os
import random
import shutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cairnmq.base.disk.real import RealDirectory
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.journal.format.block import Block
from cairnmq.journal.format.container import file_name
from cairnmq.journal.format.record import RecordType
from cairnmq.journal.read.scanner import LogReader
from cairnmq.recovery.recover import open_store
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.contract.wiring_rows import QueueRow
from cairnmq.store.journaled.store import JournalStore
from cairnmq.tools.repair.salvage_report import SalvageReport

CONTAINER_BYTES = 512 << 10
QUEUES = ("orders", "bills")

OnQueues = dict[str, list[bytes]]
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""A directory in which syncs are free, since hundreds of stores are created."""


def content_of(store: JournalStore, message_id: int) -> bytes:
    return b"".join(store.load_piece(message_id, number) for number in range(store.piece_count(message_id)))


def shown_by(store: JournalStore, names: dict[int, str] | None = None) -> OnQueues:
    """Return the message contents on each queue; *names* (by ID) if queues were created after the store was opened."""
    names = names or {row.id: row.name for row in store.queues()}
    return {names[queue]: [content_of(store, found) for found in ids] for queue, ids in store.messages().items()}


def open_and_show(path: Path) -> OnQueues:
    store, _ = open_store(str(path), ManualClock())
    try:
        return shown_by(store)
    finally:
        store.close()


@dataclass(repr=False)
class Whole:
    """The complete state of a store before the damage."""

    path: Path
    shown: OnQueues = field(default_factory=dict)
    ever: OnQueues = field(default_factory=lambda: defaultdict(list))
    """All messages that were ever enqueued on each queue, in order."""
    ids: dict[bytes, int] = field(default_factory=dict)
    needed: dict[bytes, set[int]] = field(default_factory=dict)
    """The LSNs of the records of each live message."""
    dequeues: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    """The LSNs of dequeue records, copies included, by message and queue ID."""
    blocks: list[tuple[str, int, int, int]] = field(default_factory=list)
    """The file, first byte, end byte (without padding) and LSN of each block."""
    container_of: dict[int, str] = field(default_factory=dict)
    """The file of each slot of the log."""
    holes: list[int] = field(default_factory=list)
    """The first slot of each reclaimed range."""
    free: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Whole({self.path})"  # omits the long fields

    @property
    def journal(self) -> Path:
        return self.path / "journal"

    def block_of(self, lsn: int) -> tuple[str, int, int, int]:
        return next(found for found in reversed(self.blocks) if found[3] <= lsn)


class History:
    """A writer of a store, which records the history in a `Whole`."""

    def __init__(self, path: Path) -> None:
        self.complete = Whole(path)
        self.store, _ = open_store(str(path), ManualClock(), StoreOptions(CONTAINER_BYTES))
        self.queue_ids: dict[str, int] = {}
        for name in QUEUES:
            made: list[QueueRow | Exception] = []
            self.store.create_queue(name, made.append)
            assert isinstance(made[0], QueueRow)
            self.queue_ids[name] = made[0].id

    def put(self, queue: str, size: int) -> int:
        content = b"message %d." % len(self.complete.ids)
        content = (content * (size // len(content) + 1))[: max(size, len(content))]
        found, _ = self.store.put(self.queue_ids[queue], content, 1)
        self.complete.ids[content] = found
        self.complete.ever[queue].append(content)
        return found

    def also(self, message_id: int, queue: str) -> None:
        self.store.enqueue(message_id, self.queue_ids[queue], 1)
        content = next(content for content, known in self.complete.ids.items() if known == message_id)
        self.complete.ever[queue].append(content)

    def take(self, message_id: int, queue: str) -> None:
        self.store.dequeue(message_id, self.queue_ids[queue], 1)

    def flush(self) -> None:
        self.store.kick()

    def reopen(self) -> None:
        self.store.close()
        self.store, _ = open_store(str(self.complete.path), ManualClock())

    def end(self) -> Whole:
        complete, state = self.complete, self.store.state
        complete.shown = shown_by(self.store, {number: name for name, number in self.queue_ids.items()})
        for content, message_id in complete.ids.items():
            if message_id in state:
                detailed = state.detailed.get(message_id)
                records = {state.place_of(message_id)} if detailed is None else {lsn for lsn, _ in detailed.records()}
                complete.needed[content] = records
        self.store.close()
        shutil.rmtree(complete.path / "checkpoint")  # so that the next start reads the complete log
        reader = LogReader(RealDirectory(str(complete.journal)))
        for found in reader.scan():
            assert isinstance(found, Block)
            slot, at = divmod(found.lsn, CONTAINER_BYTES)
            name = file_name(reader.heads.by_slot[slot].number)
            complete.blocks.append((name, at, at + found.head.size_bytes, found.lsn))
            for number, head in enumerate(found.heads()):
                if head.type == RecordType.DEQUEUE:
                    complete.dequeues[head.message_id, head.queue_id].append(found.record_lsn(number))
        complete.container_of = {slot: file_name(reader.heads.by_slot[slot].number) for slot in reader.slots}
        complete.holes = [hole.first for hole in reader.holes]
        used = {*complete.container_of.values()}
        complete.free = sorted(file.name for file in complete.journal.glob("*.cairn") if file.name not in used)
        return complete


def with_holes(path: Path, older: Path | None = None) -> Whole:
    """Write a store with a slow message, a hole behind its container, further live messages, and a free container.

    *older* receives a copy of the store from the time when the container behind the hole was being filled.
    """
    history = History(path)
    history.put("orders", 1000)
    history.flush()
    ids = [history.put(QUEUES[number % 2], 40_000) for number in range(60)]
    history.flush()
    for number, message_id in enumerate(ids):
        if not 18 <= number < 22:
            history.take(message_id, QUEUES[number % 2])
        if number % 7 == 6:
            history.flush()
    history.flush()
    for number in range(15):
        history.put(QUEUES[number % 2], 45_000)
        history.flush()
        if number == 2 and older is not None:
            shutil.copytree(path, older)
    return history.end()


def relocated(path: Path) -> Whole:
    """Write a store with slow messages, plain and odd, that were compacted several times; some are dequeued since."""
    history = History(path)
    slow = []
    for number in range(22):
        slow.append(history.put("orders", 5000))
        if number % 5 == 0:
            history.also(slow[-1], "bills")
        if number % 5 == 1:
            slow.append(history.put("orders", 150_000))
        history.flush()
        quick = [history.put("bills", 40_000) for _ in range(12)]
        history.flush()
        for message_id in quick:
            history.take(message_id, "bills")
        history.flush()
        if number % 3 == 2:
            history.take(slow.pop(0), "orders")
            history.flush()
    return history.end()


def any_store(path: Path, seed: int) -> Whole:
    """Write a random store: messages of all sizes, on one or two queues, dequeued in any order, with restarts."""
    chance = random.Random(seed)
    history = History(path)
    live: list[tuple[int, str]] = []
    for number in range(260):
        what = chance.random()
        if live and (what < 0.42 or (number > 220 and what < 0.6)):
            history.take(*live.pop(chance.randrange(len(live)) if chance.random() < 0.7 else 0))
        else:
            size = chance.choice((20, 300, 3000, 3000, 20_000, 20_000, 90_000, 200_000))
            queue = chance.choice(QUEUES)
            found = history.put(queue, size)
            live.append((found, queue))
            if chance.random() < 0.1:
                other = QUEUES[QUEUES[0] == queue]
                history.also(found, other)
                live.append((found, other))
        if chance.random() < 0.5:
            history.flush()
        if chance.random() < 0.01:
            history.reopen()
    history.flush()
    return history.end()


def check_salvaged(complete: Whole, shown: OnQueues, report: SalvageReport, touched: Callable[[int], bool]) -> None:
    """Check the salvaged messages; *touched* returns whether the damage affects the block of a record's LSN."""
    for queue, contents in complete.shown.items():
        for content in contents:
            if not any(map(touched, complete.needed[content])):
                assert content in shown.get(queue, []), f"{content[:20]!r} is whole, and was not salvaged"
    names = {name: number for number, name in report.queue_names.items()}
    doubtful = {message.message_id for message in report.doubtful}
    for queue, contents in shown.items():
        known = complete.ever[queue]
        places = [known.index(content) for content in contents]  # only contents that were once on the queue
        assert places == sorted(set(places)), f"another order on {queue}, or twice there"
        for content in contents:
            ends = complete.dequeues.get((complete.ids[content], names[queue]), [])
            assert all(map(touched, ends)), f"{content[:20]!r} is back on {queue}, though its dequeue can be read"
            if content not in complete.shown.get(queue, []):
                assert complete.ids[content] in doubtful, f"{content[:20]!r} returned, and no report names it"
    if report.is_complete:
        assert shown == complete.shown


def tree(path: Path) -> dict[str, bytes | str]:
    """Return the contents of all files, and the types of other entries, except the lock, which has a process ID."""
    found: dict[str, bytes | str] = {}
    for file in sorted(path.rglob("*")):
        if file.name == "lock":
            continue
        if file.is_symlink():
            found[str(file.relative_to(path))] = f"to {file.readlink()}"
        elif file.is_file():
            found[str(file.relative_to(path))] = file.read_bytes()
        else:
            found[str(file.relative_to(path))] = "directory" if file.is_dir() else "pipe"
    return found
