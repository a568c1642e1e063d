"""What a program can do wrong with the library, or at a bad moment: it is told, and nothing is lost or left hanging."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cairnmq.base.clock import ManualClock
from cairnmq.base.errors import MessageLocked, StoreError, TransactionEnded, TransactionTimedOut
from cairnmq.store import open_store
from cairnmq.store.library import Store

DEADLINE_S = 30
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
                store.transaction()  # looks at the clock

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
