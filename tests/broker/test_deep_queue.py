"""Tests of queues that do not fit into memory, against a sorted list.

Messages keep their order under any mix of sizes, durable and transient messages, releases and restarts; none is lost
or duplicated. Memory is accounted exactly and stays within the limit, and browsers see all messages.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cairnmq.amqp.native.proton_ffi import ACCEPTED, RELEASED
from cairnmq.broker.contents import arrival_order, backlog_reader
from cairnmq.broker.kernel import memory_budget as memory
from cairnmq.broker.kernel import queue_memory
from cairnmq.broker.kernel.memory_budget import ENTRY_BYTES
from cairnmq.broker.messages import backlog
from tests.harness.broker.world import FakeTerminal, World, message, number_of
from tests.harness.thorough import amount

LIMIT_BYTES = 12_000
ALLOWANCE_BYTES = 1500
BATCH_MESSAGES = 5
SIZES = st.integers(0, 600) | st.sampled_from([3000, 70_000])


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backlog, "CHUNK_MESSAGES", 7)
        patch.setattr(queue_memory, "ALLOWANCE_BYTES", ALLOWANCE_BYTES)
        patch.setattr(arrival_order, "BATCH_MESSAGES", BATCH_MESSAGES)
        patch.setattr(backlog_reader, "BATCH_MESSAGES", BATCH_MESSAGES)
        yield


class DeepQueue(RuleBasedStateMachine):
    """A model of one queue with one consumer: a sorted list of message numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.next_number = 1
        self.waiting: list[int] = []
        self.stored: set[int] = set()
        self.sizes: dict[int, int] = {}
        self.out: dict[int, Any] = {}
        """Entries of the consumer's unsettled messages, by number."""

    @initialize()
    def begin(self) -> None:
        self.world = World(LIMIT_BYTES)
        self.connect()

    def connect(self) -> None:
        self.sender = self.world.open(to_client=False)
        self.consumer = self.world.open(to_client=True)
        self.limit = 0
        self.world.step()

    @rule(sizes=st.lists(st.tuples(SIZES, st.booleans()), min_size=1, max_size=12))
    def send(self, sizes: list[tuple[int, bool]]) -> None:
        fragments = []
        for size, durable in sizes:
            fragments.append((self.next_number, message(self.next_number, size, durable), 0))
            self.sizes[self.next_number] = size
            if durable:
                self.stored.add(self.next_number)
            self.next_number += 1
        self.world.send(self.sender, *fragments)
        for number, _, _ in fragments:
            if number in self.sender.rejected:
                assert number not in self.stored
                assert self.sender.rejected[number] == "amqp:resource-limit-exceeded"
            else:
                assert number in self.sender.confirmed
                self.waiting.append(number)
        self.look()

    @rule(credit=st.integers(1, 20))
    def give_credit(self, credit: int) -> None:
        self.limit += credit
        self.world.do(self.consumer.driver.request, self.limit, False)
        self.look()

    @rule()
    def drain(self) -> None:
        """Drain: all waiting messages arrive, or as many as fit into memory, and the remaining credit is returned."""
        self.limit += 10
        spent = self.world.drain(self.consumer, self.limit)
        self.look()
        assert not (self.waiting and spent) or (self.out and not self.world.queue().may_read())

    @rule()
    def drain_and_settle(self) -> None:
        """A client that settles while it drains receives all waiting messages, however few fit into memory."""
        before = len(self.consumer.drains)
        self.limit += 30
        self.world.do(self.consumer.driver.request, self.limit, True)
        self.world.read_all()
        self.look()
        while len(self.consumer.drains) == before:
            number = min(self.out)
            self.world.settle(self.consumer, self.out.pop(number), ACCEPTED)
            self.world.read_all()
            self.look()
        assert not (self.waiting and self.consumer.drains[-1])

    @rule()
    def read(self) -> None:
        self.world.read_one()
        self.look()

    @rule(which=st.integers(0), state=st.sampled_from([ACCEPTED, ACCEPTED, RELEASED]))
    def settle(self, which: int, state: int) -> None:
        if not self.out:
            return
        number = sorted(self.out)[which % len(self.out)]
        entry = self.out.pop(number)
        if state == RELEASED:
            insort(self.waiting, number)
        self.world.settle(self.consumer, entry, state)
        self.look()

    @rule(which=st.integers(1, 30))
    def leave(self, which: int) -> None:
        """Close the consumer, which returns its unsettled messages, and open another one."""
        returned, self.out = list(self.out.items()), {}
        for number, _ in returned:
            insort(self.waiting, number)
        self.world.do(self.consumer.driver.close, [entry for _, entry in returned], True, False)
        self.consumer = self.world.open(to_client=True)
        self.limit = 0

    @rule(credit=st.integers(1, 30))
    def take_for_good(self, credit: int) -> None:
        """A presettled consumer receives the first messages in order while the other consumer has no credit."""
        self.leave(0)
        taker = self.world.open(to_client=True, presettled=True)
        self.world.do(taker.driver.request, credit, False)
        self.world.read_all()
        taken = self.numbers(taker)
        assert taken == self.waiting[: len(taken)]
        assert len(taken) == min(credit, len(self.waiting))
        del self.waiting[: len(taken)]
        self.world.do(taker.driver.close, [], False, True)

    @rule(credit=st.integers(1, 50))
    def browse(self, credit: int) -> None:
        self.world.read_all()
        self.look()
        browser = self.world.open(to_client=True, browse=True)
        self.world.do(browser.driver.request, credit, False)
        self.world.read_all()
        assert self.numbers(browser) == self.waiting[:credit]
        self.world.do(browser.driver.close, [], False, True)

    @rule()
    def restart(self) -> None:
        """Kill and restart the broker; only the durable messages are on the queue."""
        self.waiting = sorted({*self.waiting, *self.out} & self.stored)
        self.out = {}
        self.world.kill_and_start()
        assert self.world.queue().depth == len(self.waiting)
        assert self.world.broker.core.memory.used_bytes == 0
        self.connect()

    def teardown(self) -> None:
        """Check that all waiting messages arrive in order, without loss or duplicates."""
        if not hasattr(self, "world"):
            return
        self.leave(0)
        self.world.do(self.consumer.driver.request, 1 << 30, False)
        while self.waiting:
            before = len(self.waiting)
            self.world.read_all()
            self.look()
            for number in list(self.out):
                self.world.settle(self.consumer, self.out.pop(number), ACCEPTED)
            self.look()
            assert len(self.waiting) < before
        for number in list(self.out):
            self.world.settle(self.consumer, self.out.pop(number), ACCEPTED)
        self.world.read_all()
        assert self.world.broker.core.memory.used_bytes == 0
        assert self.world.store.messages() == {}

    def numbers(self, terminal: FakeTerminal) -> list[int]:
        forwarded, terminal.forwarded = terminal.forwarded, []
        return [number_of(content) for _, content in forwarded]

    def look(self) -> None:
        """Check that the consumer received the first waiting messages."""
        entries = [entry for entry, _ in self.consumer.forwarded]
        got = self.numbers(self.consumer)
        self.out.update(zip(got, entries, strict=True))
        assert sorted(got) == self.waiting[: len(got)]
        del self.waiting[: len(got)]

    @invariant()
    def counted_exactly(self) -> None:
        """Memory accounting counts each message once, with its bytes in memory."""
        if not hasattr(self, "world"):
            return
        found = self.world.queue()
        there = found.contents
        held = [*there.ready, *there.returned, *self.out.values(), *there.backlog.page(0, 1 << 30).held.values()]
        assert len({id(entry) for entry in held}) == len(held)
        held_bytes = sum(entry.held_bytes for entry in held)
        assert found.memory.held_bytes == held_bytes == self.world.broker.core.memory.used_bytes
        for entry in held:
            content = len(entry.content) if isinstance(entry.content, bytes) else 0
            assert entry.held_bytes == content + ENTRY_BYTES
        assert found.depth == len(self.waiting)

    @invariant()
    def bounded(self) -> None:
        """The used memory exceeds the limit by at most the allowances and one received or read batch."""
        if hasattr(self, "world"):
            batch = 12 * (70_100 + ENTRY_BYTES)
            assert self.world.broker.core.memory.used_bytes <= LIMIT_BYTES + 2 * ALLOWANCE_BYTES + batch


DeepQueue.TestCase.settings = settings(max_examples=amount("CAIRN_DEEP_RUNS", 60, 20), stateful_step_count=30)
TestDeepQueue = DeepQueue.TestCase
assert memory.ALLOWANCE_BYTES > ALLOWANCE_BYTES
