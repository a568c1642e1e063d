"""Tests of compaction that reads on its own thread, beside traffic and loads of messages."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any

import pytest

from cairnmq.journal.write.journal import Journal
from cairnmq.store.message_map.state import State
from tests.harness.recovery.checker import content_of
from tests.harness.store.stores import BIG, NOW_US, SIZE, Disk, come_to_rest, put, queue, shown

SOON_S = 180


class Later(Executor):
    """An executor that delays its calls until `run`."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Any, Any]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, fn, args))
        return future

    def run(self) -> None:
        for future, function, arguments in self.waiting:
            try:
                future.set_result(function(*arguments))
            except Exception as error:
                future.set_exception(error)
        self.waiting.clear()


def test_relocation_beside_traffic() -> None:
    """E24, E69: with all the store's threads, every load of a live message succeeds at any time."""
    disk = Disk()
    store, _ = disk.open()
    q = queue(store)
    notices: SimpleQueue[int] = SimpleQueue()
    failures: SimpleQueue[Exception] = SimpleQueue()
    kept: dict[int, bytes] = {}
    loads = 0
    done = threading.Event()
    wrong: list[object] = []

    def load() -> None:
        nonlocal loads
        rng = random.Random(1)
        try:
            while not done.is_set():
                for message_id in rng.choices(list(kept), k=5) if kept else ():
                    if content_of(store, message_id) != kept[message_id]:
                        wrong.append(message_id)
                    loads += 1
        except Exception as error:
            wrong.append(error)

    store.start(notices.put, failures.put)
    reader = threading.Thread(target=load)
    reader.start()
    deadline = time.monotonic() + SOON_S
    rng = random.Random(2)
    number = 0
    fresh: dict[int, bytes] = {}
    while (store.relocation.emptied < 6 or loads < 200) and time.monotonic() < deadline and not wrong:
        for _ in range(8):
            number += 1
            content = b"%d," % number + bytes(rng.randrange(40_000))
            message_id = put(store, q, content)
            if number % 20:
                store.dequeue(message_id, q, NOW_US)
            elif number % 40:
                staged = store.stage(content, NOW_US)
                store.append_content(staged, b"the end", NOW_US, last=True)
                store.enqueue(staged, q, NOW_US)
                fresh |= {message_id: content, staged: content + b"the end"}
            else:
                fresh[message_id] = content
        wanted_lsn = store.journal.next_lsn
        store.kick()
        while not notices.empty() or store.durable_lsn < wanted_lsn:
            store.became_durable(notices.get(timeout=SOON_S))
            store.kick()
        kept.update(fresh)  # durable, so readers may load them
        fresh.clear()
    done.set()
    reader.join()
    assert wrong == []
    assert store.relocation.emptied >= 6
    assert loads >= 200
    store.close()
    assert failures.empty()
    again, _ = disk.open()
    assert shown(again) == {q: list(kept)}
    for message_id, content in kept.items():
        assert content_of(again, message_id) == content


def test_a_container_that_is_given_back_before_it_was_read() -> None:
    """All live messages of the container are dequeued while the read waits for its thread."""
    disk = Disk()
    store, _ = disk.open()
    q = queue(store)
    later = Later()
    store.relocation.read_in(later, lambda: None)
    slow = [put(store, q, b"slow")]
    while not later.waiting:
        slot = store.journal.next_lsn // SIZE
        while store.journal.next_lsn // SIZE == slot:
            store.dequeue(put(store, q, BIG), q, NOW_US)
            store.kick()
        slow.append(put(store, q, bytes(20_000)))
        assert len(slow) < 50
    assert 0 in store.journal.extent.slots
    for message_id in slow:
        store.dequeue(message_id, q, NOW_US)
    for _ in range(2):
        put(store, q, b"last")
        store.kick()
    assert 0 not in store.journal.pool.slots()
    later.run()
    store.relocation.read_in(later, lambda: None)
    put(store, q, b"last")
    store.kick()
    assert store.relocation.victims.unreadable == {}
    assert len(shown(disk.open()[0])[q]) == 3


def test_a_late_notice_takes_nothing_back() -> None:
    """Notices from the threads of compaction and of the flusher may reach the owner out of order."""
    store, _ = Disk().open()
    q = queue(store)
    put(store, q)
    early_lsn = store.durable_lsn
    store.kick()
    assert store.durable_lsn > early_lsn
    durable_lsn = store.durable_lsn
    store.became_durable(early_lsn)
    assert store.durable_lsn == durable_lsn


@pytest.mark.parametrize("step", ["append", "moved_start", "_start", "continued", "enqueued"])
def test_a_message_can_be_loaded_between_any_two_steps(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """During compaction and an enqueue on a second queue, the map never points to a record that is not written yet."""
    disk = Disk()
    store, _ = disk.open()
    a, b = queue(store, "a"), queue(store, "b")
    complete = put(store, a, b"whole")
    staged = store.stage(b"in ", NOW_US)
    store.append_content(staged, b"pieces", NOW_US, last=True)
    store.enqueue(staged, a, NOW_US)
    store.kick()
    looks = 0
    kind = Journal if step == "append" else State
    inner = getattr(kind, step)

    def look() -> None:
        nonlocal looks
        looks += 1
        assert content_of(store, complete) == b"whole"
        assert content_of(store, staged) == b"in pieces"

    def watched(*arguments: Any, **named: Any) -> Any:
        look()
        found = inner(*arguments, **named)
        look()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(kind, step, watched)
        store.enqueue(complete, b, NOW_US)
        while store.relocation.emptied == 0:
            slot = store.journal.next_lsn // SIZE
            while store.journal.next_lsn // SIZE == slot and not store.relocation.emptied:
                store.dequeue(put(store, a, BIG), a, NOW_US)
                store.kick()
            put(store, a, bytes(20_000))
            assert store.journal.next_lsn < 50 * SIZE
        come_to_rest(store)
    assert looks > 1
    assert store.state.place_of(complete) > SIZE
    assert store.state.place_of(staged) > SIZE
