"""Tests of waiting calls to the wiring: queues are created together, and all calls are answered in their order."""

from __future__ import annotations

import threading
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.base.errors import SqlUnreachable
from cairnmq.store.contract.wiring_rows import QueueRow
from cairnmq.store.wiring.calls import WiringCalls
from tests.harness.recovery.world import MemoryWiring


class Counting(MemoryWiring):
    """A wiring that counts commits."""

    def __init__(self) -> None:
        super().__init__()
        self.identify(UUID(int=1))
        self.commits = 0
        self.away = False

    def _writing(self, what: str) -> Any:
        self.commits += 1
        if self.away:
            raise SqlUnreachable("sql", "it is away")
        return super()._writing(what)


def held(wiring: Counting) -> tuple[WiringCalls, threading.Event]:
    """Return calls that wait until an event is set, and the event."""
    calls, go_on = WiringCalls(wiring), threading.Event()
    calls.start_sql()
    calls._ask(go_on.wait, lambda answer: None)
    return calls, go_on


NAMES = st.sampled_from(["a", "b", "c", "d", ""])  # the empty name is invalid


@given(asked=st.lists(st.tuples(st.sampled_from(["create", "create", "create", "destroy"]), NAMES), max_size=12))
def test_answers_are_as_if_each_were_asked_alone(asked: list[tuple[str, str]]) -> None:
    def answers(waits: bool) -> tuple[list[Any], int]:
        wiring = Counting()
        calls, go_on = held(wiring)
        found: list[Any] = []
        if not waits:
            go_on.set()
        for kind, name in asked:
            told = threading.Event()

            def done(answer: Any, told: threading.Event = told) -> None:
                found.append(type(answer) if isinstance(answer, Exception) else answer)
                told.set()

            if kind == "create":
                calls.create_queue(name, done)
            else:
                calls.begin_destroy_queue(1, done)
            if not waits:
                assert told.wait(60)
        go_on.set()
        calls.close_sql()
        return [found, [row.name for row in wiring.rows().queues]], wiring.commits

    alone, _ = answers(False)
    together, _ = answers(True)
    assert together == alone


def test_queues_that_wait_are_made_in_one_commit() -> None:
    wiring = Counting()
    calls, go_on = held(wiring)
    found: list[QueueRow | Exception] = []
    for number in range(200):
        calls.create_queue(f"q{number}", found.append, {"max-messages": number})
    go_on.set()
    calls.close_sql()
    assert wiring.commits == 1
    made = [one for one in found if isinstance(one, QueueRow)]
    assert [(row.name, row.arguments) for row in made] == [(f"q{n}", {"max-messages": n}) for n in range(200)]
    assert wiring.rows().queues == made


def test_where_sql_is_away_nobody_waits_for_each_of_the_others() -> None:
    wiring = Counting()
    calls, go_on = held(wiring)
    found: list[QueueRow | Exception] = []
    for number in range(50):
        calls.create_queue(f"q{number}", found.append)
    wiring.away = True
    go_on.set()
    calls.close_sql()
    assert wiring.commits == 1
    assert [type(one) for one in found] == [SqlUnreachable] * 50


def test_who_asks_when_sql_was_let_go_of_is_not_kept_waiting() -> None:
    calls = WiringCalls(Counting())
    calls.start_sql()
    calls.close_sql()
    for number in range(2):
        with pytest.raises(RuntimeError):
            calls.create_queue(f"q{number}", print)
