"""What a program can do wrong with the library, or at a bad moment: it is told, and nothing is lost or left hanging."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cairnmq.base.clock import ManualClock
from cairnmq.base.errors import TransactionEnded, TransactionTimedOut
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
