"""Tests of queues in a program without a broker, on every kind of store: futures, coroutines, transactions, kills."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairnmq.base.disk.real import RealDirectory
from cairnmq.base.errors import (
    CairnError,
    MessageLocked,
    StoreError,
    StoreInUse,
    TransactionEnded,
    TransactionTimedOut,
    UnknownTransaction,
)
from cairnmq.journal.read.scanner import LogReader
from cairnmq.store import open_store
from cairnmq.store.contract.transaction import TxState
from cairnmq.store.embedded.library import Store
from cairnmq.store.embedded.queues import Queue

DEADLINE_S = 180
KINDS = ("journal", "sql", "memory")
LASTING = ("journal", "sql")


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "store"), request.param) as store:
        yield store


def contents(queue: Queue) -> list[bytes]:
    return list(queue.peek())


def test_put_take_accept(store: Store) -> None:
    orders = store.queue("orders")
    ids = [orders.put(b"%d" % number).result(DEADLINE_S) for number in range(3)]
    assert ids == sorted(set(ids))
    first = orders.take()
    assert first is not None
    assert (first.id, first.content, first.read(0, 1)) == (ids[0], b"0", b"0")
    second = orders.take()
    assert second is not None
    assert len(orders) == 1
    first.release()
    assert contents(orders) == [b"0", b"2"], "in its place"
    assert second.accept().result(DEADLINE_S) is None
    with pytest.raises(StoreError, match="not taken"):
        second.accept()
    with pytest.raises(StoreError, match="not taken"):
        first.release()
    assert [orders.take().content, orders.take().content, orders.take()] == [b"0", b"2", None]  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", KINDS)
def test_store_is_opened_by_a_path_and_its_queue_is_iterated(tmp_path: Path, kind: str) -> None:  # U7
    with open_store(tmp_path / "store", kind) as store:
        orders = store.queue("orders")
        orders.put_all([b"0", b"1", b"2"]).result(DEADLINE_S)
        taken = []
        for message in orders:
            taken.append(message.content)
            message.accept().result(DEADLINE_S)
        assert taken == [b"0", b"1", b"2"]
        assert (list(orders), len(orders)) == ([], 0)


def test_draft_of_a_container_is_no_remark_of_a_start(tmp_path: Path) -> None:  # T9
    """A crash while a container is made leaves its draft, which the next start removes."""
    with open_store(tmp_path / "store") as store:
        store.queue("q").put(b"one").result(DEADLINE_S)
    draft = tmp_path / "store" / "journal" / "00000009.cairn.new"
    draft.write_bytes(bytes(4096))
    assert not any(draft.name in remark for remark in LogReader(RealDirectory(str(draft.parent))).heads.remarks)
    with open_store(tmp_path / "store") as store:
        assert len(store.queue("q")) == 1
    assert not draft.exists()


def test_many_at_once(store: Store) -> None:
    orders = store.queue("orders")
    assert orders.put_all([]).result(0) == ()
    ids = orders.put_all([b"%d" % number for number in range(1000)]).result(DEADLINE_S)
    taken = [orders.take() for _ in range(600)]
    messages = [message for message in taken if message is not None]
    assert [message.id for message in messages] == list(ids[:600])
    orders.accept(messages[:500]).result(DEADLINE_S)
    orders.release(messages[500:])
    assert contents(orders) == [b"%d" % number for number in range(500, 1000)]
    with pytest.raises(StoreError):
        orders.accept(messages[499:])
    assert len(orders) == 500


def test_a_long_message_is_never_in_memory_as_a_whole(store: Store, request: pytest.FixtureRequest) -> None:
    """E31, E32: a long message is written in pieces, and read in parts."""
    orders = store.queue("orders")
    piece, count = bytes(range(256)) * 4096, 64
    tracemalloc.start()
    try:
        message_id = orders.put_in_pieces(piece for _ in range(count)).result(DEADLINE_S)
        message = orders.take()
        assert message is not None
        assert message.id == message_id
        for number in range(0, count, 7):
            assert message.read(number * len(piece) + 5, 1000) == piece[5:1005]
        assert message.read(count * len(piece) - 1, 10) == piece[-1:]
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if "memory" not in request.node.name:
        assert peak_bytes < count * len(piece) / 3


def test_a_message_whose_pieces_fail_leaves_nothing(store: Store) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"one"
        yield b"two"
        raise ZeroDivisionError

    orders = store.queue("orders")
    with pytest.raises(ZeroDivisionError):
        orders.put_in_pieces(pieces())
    assert orders.put_in_pieces([]).result(DEADLINE_S)
    assert orders.put_in_pieces([b"1", b"", b"2"]).result(DEADLINE_S)
    assert contents(orders) == [b"", b"12"]


def test_a_coroutine_and_a_callback_wait_as_well(store: Store) -> None:
    orders, told = store.queue("orders"), threading.Event()

    async def work() -> list[int]:
        return await asyncio.gather(*(orders.put(b"%d" % number) for number in range(20)))

    ids = asyncio.run(work())
    assert ids == sorted(ids)

    def on_done(future: object) -> None:
        with store.transaction() as both:  # on the store's thread, any call that does not wait for the store
            message = both.take(orders)
            assert message is not None
            both.rollback()
        told.set()

    orders.put(b"last").add_done_callback(on_done)
    assert told.wait(DEADLINE_S)
    assert len(orders) == 21


def test_a_taker_waits_for_a_message(store: Store) -> None:
    orders, found = store.queue("orders"), list[bytes]()

    def taker() -> None:
        message = orders.take(DEADLINE_S)
        assert message is not None
        found.append(message.content)

    threads = [threading.Thread(target=taker) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(3):
        orders.put(b"%d" % number)
    for thread in threads:
        thread.join(DEADLINE_S)
    assert sorted(found) == [b"0", b"1", b"2"]
    assert orders.take(0.01) is None


def test_a_transaction_is_done_as_a_whole(store: Store) -> None:
    orders, done = store.queue("orders"), store.queue("done")
    orders.put(b"one").result(DEADLINE_S)

    def fail() -> None:
        with store.transaction() as both:
            both.take(orders)
            both.put(done, b"never")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (contents(orders), contents(done)) == ([b"one"], [])
    with store.transaction() as both:
        message = both.take(orders)
        assert message is not None
        both.put(done, message.content)
        both.put(done, b"two")
        assert both.take(orders) is None
        assert len(done) == 0
    assert (contents(orders), contents(done)) == ([], [b"one", b"two"])
    with pytest.raises(TransactionEnded):
        both.put(done, b"late")
    taken = done.take()
    assert taken is not None
    last = store.transaction()
    last.accept(taken)
    with pytest.raises(MessageLocked):
        store.transaction().accept(taken)
    assert last.commit().result(DEADLINE_S) == []
    assert contents(done) == [b"two"]


def test_a_transaction_that_takes_too_long_gives_back_what_it_took(store: Store) -> None:
    orders = store.queue("orders")
    orders.put(b"one").result(DEADLINE_S)
    late = store.transaction(timeout_s=1.0)
    assert late.take(orders) is not None
    back = orders.take(DEADLINE_S)
    assert back is not None
    assert late.state is TxState.TIMED_OUT
    with pytest.raises(TransactionTimedOut):
        late.commit()


def test_two_phases(store: Store) -> None:
    orders = store.queue("orders")
    orders.put(b"one").result(DEADLINE_S)
    both = store.transaction(xid=b"x")
    message = both.take(orders)
    assert message is not None
    both.put(orders, b"two")
    both.prepare().result(DEADLINE_S)
    assert [one.xid for one in store.in_doubt()] == [b"x"]
    with pytest.raises(MessageLocked):
        store.delete_queue(orders)
    assert both.decide(commit=True).result(DEADLINE_S)
    assert [one.state for one in store.in_doubt()] == [TxState.DECIDED_COMMIT]
    assert contents(orders) == [b"two"]
    store.in_doubt()[0].forget().result(DEADLINE_S)
    assert store.in_doubt() == []
    with pytest.raises(UnknownTransaction):
        store.inner.transactions.of(b"x")


def test_a_purge_leaves_what_is_taken(store: Store) -> None:
    orders = store.queue("orders")
    orders.put_all([b"%d" % number for number in range(100)]).result(DEADLINE_S)
    taken = orders.take()
    assert taken is not None
    orders.purge().result(DEADLINE_S)
    assert len(orders) == 0
    taken.release()
    assert contents(orders) == [b"0"]


def test_a_queue_goes_with_all_that_is_on_it(store: Store) -> None:
    orders, other = store.queue("orders"), store.queue("other")
    orders.put_all([b"%d" % number for number in range(100)]).result(DEADLINE_S)
    both = store.transaction()
    both.put(other, b"never")
    assert both.take(orders) is not None
    store.delete_queue(orders).result(DEADLINE_S)
    assert both.state is TxState.QUEUE_DELETED
    for call in (orders.take, orders.purge, lambda: orders.put(b""), lambda: store.delete_queue(orders)):
        with pytest.raises(StoreError, match="deleted"):
            call()
    again = store.queue("orders")
    assert again.id != orders.id
    assert (contents(again), [queue.name for queue in store.queues()]) == ([], ["other", "orders"])


@pytest.mark.parametrize("kind", LASTING)
def test_what_was_taken_and_not_accepted_is_there_again(kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    with open_store(path, kind) as store:
        orders = store.queue("orders")
        orders.put_all([b"%d" % number for number in range(5)]).result(DEADLINE_S)
        first, second = orders.take(), orders.take()
        assert first is not None
        assert second is not None
        second.accept()
        doubtful = store.transaction(xid=b"x")
        doubtful.accept(first)
        doubtful.take(orders)
        doubtful.put(orders, b"new")
        doubtful.prepare()
    with pytest.raises(StoreError, match="closed"):
        orders.put(b"late")
    with open_store(path, kind) as store:
        orders = store.queue("orders")
        assert contents(orders) == [b"3", b"4"]
        [again] = store.in_doubt()
        again.rollback().result(DEADLINE_S)
        assert contents(orders) == [b"0", b"2", b"3", b"4"]
        with pytest.raises(StoreInUse):
            open_store(path, kind)


@pytest.mark.parametrize("kind", LASTING)
def test_a_store_that_is_closed_has_told_everybody(kind: str, tmp_path: Path) -> None:
    store = open_store(str(tmp_path), kind)
    orders = store.queue("orders")
    futures = [orders.put(b"%d" % number) for number in range(500)]
    store.close()
    assert len({future.result(0) for future in futures}) == 500
    store.close()
    with open_store(str(tmp_path), kind) as again:
        assert len(again.queue("orders")) == 500


_CHILD = """
import sys
from cairnmq.store import open_store
store = open_store(sys.argv[1], sys.argv[2])
orders, done = store.queue("orders"), store.queue("done")
number = len(orders) + len(done)
while True:
    orders.put(b"%d" % number).result()
    print("put", number, flush=True)
    number += 1
    if number % 3 == 0:
        with store.transaction() as both:
            both.put(done, both.take(orders).content)
