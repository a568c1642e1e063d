"""Tests that every view, as of any LSN and any time, equals a model of the operations of the store's clients.

The model uses the clients' calls and their results: message IDs, and the LSN up to which the log was durable
when a call was confirmed. It does not read the log.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cairnmq.analytics.spark.batch import JournalReader
from cairnmq.analytics.spark.source import JournalSource
from cairnmq.analytics.views.journal import VIEWS
from cairnmq.base.errors import CairnError
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.recovery.recover import open_store
from cairnmq.store.contract.dequeue_reason import DequeueReason
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.contract.transaction import StoreTransaction
from cairnmq.store.journaled.store import JournalStore
from tests.harness.store.stores import queue
from tests.harness.thorough import amount

SMALL = 16 << 10
BEGIN_S = 1_790_000_000.0
NEVER = 1 << 60
REASONS = (*[DequeueReason.ACCEPTED] * 2, DequeueReason.REJECTED, DequeueReason.EXPIRED, DequeueReason.OVERFLOW)
Row = dict[str, Any]


@dataclass
class Stay:
    """The stay of a message on a queue between two steps."""

    message_id: int
    queue_id: int
    begin: int
    end: int = NEVER
    how: str | None = None
    reason: str | None = None


@dataclass
class Message:
    size: int
    begin: int
    """Step in which the message was stored."""
    time_us: int
    stays: list[Stay] = field(default_factory=list)
    doubt: tuple[int, int] = (NEVER, NEVER)
    """Steps between which a prepared transaction that enqueues the message was in doubt."""


@dataclass
class Work:
    """A transaction with the steps of its begin and end."""

    kind: str
    begin: int
    enqueues: int
    dequeues: int
    end: int = NEVER
    outcome: str = ""


class Clients:
    """Simulated clients of a store with small containers; each step is one call, confirmed before the next."""

    def __init__(self, path: Path, seed: int, *, archived: bool) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock(BEGIN_S)
        self.path = path
        archive = str(path / "archive") if archived else None
        self.options = StoreOptions(
            container_bytes=SMALL, min_container_bytes=SMALL, reserve_bytes=2 * SMALL, archive_dir=archive
        )
        self.given = {"path": str(path / "store")} | ({"archive": archive} if archive else {})
        self.store = self._open()
        self.queues = [queue(self.store, name) for name in "abc"]
        self.messages: dict[int, Message] = {}
        self.transactions: list[Work] = []
        self.prepared: list[tuple[StoreTransaction, Work, Stay | None, int, int]] = []
        self.locked: set[int] = set()
        self.ends: list[int] = []
        """LSN up to which the log was durable when a step was confirmed, by step."""
        self.times: list[int] = []
        """Time of each step."""
        self._confirmed()

    def _open(self) -> JournalStore:
        store = open_store(str(self.path / "store"), self.clock, self.options)[0]
        store.run_inline(store.became_durable)
        return store

    # ---- operations of clients ------------------------------------------------------------------------------------

    @property
    def now_us(self) -> int:
        return self.clock.wall_us()

    @property
    def step_number(self) -> int:
        return len(self.ends)

    def _confirmed(self) -> None:
        while self.store.journal.has_unsealed:
            self.store.kick()
        self.ends.append(self.store.next_lsn)
        self.times.append(self.now_us)

    def step(self) -> None:
        self.clock.advance(self.rng.randrange(1, 5000) / 1000)
        actions: list[Callable[[], None]] = [
            self.put, self.put, self.put, self.take, self.take, self.take, self.take, self.share, self.transact,
            self.copy, self.prepare, self.decide,
        ]  # fmt: skip
        what = self.rng.random()
        if what < 0.02:
            self.reopen()
        elif what < 0.04:
            self.purge()
        else:
            self.rng.choice(actions)()
        self._confirmed()

    def live(self) -> list[Stay]:
        return [
            stay for message in self.messages.values() for stay in message.stays
            if stay.end == NEVER and stay.message_id not in self.locked
        ]  # fmt: skip

    def stored(self, message_id: int, size: int, queue_id: int) -> None:
        message = self.messages.setdefault(message_id, Message(size, self.step_number, self.now_us))
        message.stays.append(Stay(message_id, queue_id, self.step_number))

    def over(self, stay: Stay, how: str, reason: DequeueReason) -> None:
        stay.end, stay.how, stay.reason = self.step_number, how, reason.words if reason else None

    def content(self) -> bytes:
        return bytes(self.rng.choice((0, 20, 3000, 7000)))

    def put(self) -> None:
        content, queue_id = self.content(), self.rng.choice(self.queues)
        self.stored(self.store.put(queue_id, content, self.now_us)[0], len(content), queue_id)

    def take(self) -> None:
        if some := self.live():
            stay, reason = self.rng.choice(some), self.rng.choice(REASONS)
            self.store.dequeue(stay.message_id, stay.queue_id, self.now_us, reason)
            self.over(stay, "dequeued", reason)

    def share(self) -> None:
        """Enqueue a message to a second queue."""
        some = [stay for stay in self.live() if len(self.messages[stay.message_id].stays) == 1]
        if some:
            message_id = self.rng.choice(some).message_id
            there = {stay.queue_id for stay in self.messages[message_id].stays}
            other = self.rng.choice([one for one in self.queues if one not in there])
            self.store.enqueue(message_id, other, self.now_us)
            self.stored(message_id, 0, other)

    def transact(self) -> None:
        """Commit a transaction that accepts one or two messages and sends two."""
        tx = self.store.transactions.begin(self.now_us)
        taken = self.live()[: self.rng.randrange(1, 3)]
        for stay in taken:
            tx.dequeue(stay.message_id, stay.queue_id, self.now_us, DequeueReason.ACCEPTED)
        sent = [(self.rng.choice(self.queues), self.content()) for _ in range(2)]
        for queue_id, content in sent:
            tx.put(queue_id, content, self.now_us)
        tx.commit(self.now_us)
        for stay in taken:
            self.over(stay, "dequeued", DequeueReason.ACCEPTED)
        for message_id, (queue_id, content) in zip(tx.message_ids, sent, strict=True):
            self.stored(message_id, len(content), queue_id)
        self._noted("local", 2, len(taken))

    def copy(self) -> None:
        """Dequeue a message and enqueue another in one transaction, as for dead letters, expired and moved messages."""
        if some := self.live():
            stay = self.rng.choice(some)
            reason = self.rng.choice(
                (DequeueReason.REJECTED, DequeueReason.EXPIRED, DequeueReason.MOVED, DequeueReason.DELIVERY_LIMIT)
            )
            tx = self.store.transactions.begin(self.now_us)
            tx.dequeue(stay.message_id, stay.queue_id, self.now_us, reason)
            queue_id, content = self.rng.choice(self.queues), self.content()
            tx.put(queue_id, content, self.now_us)
            tx.commit(self.now_us)
            self.over(stay, "dequeued", reason)
            self.stored(tx.message_ids[0], len(content), queue_id)
            self._noted("copy", 1, 1)

    def _noted(self, kind: str, enqueues: int, dequeues: int) -> Work:
        work = Work(kind, self.step_number, enqueues, dequeues)
        if kind != "distributed":
            work.end, work.outcome = self.step_number, "committed"
        self.transactions.append(work)
        return work

    def prepare(self) -> None:
        tx = self.store.transactions.begin(self.now_us, xid=b"xid %d" % self.step_number)
        taken = self.rng.choice(self.live() or [None])
        if taken is not None:
            tx.dequeue(taken.message_id, taken.queue_id, self.now_us, DequeueReason.ACCEPTED)
            self.locked.add(taken.message_id)
        queue_id, content = self.rng.choice(self.queues), self.content()
        message_id = self.store.contents.stage(content, self.now_us, is_last=True)
        tx.enqueue(message_id, queue_id, self.now_us)
        tx.prepare(self.now_us)
        message = self.messages[message_id] = Message(len(content), self.step_number, self.now_us)
        message.doubt = self.step_number, NEVER
        work = self._noted("distributed", 1, int(taken is not None))
        self.prepared.append((tx, work, taken, message_id, queue_id))

    def decide(self) -> None:
        if not self.prepared:
            return
        tx, work, taken, message_id, queue_id = self.prepared.pop(self.rng.randrange(len(self.prepared)))
        commits, message = self.rng.random() < 0.6, self.messages[message_id]
        tx.commit(self.now_us) if commits else tx.rollback(self.now_us)
        work.end, work.outcome = self.step_number, "committed" if commits else "rolled back"
        message.doubt = message.doubt[0], self.step_number
        if taken is not None:
            self.locked.discard(taken.message_id)
        if commits:
            message.stays.append(Stay(message_id, queue_id, self.step_number))
            if taken is not None:
                self.over(taken, "dequeued", DequeueReason.ACCEPTED)

    def purge(self) -> None:
        queue_id = self.rng.choice(self.queues)
        some = [stay for stay in self.live() if stay.queue_id == queue_id]
        if not self.prepared and some:
            self.store.purge(queue_id, self.now_us)
            for stay in some:
                self.over(stay, "purged", DequeueReason.NOT_RECORDED)

    def reopen(self) -> None:
        if self.prepared:
            return
        self.store.close()
        self.store = self._open()

    def finish(self) -> None:
        while self.prepared:
            self.clock.advance(0.5)
            self.decide()
            self._confirmed()
        self.store.journal.writer.write_mark()

    # ---- expected content of views --------------------------------------------------------------------------------

    def expected(self, view: str, first: int, last: int) -> object:
        """Return the expected view of everything that began after step *first*, in its state after step *last*."""
        some = {one: message for one, message in self.messages.items() if first < message.begin <= last}
        stays = [stay for message in some.values() for stay in message.stays if stay.begin <= last]
        if view == "places":
            return sorted((
                stay.message_id, stay.queue_id, self.times[stay.begin], some[stay.message_id].size,
                *((stay.how, stay.reason, self.times[stay.end]) if stay.end <= last else (None, None, None)),
            ) for stay in stays)  # fmt: skip
        if view == "messages":
            return {one: (message.time_us, message.size, *self._state(message, last)) for one, message in some.items()}
        if view == "live_set":
            live = [stay for stay in stays if stay.end > last]
            doubt = sum(message.doubt[0] <= last < message.doubt[1] for message in some.values())
            return {stay.queue_id for stay in live}, len({stay.message_id for stay in live}) + doubt
        if view == "queues":
            return {one: self._queue([stay for stay in stays if stay.queue_id == one], last) for one in self.queues}
        if view == "transactions":
            return Counter(
                (work.kind, work.enqueues, work.dequeues, work.outcome if work.end <= last else "prepared")
                for work in self.transactions if first < work.begin <= last
            )  # fmt: skip
        if view == "records":
            return set(some)
        assert view == "orphan_records"
        return []

    def _state(self, message: Message, last: int) -> tuple[object, ...]:
        stays = [stay for stay in message.stays if stay.begin <= last]
        if any(stay.end > last for stay in stays):
            return "queued", stays[0].queue_id, None, None
        if message.doubt[0] <= last < message.doubt[1]:
            return "in doubt", None, None, None
        if not stays:
            return "removed", None, "discarded", None
        final = max(stays, key=lambda stay: stay.end)
        return "removed", stays[0].queue_id, "consumed" if final.how == "dequeued" else final.how, final.reason

    def _queue(self, stays: list[Stay], last: int) -> tuple[object, ...]:
        live = [stay for stay in stays if stay.end > last]
        oldest = min(live, key=lambda stay: (stay.begin, stay.message_id), default=None)
        ended = Counter(stay.how for stay in stays if stay.end <= last)
        return (
            len(live), sum(self.messages[stay.message_id].size for stay in live),
            None if oldest is None else (oldest.message_id, self.times[oldest.begin]), len(stays), ended["dequeued"],
            ended["purged"],
        )  # fmt: skip

    # ---- actual content of views ----------------------------------------------------------------------------------

    def rows(self, view: str, **options: object) -> list[Row]:
        """Return the rows of a view, read by the Spark data source without Spark."""
        given = {name: str(value) for name, value in options.items()}
        if view == "records":
            given = {"copies": "none", **given}
        source = JournalSource({**self.given, "view": view, "maxPartitionBytes": str(4 * SMALL), **given})
        reader = source.reader(source.schema())
        assert isinstance(reader, JournalReader)
        return [
            row for part in reader.partitions() for batch in reader.read(part)
            for row in pa.Table.from_batches([batch]).to_pylist()
        ]  # fmt: skip

    def moment(self, step: int, *, begins: bool) -> list[Row]:
        """Return several option sets that each select the point in time after *step* as a beginning or an end."""
        name = "starting" if begins else "ending"
        after = self.times[step + 1] if step + 1 < len(self.times) else self.times[step] + 10_000_000
        time_us = self.rng.randrange(self.times[step] + 1, after + 1)
        lsns, times = {f"{name}Lsn": self.ends[step]}, {f"{name}Timestamp": text(time_us)}
        other = {f"{name}Lsn": 0} if begins else {f"{name}Lsn": self.ends[-1]}
        return [lsns, times, {**times, **other}]


def text(time_us: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)).isoformat()


def us(time: datetime | None) -> int | None:
    return None if time is None else (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def comparable(view: str, rows: list[Row]) -> object:
    if view == "places":
        return sorted((
            row["message_id"], row["queue_id"], us(row["time"]), row["size"], row["end"], row["dequeue_reason"],
            us(row["end_time"]),
        ) for row in rows)  # fmt: skip
    if view == "messages":
        assert len({row["message_id"] for row in rows}) == len(rows)
        return {
            row["message_id"]: (us(row["time"]), row["size"], row["state"], row["queue_id"], row["end_reason"],
                                row["dequeue_reason"])
            for row in rows
        }  # fmt: skip
    if view == "live_set":
        messages = sum(row["messages"] for row in rows)
        return {number for row in rows for number in row["queue_ids"]}, messages
    if view == "queues":
        return {
            row["queue_id"]: (
                row["depth"], row["size"], None if row["oldest_id"] is None else (row["oldest_id"],
                us(row["oldest_time"])), row["enqueued"], row["dequeued"], row["purged"],
            ) for row in rows
        }  # fmt: skip
    if view == "transactions":
        return Counter((row["kind"], row["enqueues"], row["dequeues"], row["state"]) for row in rows)
    if view == "records":
        return {row["message_id"] for row in rows if row["type"] == "start"}
    return rows


def without(rows: object, ids: set[int]) -> object:
    assert isinstance(rows, dict)
    return {one: told for one, told in rows.items() if one not in ids}


RANGED = ("records", "messages", "places", "live_set", "transactions", "orphan_records")
SEEDS = range(amount("CAIRN_AS_OF_TIME_SEEDS", 2, 1))


def lived(path: Path, seed: int, steps: int, *, archived: bool) -> Clients:
    clients = Clients(path, seed, archived=archived)
    for _ in range(steps):
        clients.step()
    clients.finish()
    return clients


def same(view: str, shown: object, expected: object) -> bool:
    if view == "live_set":  # a message with records in two containers counts in both
        assert isinstance(shown, tuple)
        assert isinstance(expected, tuple)
        return bool(shown[0] == expected[0] and shown[1] >= expected[1])
    return shown == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_every_view_as_of_any_lsn_and_time(tmp_path: Path, seed: int) -> None:
    """A1: with an archive, every view is correct as of every point in time, given by an LSN, a timestamp or both."""
    clients = lived(tmp_path, seed, 160, archived=True)
    last_step = len(clients.ends) - 1
    assert len(list((tmp_path / "archive").iterdir())) > 3
    for _ in range(4):
        first, last = sorted(clients.rng.sample(range(last_step + 1), 2))
        for view in ("queues", *RANGED):
            expected = clients.expected(view, -1, last)
            for end in clients.moment(last, begins=False):
                shown = comparable(view, clients.rows(view, **end))
                assert same(view, shown, expected), (view, end)
            if view in RANGED:
                expected = clients.expected(view, first, last)
                begin = clients.rng.choice(clients.moment(first, begins=True))
                end = clients.rng.choice(clients.moment(last, begins=False))
                assert same(view, comparable(view, clients.rows(view, **begin, **end)), expected), (view, begin, end)
        [lsn, time, _] = clients.moment(last, begins=False)
        for end in (lsn, time):
            records = clients.rows("records", copies="all", columns="lsn,container", **end)
            held = {row["container"]: row["records"] for row in clients.rows("containers", **end) if row["records"]}
            assert held == Counter(row["container"] for row in records)
    clients.store.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_inside_a_step_it_is_as_before_or_after_it(tmp_path: Path, seed: int) -> None:
    """As of an LSN inside a step, a view has the state before or after the step; transactions are atomic."""
    clients = lived(tmp_path, seed, 120, archived=True)
    for _ in range(8):
        lsn = clients.rng.randrange(clients.ends[0], clients.ends[-1])
        before = max(step for step, end in enumerate(clients.ends) if end <= lsn)
        for view in ("queues", "messages"):
            shown = comparable(view, clients.rows(view, endingLsn=lsn))
            states = [clients.expected(view, -1, step) for step in (before, before + 1)]
            if view == "messages":  # messages of a transaction without a commit are on no queue
                assert isinstance(shown, dict)
                passing = {one for one, told in shown.items() if told[2] in ("staged", "open")}
                shown = without(shown, passing)
                states = [without(some, passing) for some in states]
            assert shown in states
    clients.store.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_without_an_archive_a_time_is_told_truly_or_refused(tmp_path: Path, seed: int) -> None:
    """A1: `check_past` also checks times, including those in a reclaimed range."""
    clients = lived(tmp_path, seed, 200, archived=False)
    refusals: list[str] = []
    told = 0
    steps = range(len(clients.ends))
    for last in (*clients.rng.sample(steps, 10), *steps[-7::2]):
        for end in clients.moment(last, begins=False):
            try:
                rows = clients.rows("queues", **end)
            except CairnError as error:
                refusals.append(str(error))
                continue
            told += 1
            expected = clients.expected("queues", -1, last)
            assert isinstance(expected, dict)
            assert {row["queue_id"]: row["depth"] for row in rows} == {one: state[0] for one, state in expected.items()}
    assert told
    assert refusals
    assert all("was reclaimed since" in refusal for refusal in refusals)
    clients.store.close()


REFUSED = [
    ("queues", "startingLsn", "5", "endingLsn"), ("queues", "startingTimestamp", "2030-01-01", "endingLsn"),
    *(("wiring", name, value, "leave it out") for name, value in (
        ("startingLsn", "5"), ("endingLsn", "5"), ("startingTimestamp", "2030-01-01"),
        ("endingTimestamp", "2030-01-01"), ("queues", "a"),
    )),
    ("transactions", "queues", "a", "leave it out"), ("containers", "queues", "a", "leave it out"),
    ("queues", "includePayload", "true", "leave it out"), ("places", "includeAmqp", "true", "leave it out"),
    ("queues", "types", "start", "leave it out"),
]  # fmt: skip


def test_an_option_that_a_view_does_not_apply_is_refused(tmp_path: Path) -> None:
    """A1: an option that does not apply is refused in one line with the view, the option and the remedy."""
    clients = Clients(tmp_path, 1, archived=False)
    for view, name, value, _ in REFUSED:
        with pytest.raises(CairnError) as raised:
            clients.rows(view, **{name: value})
        said = str(raised.value)
        assert f"option {name}" in said
        assert f"the view {view}" in said
        assert "leave it out" in said
        assert "\n" not in said
    for view in VIEWS:
        clients.rows(view, failOnDataLoss="true", verify="full", mode="FAILFAST")
    clients.store.close()


def test_a_time_is_exact_to_the_microsecond(tmp_path: Path) -> None:
    """Timestamps are not rounded, as they would be in a float of seconds."""
    clients = Clients(tmp_path, 1, archived=False)
    for _ in range(30):
        clients.clock.advance(0.000_003)
        clients.put()
        clients._confirmed()
    clients.store.journal.writer.write_mark()
    for step in range(5, 30):
        time_us = clients.times[step]
        assert len(clients.rows("messages", endingTimestamp=text(time_us))) == step - 1
        assert len(clients.rows("messages", endingTimestamp=text(time_us + 1))) == step
    clients.store.close()
