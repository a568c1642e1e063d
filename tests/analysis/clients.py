"""Clients of a store on disk that record their operations, from which tests compute the results of jobs.

Clients run in a separate process that ends by SIGKILL; the next process continues with the notes and the files on disk.
Command line arguments: store, notes, steps, `kill` or `close`, and optionally an archive.
"""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from cairnmq.amqp.codec import encode, sections
from cairnmq.amqp.codec.sections import DATA
from cairnmq.store.contract.dequeue_reason import DequeueReason
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.embedded.library import open_store

SMALL = 64 << 10
BEGIN_US = 1_790_000_000_000_000
NAMES: dict[int | str | bytes | UUID, str] = {
    **{f"order {number}": f"order {number}" for number in range(20)}, **{number: str(number) for number in range(3)},
    UUID(int=11): "00000000-0000-0000-0000-00000000000b", b"\x00\xff": "00ff", 'say "pear", ': 'say "pear", ',
    "a\\": "a\\", "Birne\nüber": "Birne\nüber", " x": " x", "#1": "#1",
}  # fmt: skip
"""The message-ids set by producers, with the text that jobs return for each."""
REASONS = (*[DequeueReason.ACCEPTED] * 3, DequeueReason.REJECTED, DequeueReason.EXPIRED, DequeueReason.DELIVERY_LIMIT)


@dataclass
class Stay:
    """A message on a queue."""

    message_id: int
    queue: str
    time_us: int
    size: int
    end_us: int | None = None
    how: str = ""
    reason: str = ""
    lives: int = 1
    """Number of runs of the store during which the message was on the queue."""


@dataclass
class Noted:
    """A transaction of more than one operation."""

    kind: str
    began_us: int
    state: str
    end_us: int | None
    enqueues: int
    dequeues: int
    size: int
    xid: bytes = b""
    prepared_us: int = 0


