"""Tests of detached calls, which may block forever, and of callers that abandon them."""

from __future__ import annotations

import threading

import pytest

from cairnmq.cluster.group.detached_call import DetachedCall

LONG_S = 180.0


class Slow:
    """A call that blocks until `let` is set."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.late: list[str] = []
        self.was_late = threading.Event()

    def __call__(self, given_up: threading.Event) -> str:
        assert self.let.wait(LONG_S)
        return "given up" if given_up.is_set() else "done"

    def throw_away(self, found: str) -> None:
        self.late.append(found)
        self.was_late.set()


def test_what_came_of_it_is_had_by_one_of_the_two() -> None:
    slow = Slow()
    call = DetachedCall(slow, slow.throw_away)
    assert not call.ended()
    slow.let.set()
    assert call.ended(LONG_S)
    assert not call.give_up(), "too late: there is a result"
    assert (call.result(), slow.late) == ("done", [])


def test_what_comes_when_it_was_given_up_is_thrown_away() -> None:
    slow = Slow()
    call = DetachedCall(slow, slow.throw_away)
    assert call.give_up()
    slow.let.set()
    assert slow.was_late.wait(LONG_S)
    assert slow.late == ["given up"]


def test_what_it_raises_is_raised_where_it_is_asked_for() -> None:
    def fail(given_up: threading.Event) -> str:
        raise LookupError("nobody there")

    call = DetachedCall(fail, lambda found: None)
    assert call.ended(LONG_S)
    with pytest.raises(LookupError, match="nobody there"):
        call.result()
