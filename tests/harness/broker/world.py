"""A broker in one thread, with a store on a disk in memory, a reader that the test steps, and fake terminals."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from cairnmq.amqp.ports import (
    Answer,
    Delivery,
    DriverEnd,
    Forward,
    Fragment,
    KeptLink,
    Open,
    Outcome,
    Resumable,
    Terminus,
)
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.broker.broker import Broker
from cairnmq.broker.contents import arrival_order, backlog_reader
from cairnmq.broker.kernel import queue_memory
from cairnmq.broker.links import consumer
from cairnmq.broker.links import filtered_consumer as selecting
from cairnmq.broker.messages import backlog
from cairnmq.broker.queues.queue import Queue
from cairnmq.recovery.recover import recover
from cairnmq.store.journaled.retention_leases import Bookmarks
from tests.harness.recovery.world import OPTIONS, MemoryWiring


def message(number: int, size_bytes: int, durable: bool) -> bytes:
    header = b"\x00\x53\x70\xc0\x02\x01" + (b"\x41" if durable else b"\x42")
    body = number.to_bytes(4) + bytes(size_bytes)
    return header + b"\x00\x53\x75\xb0" + len(body).to_bytes(4) + body


def number_of(content: Any) -> int:
    """Return the number of a message, reading the pieces of a long one; check that it is complete."""
    data = content if isinstance(content, bytes) else b"".join(map(content.piece, range(content.pieces)))
    at = data.index(b"\x00\x53\x75\xb0") + 8
    assert len(data) == at + int.from_bytes(data[at - 4 : at])
    return int.from_bytes(data[at : at + 4])


@contextmanager
def small_pages() -> Iterator[None]:
    """Reduce all batch sizes, so that few messages need several batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backlog, "CHUNK_MESSAGES", 7)
        patch.setattr(queue_memory, "ALLOWANCE_BYTES", 1500)
        patch.setattr(queue_memory, "MOST_SELECTED_BYTES", 3000)
        patch.setattr(arrival_order, "BATCH_MESSAGES", 5)
        patch.setattr(backlog_reader, "BATCH_MESSAGES", 5)
        patch.setattr(selecting, "PAGE_MESSAGES", 4)
        patch.setattr(selecting, "BATCH_BYTES", 1000)
        patch.setattr(selecting, "BEGINNING_BYTES", 1000)
        patch.setattr(selecting, "JUDGE_AT_ONCE", 6)
        patch.setattr(selecting, "BEGINNINGS_AT_ONCE", 2)
        yield


class WorkingClock(ManualClock):
    """A clock that advances by a fixed step at each reading, so that work takes time."""

    def __init__(self, each_s: float) -> None:
        super().__init__()
        self._each_s = each_s

    def monotonic_s(self) -> float:
        self.now_s += self._each_s
        return self.now_s