class Notes:
    """The recorded operations of the clients of a store in all runs."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_us = BEGIN_US
        self.stays: list[Stay] = []
        self.contents: dict[int, bytes] = {}
        """Contents by message ID, of messages that were on queues and of messages discarded with their transactions."""
        self.stored_us: dict[int, int] = {}
        """Storage time of each message in `contents`."""
        self.ended: dict[int, tuple[int, str, str]] = {}
        """Time, kind and reason of the end of each message that ended without being on a queue."""
        self.staged: set[int] = set()
        """Messages that are not on a queue yet."""
        self.named: dict[bytes, str] = {}
        """Message-ids of AMQP messages, by content."""
        self.sent: list[str] = []
        """Message-ids in the log of a producer."""
        self.transactions: list[Noted] = []
        self.work: dict[bytes, list[tuple[str, int, int, str]]] = {}
        """Operations of prepared transactions, by xid."""
        self.ids: dict[str, int] = {}
        self.kills = self.xids = 0

    def save(self, path: Path) -> None:
        stays, transactions = map(astuple, self.stays), map(astuple, self.transactions)
        path.write_bytes(pickle.dumps(vars(self) | {"stays": [*stays], "transactions": [*transactions]}))

    @classmethod
    def load(cls, path: Path) -> Notes:
        state: dict[str, Any] = pickle.loads(path.read_bytes())
        made = cls(0)
        vars(made).update(state)
        made.stays = [Stay(*one) for one in state["stays"]]
        made.transactions = [Noted(*one) for one in state["transactions"]]
        return made

    def stored(self, message_id: int, content: bytes, time_us: int) -> None:
        self.contents[message_id], self.stored_us[message_id] = content, time_us

    def on(self, queue: str) -> list[Stay]:
        return [stay for stay in self.stays if stay.queue == queue]

    def living(self, queue: str) -> list[Stay]:
        """Return the messages that are still on a queue, in queue order."""
        return [stay for stay in self.on(queue) if stay.end_us is None]

    def prepared(self) -> list[Noted]:
        return [one for one in self.transactions if one.state == "prepared"]


def live(place: Path, seed: int, steps: list[int], *, archived: bool) -> Notes:
    """Run clients of *place*/store for each number of steps in *steps*; kill all runs except the last."""
    notes = place / "notes"
    Notes(seed).save(notes)
    for life, number in enumerate(steps, 1):
        end = "close" if life == len(steps) else "kill"
        command = [sys.executable, __file__, str(place / "store"), str(notes), str(number), end]
        ended = subprocess.run(command + [str(place / "archive")] * archived, check=False, timeout=1000)
        assert ended.returncode == (0 if end == "close" else -signal.SIGKILL)
    return Notes.load(notes)


class Clients:
    """Clients with random traffic over three queues, where all operations are durable between steps."""

    def __init__(self, path: Path, notes: Notes, archive: Path | None) -> None:
        self.path = path
        self.archive = archive
        self.notes = notes
        self.rng = notes.rng
        self.live = {(stay.queue, stay.message_id): stay for stay in notes.stays if stay.end_us is None}
        for stay in self.live.values():
            stay.lives += 1
        works = notes.work.values()
        self.locked = {(name, number) for work in works for what, number, _, name in work if what == "take"}
        self.open()
        of = self.store.inner.transactions.of
        self.prepared = {one.xid: (of(one.xid), one) for one in notes.prepared()}

    def open(self) -> None:
        options = StoreOptions(
            container_bytes=SMALL, min_container_bytes=SMALL, reserve_bytes=4 * SMALL,
            archive_dir=str(self.archive) if self.archive else None,
        )  # fmt: skip
        self.store = open_store(str(self.path), options=options)
        self.ids = self.notes.ids = {name: self.store.queue(name).id for name in ("orders", "bills", "letters")}

    # ---- operations ----------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do random operations and wait until all are durable."""
        with self.store.lock:
            self.work()
            self.store.inner.kick()
            end = self.store.recorded(self.store.inner.next_lsn - 1, None)
        end.result(60)

    def work(self) -> None:
        for _ in range(self.rng.randrange(5, 40)):
            self.rng.choice([self.put] * 4 + [self.take] * 4 + [self.transaction])()
        if self.prepared and self.rng.random() < 0.3:
            self.decide()

    def tick(self) -> int:
        self.notes.now_us += self.rng.choice((1, 1000, 1_000_000, 7_000_000, 90_000_000))
        return self.notes.now_us

    def content(self) -> bytes:
        body = self.rng.randbytes(self.rng.choice((0, 100, 3000)))
        if self.rng.random() < 0.6:
            return body
        name = self.rng.choice([*NAMES])
        body = self.rng.choice((body, b"again"))
        content = sections.properties_section(sections.Properties(name)) + encode.described(DATA, encode.binary(body))
        self.notes.named[content] = NAMES[name]
        return content

    def put(self) -> None:
        content, time_us = self.content(), self.tick()
        if self.rng.random() < 0.1:
            queues = self.rng.sample(sorted(self.ids), self.rng.choice((2, 3)))
            content = content or b"in pieces"
            cut = self.rng.randrange(len(content))
            message_id = self.store.inner.stage(content[:cut], time_us)
            self.store.inner.append_content(message_id, content[cut:], time_us, last=True)
            self.notes.stored(message_id, content, time_us)
            for queue in queues:
                time_us = self.tick()
                self.store.inner.enqueue(message_id, self.ids[queue], time_us)
                self.came(message_id, queue, time_us, content)
        else:
            queue = self.rng.choice(sorted(self.ids))
            message_id, _ = self.store.inner.put(self.ids[queue], content, time_us)
            self.notes.stored(message_id, content, time_us)
            self.came(message_id, queue, time_us, content)

    def came(self, message_id: int, queue: str, time_us: int, content: bytes) -> None:
        stay = Stay(message_id, queue, time_us, len(content))
        self.notes.stays.append(stay)
        self.live[queue, message_id] = stay

    def free(self) -> list[tuple[str, int]]:
        return [key for key in self.live if key not in self.locked]

    def take(self) -> None:
        if free := self.free():
            queue, message_id = free[0] if self.rng.random() < 0.6 else self.rng.choice(free)
            reason, time_us = self.rng.choice(REASONS), self.tick()
            self.store.inner.dequeue(message_id, self.ids[queue], time_us, reason)
            self.went(message_id, queue, time_us, reason.words or "")

    def went(self, message_id: int, queue: str, time_us: int, reason: str, how: str = "dequeued") -> None:
        stay = self.live.pop((queue, message_id))
        stay.end_us, stay.how, stay.reason = time_us, how, reason

    def purge(self) -> None:
        """Purge the messages of a random queue that no prepared transaction has locked."""
        with self.store.lock:
            queue, time_us = self.rng.choice(sorted(self.ids)), self.tick()
            keep = [message_id for name, message_id in self.locked if name == queue]
            self.store.inner.purge(self.ids[queue], time_us, keep=keep)
            for name, message_id in self.free():
                if name == queue:
                    self.went(message_id, queue, time_us, "", "purged")
            end = self.store.recorded(self.store.inner.next_lsn - 1, None)
        end.result(60)

    def transaction(self) -> None:
        """Run a transaction of two to six operations that is committed, prepared or rolled back."""
        self.notes.xids += 1
        xid = b"xid %d" % self.notes.xids if self.rng.random() < 0.5 else b""
        inner = self.store.inner.transactions.begin(self.notes.now_us, xid=xid)
        free = self.free()
        work: list[tuple[str, int, int, str]] = []
        contents: list[bytes] = []
        for number in range(self.rng.randrange(2, 7)):
            queue, time_us = self.rng.choice(sorted(self.ids)), self.tick()
            if free and number % 2:
                name, message_id = free.pop(self.rng.randrange(len(free)))
                inner.dequeue(message_id, self.ids[name], time_us, DequeueReason.ACCEPTED)
                work.append(("take", message_id, time_us, name))
            else:
                contents.append(self.content())
                inner.put(self.ids[queue], contents[-1], time_us)
                work.append(("put", len(contents) - 1, time_us, queue))
        put_us = [time_us for what, _, time_us, _ in work if what == "put"]
        took = sum(what == "take" for what, *_ in work)
        noted = Noted(
            "distributed" if xid else "local", 0, "committed", None, len(work) - took, took,
            sum(map(len, contents)), xid,
        )  # fmt: skip
        outcome = self.rng.random()
        if xid and outcome < 0.7:
            noted.began_us = noted.prepared_us = self.tick()
            inner.prepare(noted.prepared_us)
            noted.state = "prepared"
            work = [(w, inner.staged[n] if w == "put" else n, t, q) for w, n, t, q in work]
            self.stored(inner.staged, contents, put_us)
            self.locked |= {(name, message_id) for what, message_id, _, name in work if what == "take"}
            self.prepared[xid] = inner, noted
            self.notes.work[xid] = work
            self.notes.transactions.append(noted)
        elif outcome < 0.9:
            time_us = self.tick()
            inner.commit(time_us)
            noted.end_us = time_us
            noted.began_us = time_us
            noted.kind = "local"  # a one-phase commit is logged as local, even with an xid
            self.notes.transactions.append(noted)
            self.stored(inner.message_ids, contents, put_us if xid else [time_us] * len(contents))
            self.did([(w, inner.message_ids[n] if w == "put" else n, t, q) for w, n, t, q in work], time_us)
        else:
            made = list(inner.staged)  # a transaction with an xid stores each message at once
            self.stored(made, contents[: len(made)], put_us[: len(made)])
            self.discarded(made, self.tick())
            inner.rollback(self.notes.now_us)

    def stored(self, message_ids: list[int], contents: list[bytes], times_us: list[int]) -> None:
        for one in zip(message_ids, contents, times_us, strict=True):
            self.notes.stored(*one)

    def discarded(self, message_ids: list[int], time_us: int) -> None:
        self.notes.ended |= dict.fromkeys(message_ids, (time_us, "discarded", ""))

    def did(self, work: list[tuple[str, int, int, str]], time_us: int) -> None:
        for what, message_id, _, queue in work:
            if what == "take":
                self.went(message_id, queue, time_us, "accepted")
            else:
                self.came(message_id, queue, time_us, self.notes.contents[message_id])

    def decide(self) -> None:
        xid = self.rng.choice(list(self.prepared))
        inner, noted = self.prepared.pop(xid)
        work = self.notes.work.pop(xid)
        self.locked -= {(name, message_id) for what, message_id, _, name in work if what == "take"}
        noted.end_us = self.tick()
        if self.rng.random() < 0.7:
            noted.state = "committed"
            inner.commit(noted.end_us)
            self.did(work, noted.end_us)
        else:
            noted.state = "rolled back"
            self.discarded([message_id for what, message_id, *_ in work if what == "put"], noted.end_us)
            inner.rollback(noted.end_us)


def main(path: str, notes_path: str, steps: int, end: str, archive: str | None = None) -> None:
    notes = Notes.load(Path(notes_path))
    clients = Clients(Path(path), notes, Path(archive) if archive else None)
    for number in range(steps):
        clients.step()
        if number % 20 == 10:
            clients.purge()
    notes.kills += end == "kill"
    notes.save(Path(notes_path))
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    clients.store.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
