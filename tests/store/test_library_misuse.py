"""Tests of misuse of the library and of calls at a bad time: each raises an error, and none loses data or hangs."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from cairnmq.base.disk.real import RealDirectory
from cairnmq.base.errors import (
    DiskFull,
    JournalFailed,
    MessageLocked,
    SqlUnreachable,
    StoreError,
    TransactionEnded,
    TransactionTimedOut,
)
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.store import open_store
from cairnmq.store.embedded.library import Store
from cairnmq.store.journaled.store import JournalStore

DEADLINE_S = 180
KINDS = ("journal", "sql", "memory")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(kind: str, tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "store"), kind) as store:
        yield store


# ---- transactions ---------------------------------------------------------------------------------------------------


def test_a_transaction_that_was_ended_meanwhile_is_not_left_as_if_it_were_committed(kind: str, tmp_path: Path) -> None:
    clock = ManualClock()
    with open_store(str(tmp_path), kind, clock=clock) as store:
        orders, other = store.queue("orders"), store.queue("other")

        def take_too_long() -> None:
            with store.transaction(timeout_s=5) as late:
                late.put(orders, b"never")
                clock.advance(10)
                store.transaction()  # checks the timeouts

        def lose_a_queue() -> None:
            with store.transaction() as both:
                both.put(orders, b"never")
                both.put(other, b"never")
                store.delete_queue(other).result(DEADLINE_S)

        with pytest.raises(TransactionTimedOut):
            take_too_long()
        with pytest.raises(TransactionEnded, match="deleted"):
            lose_a_queue()
        assert len(orders) == 0


def test_what_went_wrong_within_a_transaction_is_told_also_if_the_store_is_closed(kind: str, tmp_path: Path) -> None:
    store = open_store(str(tmp_path), kind)

    def fail() -> None:
        with store.transaction() as both:
            both.put(store.queue("orders"), b"never")
            store.close()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


# ---- messages -------------------------------------------------------------------------------------------------------


def test_what_was_put_before_a_purge_and_is_durable_after_it_does_not_come(store: Store) -> None:
    orders, other = store.queue("orders"), store.queue("other")
    for _ in range(50):
        orders.put(b"gone")
    both = store.transaction()
    both.put(orders, b"gone")
    both.put(other, b"stays")
    both.commit()
    orders.purge()
    orders.put(b"new").result(DEADLINE_S)
    assert (list(orders.peek()), list(other.peek())) == ([b"new"], [b"stays"])


def test_a_message_that_a_transaction_has_can_be_neither_accepted_nor_released(store: Store) -> None:
    orders = store.queue("orders")
    orders.put_all([b"0", b"1"]).result(DEADLINE_S)
    first, second = orders.take(), orders.take()
    assert first is not None
    assert second is not None
    both = store.transaction()
    both.accept(second)
    for call in (orders.accept, orders.release):
        with pytest.raises(MessageLocked):
            call([first, second])
    assert len(orders) == 0
    first.release()
    both.commit().result(DEADLINE_S)
    assert list(orders.peek()) == [b"0"]


def test_who_has_released_a_message_has_no_say_in_it(store: Store) -> None:
    orders = store.queue("orders")
    orders.put(b"one").result(DEADLINE_S)
    before = orders.take()
    assert before is not None
    before.release()
    now = orders.take()
    assert now is not None
    for call in (before.accept, before.release, lambda: store.transaction().accept(before)):
        with pytest.raises(StoreError, match="not taken"):
            call()
    now.accept().result(DEADLINE_S)


@pytest.mark.parametrize("lasting", ["journal", "sql"])
def test_what_a_transaction_in_doubt_has_taken_goes_back_in_its_place(lasting: str, tmp_path: Path) -> None:
    with open_store(str(tmp_path), lasting) as store:
        orders = store.queue("orders")
        orders.put_all([b"0", b"1", b"2", b"3"]).result(DEADLINE_S)
        assert [orders.take() is None, orders.take() is None] == [False, False]
        doubtful = store.transaction(xid=b"x")
        doubtful.take(orders)
        doubtful.prepare().result(DEADLINE_S)
    with open_store(str(tmp_path), lasting) as store:
        orders = store.queue("orders")
        assert list(orders.peek()) == [b"0", b"1", b"3"]
        store.in_doubt()[0].rollback().result(DEADLINE_S)
        assert list(orders.peek()) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("wrong", ["text", None, 5, [b"1"]])
def test_contents_and_xids_that_are_no_bytes_are_refused_before_anything_is_done(store: Store, wrong: object) -> None:
    orders = store.queue("orders")
    both = store.transaction()
    both.put(orders, b"0")
    for call in (
        lambda: orders.put(wrong),  # type: ignore[arg-type]
        lambda: orders.put_all([b"1", wrong]),  # type: ignore[list-item]
        lambda: both.put(orders, wrong),  # type: ignore[arg-type]
        lambda: store.transaction(xid=wrong),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match="bytes, not"):
            call()
    both.commit().result(DEADLINE_S)
    assert list(orders.peek()) == [b"0"]


def test_what_is_changed_later_is_not_changed_here(store: Store) -> None:
    orders, content = store.queue("orders"), bytearray(b"before")
    with store.transaction() as both:
        both.put(orders, content)  # type: ignore[arg-type]
        content[:] = b"after!"
    assert list(orders.peek()) == [b"before"]


def test_a_queue_of_another_store_is_refused(store: Store, kind: str, tmp_path: Path) -> None:
    orders = store.queue("orders")
    with open_store(str(tmp_path / "other"), kind) as other:
        theirs = other.queue("theirs")
        assert theirs.id == orders.id
        theirs.put(b"one").result(DEADLINE_S)
        message = theirs.take()
        assert message is not None
        both = store.transaction()
        for call in (
            lambda: both.put(theirs, b""),
            lambda: both.take(theirs),
            lambda: both.accept(message),
            lambda: store.delete_queue(theirs),
            lambda: orders.accept([message]),
        ):
            with pytest.raises(StoreError):
                call()
        message.release()
        assert (len(theirs), len(orders)) == (1, 0)


# ---- callbacks and ends ---------------------------------------------------------------------------------------------


def test_a_callback_that_waits_or_closes_is_told_so_and_the_store_goes_on(store: Store) -> None:
    orders = store.queue("orders")
    told: SimpleQueue[object] = SimpleQueue()

    def wait_in_a_transaction() -> None:
        with store.transaction() as both:
            both.put(orders, b"never")

    def on_done(_: object) -> None:
        for call in (store.close, wait_in_a_transaction, lambda: store.queue("new"), orders.put(b"2").result):
            try:
                call()
            except StoreError as error:
                told.put(str(error))

    orders.put(b"1").add_done_callback(on_done)
    for _ in range(4):
        assert "can't wait" in str(told.get(timeout=DEADLINE_S))
    orders.put(b"3").result(DEADLINE_S)
    assert list(orders.peek()) == [b"1", b"2", b"3"]
    assert [queue.name for queue in store.queues()] == ["orders"]


def test_callbacks_that_fail_or_exit_end_nothing(store: Store) -> None:
    orders, called = store.queue("orders"), threading.Event()

    def fail(_: object) -> None:
        raise ZeroDivisionError

    for callback in (fail, lambda _: sys.exit(1), lambda _: called.set()):
        orders.put(b"").add_done_callback(callback)
    first = orders.put(b"")
    first.add_done_callback(lambda _: sys.exit(1))
    first.result(DEADLINE_S)
    orders.put(b"last").result(DEADLINE_S)
    assert called.wait(DEADLINE_S)


def test_a_deletion_that_is_under_way_when_the_store_is_closed_is_told_of(kind: str, tmp_path: Path) -> None:
    for number in range(5):
        store = open_store(str(tmp_path / str(number)), kind)
        orders = store.queue("orders")
        orders.put_all([b""] * 1000).result(DEADLINE_S)
        deleted = store.delete_queue(orders)
        store.close()
        assert deleted.result(DEADLINE_S) is None


def test_a_deletion_that_sql_refuses_leaves_the_queue_as_it_was(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = store.queue("orders")
    orders.put(b"0").result(DEADLINE_S)

    def refuse(queue_id: int) -> None:
        raise SqlUnreachable("here", "it is locked")

    with monkeypatch.context() as patch:
        patch.setattr(store.inner._wiring, "begin_destroy_queue", refuse)  # type: ignore[attr-defined]
        with pytest.raises(SqlUnreachable):
            store.delete_queue(orders).result(DEADLINE_S)
    assert store.queue("orders") is orders
    orders.put(b"1").result(DEADLINE_S)
    assert list(orders.peek()) == [b"0", b"1"]
    store.delete_queue(orders).result(DEADLINE_S)
    assert list(store.queue("orders").peek()) == []


def test_whatever_ends_the_thread_that_tells_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path))
    orders = store.queue("orders")

    def fail(lsn: int) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(store.inner, "became_durable", fail)
    with pytest.raises(JournalFailed, match="ZeroDivisionError"):
        orders.put(b"").result(DEADLINE_S)
    with pytest.raises(JournalFailed, match="ZeroDivisionError"):
        store.close()


def test_a_decision_is_forgotten_once(store: Store) -> None:
    one = store.transaction(xid=b"x")
    one.put(store.queue("orders"), b"")
    one.prepare()
    one.decide(commit=True)
    one.forget().result(DEADLINE_S)
    other = store.transaction(xid=b"x")
    other.prepare().result(DEADLINE_S)
    with pytest.raises(TransactionEnded, match="forgotten already"):
        one.forget()
    assert store.in_doubt() == [other]


def test_a_fork_leaves_the_store_to_who_opened_it(store: Store) -> None:
    orders = store.queue("orders")
    child = os.fork()
    if not child:
        try:
            orders.put(b"never")
        except StoreError:
            store.close()
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    orders.put(b"one").result(DEADLINE_S)
    assert list(orders.peek()) == [b"one"]
    assert orders.take(float("inf")) is not None


@pytest.mark.parametrize("replace", [False, True])
def test_a_database_that_is_removed_confirms_nothing_more(tmp_path: Path, *, replace: bool) -> None:
    """SQLite would continue to write to a file that cannot be found again."""
    store = open_store(str(tmp_path), "sql")
    orders = store.queue("orders")
    orders.put(b"one").result(DEADLINE_S)
    file = tmp_path / "store.sqlite"
    kept = file.rename(tmp_path / "elsewhere")
    if replace:
        file.write_bytes(kept.read_bytes())
    with pytest.raises(JournalFailed, match="removed or replaced"):
        orders.put(b"two").result(DEADLINE_S)
    with pytest.raises(JournalFailed, match="removed or replaced"):
        store.close()


def test_a_transaction_of_very_many_messages_takes_no_longer_for_each(store: Store) -> None:
    orders = store.queue("orders")
    many = store.transaction(xid=b"x")
    for _ in range(30_000):
        many.put(orders, b"")
    begun_s = time.process_time()
    assert len(many.commit().result(DEADLINE_S)) == 30_000
    assert time.process_time() - begun_s < 4, "it looked at each of them for each"


# ---- a full disk ----------------------------------------------------------------------------------------------------


def test_while_the_disk_is_full_nothing_is_put_and_taking_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(str(tmp_path)) as store:
        orders = store.queue("orders")
        orders.put_all([b"1", b"2"]).result(DEADLINE_S)
        assert isinstance(store.inner, JournalStore)
        pool = store.inner.journal.pool
        with monkeypatch.context() as patch:  # the store's threads read it as well
            patch.setattr(RealDirectory, "free_bytes", lambda self: 0)
            pool.look_at_room()
            both = store.transaction()
            for put in (
                lambda: orders.put(b"3"),
                lambda: orders.put_all([b"3"]),
                lambda: orders.put_in_pieces([b"3"]),
                lambda: both.put(orders, b"3"),
            ):
                with pytest.raises(DiskFull, match="MiB are left on the disk"):
                    put()
            taken = orders.take()
            assert taken is not None
            taken.accept().result(DEADLINE_S)
        pool.look_at_room()
        orders.put(b"3").result(DEADLINE_S)
        assert list(orders.peek()) == [b"2", b"3"]


def test_a_message_is_not_read_from_a_store_that_was_closed(kind: str, tmp_path: Path) -> None:
    with open_store(str(tmp_path), kind) as store:
        orders = store.queue("orders")
        orders.put(b"1").result(DEADLINE_S)
        taken = orders.take()
    assert taken is not None
    with pytest.raises(StoreError, match="closed"):
        taken.read(0, 1)
    with pytest.raises(StoreError, match="closed"):
        _ = taken.content