class FakeTerminal:
    """A terminal that records the calls of the core for one channel."""

    def __init__(self) -> None:
        self.driver: Any = None
        self.kept: KeptLink | None = None
        self.forwarded: list[Forward] = []
        self.resumable: list[Resumable] = []
        self.settled_before: list[int] = []
        """The number of settlements that were sent before each of `resumable`."""
        self.confirmed: list[Delivery] = []
        self.handed_back: list[Delivery] = []
        self.rejected: dict[Delivery, str] = {}
        self.failures: list[str] = []
        self.drains: list[int] = []
        self.granted: list[int] = []
        self.declared_ids: list[bytes] = []
        self.accepted_in: list[tuple[bytes, Delivery]] = []
        self.settled: list[tuple[Delivery, int]] = []
        self.settled_in: list[Any] = []
        self.credit = 0
        self.told: dict[Delivery, Answer] = {}
        self.held = False
        self.wakes = 0
        self.reads = True
        """True if the client reads; otherwise its messages remain unsent."""
        self.post: Callable[[Callable[[], None]], object] = lambda done: done()
        """A function that posts an action to the core, as a step of its own."""
        self.unsent: list[Callable[[], None]] = []
        """Actions that wait until messages are sent."""

    def opened(self, driver: DriverEnd, address: str | None, credit: int, **answer: Any) -> None:
        self.driver = driver
        self.credit = credit
        self.kept = answer.get("kept")

    def failure(self, condition: str, description: str) -> None:
        self.failures.append(condition)

    def confirm(self, deliveries: Sequence[Delivery], credit: int) -> None:
        self.confirmed += deliveries
        self.credit += credit

    def release(self, deliveries: Sequence[Delivery], credit: int) -> None:
        self.credit += credit

    def hand_back(self, deliveries: Sequence[Delivery], credit: int) -> None:
        self.handed_back += deliveries
        self.credit += credit

    def refuse_relayed(
        self, delivery: Delivery, condition: str, description: str, *, is_settled: bool, txn_id: bytes = b""
    ) -> None:
        self.reject((delivery,), 1, condition, description)

    def reject(self, deliveries: Sequence[Delivery], credit: int, condition: str, description: str) -> None:
        self.rejected.update(dict.fromkeys(deliveries, condition))
        self.credit += credit

    def tell(self, answers: Sequence[Answer], credit: int) -> None:
        self.told.update({answer.delivery: answer for answer in answers})
        self.credit += credit

    def hold(self, *, for_routing: bool = False) -> None:
        self.held = True

    def go_on(self, *, for_routing: bool = False) -> None:
        self.held = False

    def more(self) -> None:
        self.wakes += 1

    def grant(self, credit: int) -> None:
        self.granted.append(credit)
        self.credit += credit

    def forward(self, messages: Sequence[Forward]) -> None:
        self.forwarded += messages

    @property
    def client(self) -> str:
        return "test"

    @property
    def lost_reason(self) -> str:
        return ""

    def when_sent(self, done: Callable[[], None]) -> None:
        if self.reads:
            self.post(done)
        else:
            self.unsent.append(done)

    def forward_in(self, txn_id: bytes, messages: Sequence[Forward]) -> None:
        self.forwarded += messages

    def recall(self, tags: Collection[Any], done: Callable[[], None]) -> None:
        self.settled_in += tags
        done()

    def forward_resuming(self, messages: Sequence[Resumable]) -> None:
        self.resumable += messages
        self.settled_before += [len(self.settled)] * len(messages)

    def drained(self, spent: int) -> None:
        self.drains.append(spent)

    def settle(self, deliveries: Sequence[tuple[Delivery, int]]) -> None:
        self.settled += deliveries

    def declared(self, delivery: Delivery, txn_id: bytes, credit: int) -> None:
        self.declared_ids.append(txn_id)

    def accept_in(self, txn_id: bytes, deliveries: Sequence[Delivery], credit: int) -> None:
        self.accepted_in += [(txn_id, delivery) for delivery in deliveries]

    def reject_in(
        self, txn_id: bytes, deliveries: Sequence[Delivery], credit: int, condition: str, description: str
    ) -> None:
        self.rejected.update(dict.fromkeys(deliveries, condition))

    def settle_in(self, deliveries: Sequence[tuple[Delivery, int, Any]], done: Callable[[], None]) -> None:
        self.settled_in += [tag for _, _, tag in deliveries]
        done()