"""


@pytest.mark.parametrize("kind", LASTING)
def test_a_kill_loses_nothing_and_moves_nothing_by_half(kind: str, tmp_path: Path) -> None:
    path, told = str(tmp_path / "store"), -1
    for enough in (5, 40, 90):
        child = subprocess.Popen([sys.executable, "-c", _CHILD, path, kind], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for line in child.stdout:
            told = int(line.split()[1])
            if told >= enough:
                break
        os.kill(child.pid, signal.SIGKILL)
        told = max([told, *(int(line.split()[1]) for line in child.stdout if line.endswith("\n"))])
        child.wait()
        with open_store(path, kind) as store:
            orders, done = contents(store.queue("orders")), contents(store.queue("done"))
        everything = sorted(int(content) for content in orders + done)
        assert everything == list(range(len(everything)))
        assert len(everything) > told
        assert [int(content) for content in done] == list(range(len(done)))


def test_a_disk_that_fails_ends_everything_with_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cairnmq.base.disk.real import RealFile

    store = open_store(str(tmp_path))
    orders = store.queue("orders")
    orders.put(b"kept").result(DEADLINE_S)

    def sync(self: RealFile) -> None:
        from cairnmq.base.errors import DiskError

        raise DiskError(self.name, "fsync failed", "look into the kernel log")

    with monkeypatch.context() as patch:
        patch.setattr(RealFile, "sync", sync)
        with pytest.raises(CairnError, match="fsync failed"):
            orders.put(b"lost").result(DEADLINE_S)
        with pytest.raises(CairnError, match="fsync failed"):
            orders.put(b"lost")
        with pytest.raises(CairnError, match="fsync failed"):
            store.close()
    with open_store(str(tmp_path)) as again:
        assert contents(again.queue("orders"))[:1] == [b"kept"]


def test_an_unknown_kind_is_told_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(CairnError, match="journal, memory, sql"):
        open_store(str(tmp_path), "papyrus")
