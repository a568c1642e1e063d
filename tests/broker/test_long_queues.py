"""Tests of management operations that run in slices: purge, delete, move, and pages of unordered queues."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from time import monotonic, thread_time
from typing import Any

import pytest
from proton import Message

from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.broker.contents import paging
from cairnmq.broker.links import consumer
from cairnmq.broker.messages.entry import Entry
from cairnmq.broker.scheduling import disposal
from cairnmq.broker.scheduling.background import SLICE_S
from cairnmq.management.serve import serve
from cairnmq.store.mapped.memory_store import MemoryStore
from cairnmq.store.mapped.store import PURGED_AT_ONCE
from tests.conftest import Tell
from tests.harness.broker.filters import filters
from tests.harness.broker.policies import Policed, decoded
from tests.harness.broker.world import FakeTerminal, WorkingClock, World, message

MANY = 12_000
LOOKS = 10
"""The number of clock readings in one slice."""
MEMORY_BYTES = 1 << 26


@pytest.fixture
def busy() -> Policed:
    """Return a broker whose clock advances by a tenth of a slice with each reading."""
    return Policed(MEMORY_BYTES, clock=WorkingClock(SLICE_S / LOOKS))


def fill(world: World, name: str, count: int = MANY, *, durable: bool = False) -> FakeTerminal:
    terminal = world.open(to_client=False, address=name)
    for begin in range(0, count, 1000):
        numbers = range(begin, min(begin + 1000, count))
        world.send(terminal, *[(number, message(number, 10, durable), 0) for number in numbers])
    return terminal


def go_on(policed: Policed, progress: Callable[[], int]) -> int:
    """Run the background work step by step while another client sends; return the largest progress of a step."""
    most, before, steps = 0, progress(), 0
    while policed.world.readings:
        policed.world.read_one()
        most, before = max(most, progress() - before), progress()
        assert policed.send("other", steps) == "accepted"
        steps += 1
        assert steps < 5000
    assert steps > 3
    return most


@pytest.mark.parametrize("kind", ["transient", "durable", "priorities"])
@pytest.mark.parametrize("how", ["purge", "delete"])
def test_purge_and_deletion_of_a_long_queue_leave_others_their_turns(busy: Policed, how: str, kind: str) -> None:
    if kind == "priorities":
        busy.make("q", priorities=True)
    fill(busy.world, "q", durable=kind == "durable")
    queue = busy.world.queue()
    entries = [*queue.contents.ready, *queue.contents.returned]
    assert len(entries) == MANY
    taker = busy.open("q", 3)
    held = {tag for tag, _ in taker.forwarded}
    counts: list[Any] = []
    if how == "purge":
        busy.world.do(queue.order.purge, counts.append, "evil")
        assert queue.messages == 3, "the purge takes effect at once"
        assert not counts, "and is answered at the end"
        fill(busy.world, "q", 5)
        assert queue.depth == 5
    else:
        busy.world.do(busy.world.broker.nodes.delete_queue, queue, counts.append)

    def freed() -> int:
        return sum(entry.is_dequeued for entry in entries)

    assert go_on(busy, freed) <= (LOOKS + 1) * disposal.AT_ONCE
    assert counts == [MANY - 3 if how == "purge" else None]
    assert all(entry.is_dequeued == (how == "delete" or entry not in held) for entry in entries)
    if how == "purge":
        assert queue.depth == 5
        there = queue.contents
        assert queue.memory.held_bytes == sum(entry.held_bytes for entry in (*there.ready, *there.returned, *held))


def test_purge_of_a_memory_store_leaves_others_their_turns() -> None:
    """A purge in slices keeps the given messages, and messages that are also on another queue."""
    store = MemoryStore()
    store.run_inline(lambda lsn: None)
    made: list[Any] = []
    ids: dict[str, int] = {}
    for name in ("a", "b"):
        store.create_queue(name, made.append)
        ids[name] = made[-1].id
    numbers, _ = store.put_all(ids["a"], [b"x"] * MANY, 0)
    for number in numbers[:100]:
        store.enqueue(number, ids["b"], 0)
    steps = most = 0
    before = len(store.maps.messages)
    for _ in store.purge_in_slices(ids["a"], 0, keep=numbers[-2:]):
        assert [*store.messages()[ids["a"]]] == [*numbers[-2:]]
        most, before = max(most, before - len(store.maps.messages)), len(store.maps.messages)
        steps += 1
    assert most <= PURGED_AT_ONCE
    assert steps >= MANY // PURGED_AT_ONCE
    assert len(store.maps.messages) == 102
    assert store.bytes_on(ids["a"]) == 2
    assert [*store.messages()[ids["b"]]] == [*numbers[:100]]


@pytest.mark.parametrize("is_sorted", [True, False])
def test_pages_of_a_queue_in_no_order_are_looked_for_in_slices(
    busy: Policed, monkeypatch: pytest.MonkeyPatch, *, is_sorted: bool
) -> None:
    """Each page of an unordered queue equals the result of `in_memory`, without gaps."""
    if is_sorted:
        busy.make("q", priorities=True)
        fill(busy.world, "q")
    else:
        fill(busy.world, "q")
        taker = busy.open("q", MANY - 500)
        busy.world.do(taker.driver.close, [tag for tag, _ in taker.forwarded], False, True)
    queue, broker = busy.world.queue(), busy.world.broker
    monkeypatch.setattr(paging, "LOOK_AT_ONCE", 64)
    assert queue.contents.unordered_count > MANY // 2
    draw = random.Random(5)
    everything = queue.contents.in_memory(-1, MANY)
    assert len(everything) == MANY
    for most in (1, 100, 1000, 3000):
        after = draw.choice(everything).position
        pages: list[list[Entry]] = []
        expected = queue.contents.in_memory(after, most)
        busy.world.do(paging.turn_page, broker.core.background, queue.contents, after, most, "evil", pages.append)
        assert not pages
        go_on(busy, lambda: 0)
        assert pages == [expected]


def test_browser_of_a_long_sorted_queue_sees_all(busy: Policed) -> None:
    busy.make("q", priorities=True)
    fill(busy.world, "q", 3000)
    browser = busy.world.open(to_client=True, browse=True)
    busy.world.do(browser.driver.request, 4000, True)
    busy.world.read_all()
    assert len({one[0] for one in browser.forwarded}) == 3000
    assert len(browser.forwarded) == 3000
    assert browser.drains


class RunningClock(ManualClock):
    """A clock that measures slices in real time."""

    def monotonic_s(self) -> float:
        return monotonic()


def test_longest_step_of_a_purge_is_a_small_part_of_it(tell: Tell) -> None:
    """The longest step of a purge takes less than a third of the CPU time of all steps."""
    world = World(MEMORY_BYTES * 4, clock=RunningClock())
    fill(world, "q", 200_000)
    took_s: list[float] = []

    def timed(step: Callable[..., None], *args: Any) -> None:
        begun_s = thread_time()
        step(*args)
        took_s.append(thread_time() - begun_s)

    counts: list[Any] = []
    timed(world.do, world.queue().order.purge, counts.append, "")
    while world.readings:
        timed(world.read_one)
    assert counts == [200_000]
    tell(f"purge of 200,000 messages: {sum(took_s) * 1e3:.1f} ms of CPU, longest step {max(took_s) * 1e3:.1f} ms")
    assert max(took_s) < sum(took_s) / 3


# ---- MOVE -----------------------------------------------------------------------------------------------------------


class Client:
    """A connection as the core sees it."""

    name, user = "evil's", "evil"


def ask_to_move(busy: Policed) -> tuple[Client, FakeTerminal]:
    """Request a move of all messages of `q` to `to`; return the connection and the link that receives the response."""
    broker = busy.world.broker
    serve(broker.parts, lambda user, operation, name, pattern=False: "")
    end = Client()
    busy.world.do(broker.drivers.connection_opened, end)
    answers = busy.world.open(to_client=True, address="$management", connection=end)
    busy.world.do(answers.driver.request, 10, False)
    requests = busy.world.open(to_client=False, address="$management", connection=end)
    properties = {"operation": "MOVE", "type": "queue", "name": "q"}
    request = Message(properties=properties, body={"to": "to"})
    busy.world.send(requests, (0, bytes(request.encode()), 0))
    return end, answers


def test_move_leaves_others_their_turns(busy: Policed) -> None:
    busy.make("to")
    fill(busy.world, "q", 500)
    _, answers = ask_to_move(busy)
    to = busy.world.queue("to")
    assert go_on(busy, lambda: to.messages) <= LOOKS + 1
    [(_, answer)] = answers.forwarded
    assert decoded(answer).body == {"moved": 500}


@pytest.mark.parametrize("goes", ["requester", "queue"])
def test_move_ends_when_the_requester_or_the_queue_goes(busy: Policed, goes: str) -> None:
    busy.make("to")
    fill(busy.world, "q", 500)
    end, answers = ask_to_move(busy)
    to, queue = busy.world.queue("to"), busy.world.queue()
    while to.messages < 50:
        busy.world.read_one()
    moved = to.messages
    if goes == "requester":
        busy.world.do(busy.world.broker.drivers.connection_closed, end)
    else:
        busy.world.do(busy.world.broker.nodes.delete_queue, queue, lambda error: None)
    busy.world.read_all()
    assert to.messages <= moved + LOOKS
    assert not queue.consumers
    if goes == "requester":
        assert queue.depth == 500 - to.messages
    else:
        [(_, answer)] = answers.forwarded
        assert decoded(answer).body == {"moved": to.messages}


@pytest.mark.parametrize("chosen", [b"", filters("1 = 1")], ids=["all", "selected"])
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
def test_presettled_drain_takes_any_number_of_batches(
    durable: bool, chosen: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 2 * sys.getrecursionlimit()
    monkeypatch.setattr(consumer, "TAKE_AT_ONCE", 1)
    world = World(64 << 20)
    sender = world.open(to_client=False)
    world.send(sender, *[(number, message(number, 1, durable), 0) for number in range(count)])
    receiver = world.open(to_client=True, presettled=True, filters=chosen)
    world.do(receiver.driver.request, count + 10, True)
    world.read_all()
    assert len(receiver.forwarded) == count
    assert receiver.drains == [10]