class World:
    """A broker and its store, which a test runs step by step."""

    def __init__(
        self,
        memory_limit_bytes: int,
        *,
        acquisitions: bool = False,
        bookmarks: Bookmarks | None = None,
        clock: ManualClock | None = None,
        compiles_later: bool = False,
        **broker_options: Any,
    ) -> None:
        """Create the broker.

        *acquisitions*: log acquisitions (delivery tracking).
        *bookmarks*: the bookmarks of readers of the log as history.
        *compiles_later*: compile selectors when the reader reads, not at once.
        """
        self._options = replace(OPTIONS, acquisitions=acquisitions)
        self._broker_options = broker_options
        self._compiles_later = compiles_later
        self.disk = MemoryDirectory()
        self.clock = clock or ManualClock()
        self.wiring = MemoryWiring()
        self._bookmarks = bookmarks
        self._limit_bytes = memory_limit_bytes
        self.readings: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self.start()

    def start(self) -> None:
        """Recover the store, and start a broker on it."""
        self._actions: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self.readings.clear()
        self.store, _ = recover(self.disk, self.wiring, self.clock, self._options, bookmarks=self._bookmarks)
        self.store.run_inline(lambda lsn: self._actions.append((self._durable, (lsn,))))
        self.broker = Broker(
            self.store,
            self.clock,
            lambda action, *args: self._actions.append((action, args)),
            lambda work, *args: self.readings.append((work, args)),
            compile_on=None if self._compiles_later else lambda work, *args: work(*args),
            memory_limit_bytes=self._limit_bytes,
            notes=self.store if self._options.acquisitions else None,
            **self._broker_options,
        )

    def kill_and_start(self) -> None:
        self.store.journal.abandon()
        self.start()

    def _durable(self, lsn: int) -> None:
        self.broker.steps.durable(lsn)

    def do(self, action: Callable[..., None], *args: Any) -> None:
        """Run *action* and the actions that wait, each as one step of the core."""
        self._actions.append((action, args))
        self.step()

    def begin_step(self, action: Callable[..., None], *args: Any, until: Callable[[], bool]) -> None:
        """Run the core until *until* holds, inside a step: the records of that step are not durable yet."""
        self._actions.append((action, args))
        while True:
            action, args = self._actions.popleft()
            action(*args)
            if until():
                return
            self.broker.steps.finish()

    def step(self) -> None:
        while self._actions:
            action, args = self._actions.popleft()
            action(*args)
            self.broker.steps.finish()

    def step_at_once(self, *actions: tuple[Callable[..., None], Any]) -> None:
        """Run *actions* with their arguments, and those that wait, as one step, as a busy core does."""
        self._actions.extendleft([(action, (argument,)) for action, argument in actions])
        while self._actions:
            action, args = self._actions.popleft()
            action(*args)
        self.broker.steps.finish()

    def advance(self, seconds: float) -> None:
        """Advance the clock, and run the timers of the core that are due."""
        self.clock.advance(seconds)
        if self.broker.core.scheduler.due_s <= self.clock.monotonic_s():
            self.do(self.broker.core.scheduler.run)

    def read_one(self) -> None:
        """Run the oldest request to the reader's thread, if any."""
        if self.readings:
            work, args = self.readings.popleft()
            work(*args)
            self.step()

    def drain(self, terminal: FakeTerminal, limit: int) -> int:
        """Drain as a client that settles nothing; return the credit that was returned."""
        before = len(terminal.drains)
        self.do(terminal.driver.request, limit, True)
        self.read_all()
        if len(terminal.drains) == before:
            assert not self.queue().may_read() or not self.queue().may_select(), "only memory is waited for"
            self.advance(consumer.MOST_IDLE_DRAIN_S)
            self.advance(consumer.MOST_IDLE_DRAIN_S)
        assert len(terminal.drains) == before + 1
        return terminal.drains[-1]

    def read_all(self) -> None:
        while self.readings:
            self.read_one()

    def open(
        self, *, to_client: bool, presettled: bool = False, connection: object = None, **terminus: Any
    ) -> FakeTerminal:
        """Open a channel, on the queue `q` unless *terminus* has another address."""
        terminal = FakeTerminal()
        terminal.post = lambda done: self._actions.append((done, ()))
        asked = Terminus(**{"address": "q", **terminus})
        self.do(self.broker.drivers.open, Open(to_client, asked, presettled, connection), terminal)
        return terminal

    def queue(self, name: str = "q") -> Queue:
        return self.broker.nodes.queues[name]

    def send(self, terminal: FakeTerminal, *fragments: Fragment) -> None:
        self.do(terminal.driver.receive, fragments)

    def settle(self, terminal: FakeTerminal, tag: Any, state: int) -> None:
        self.do(terminal.driver.outcomes, [Outcome(None, tag, state, False, False)])
