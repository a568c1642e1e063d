"""Tests that the checker of histories detects each kind of defect and accepts each valid state; without a disk."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.powercut.history import History, Shown, Wrong


def history(*, confirmed: int) -> History:
    """Return a history of messages 1, 2 and 3 on queue 7, of which 2 is dequeued; operation n has LSN n."""
    done = History()
    done.contents = {1: b"one", 2: b"two", 3: b"three", 4: b"never put"}
    done.did(1, "enqueue", 1, 7)
    done.did(2, "enqueue", 2, 7)
    done.did(3, "enqueue", 3, 7)
    done.did(4, "dequeue", 2, 7)
    done.confirm(confirmed + 1)
    return done


STATES: list[Shown] = [{}, {7: [1]}, {7: [1, 2]}, {7: [1, 2, 3]}, {7: [1, 3]}]
"""State after each operation."""


@given(confirmed=st.integers(0, 4), then=st.integers(0, 4))
def test_what_was_done_may_be_cut_behind_what_was_confirmed(confirmed: int, then: int) -> None:
    done = history(confirmed=confirmed)
    if then >= confirmed:
        assert done.check(STATES[then]) == then - confirmed
    else:
        with pytest.raises(Wrong):
            done.check(STATES[then])


@pytest.mark.parametrize(
    ("confirmed", "shown", "defect"),
    [
        (1, {}, "lost"),
        (3, {7: [1, 2]}, "lost"),
        (4, {7: [1, 2, 3]}, "resurrected"),
        (2, {7: [1, 2, 2]}, "duplicated"),
        (4, {7: [1, 3], 8: [1]}, "phantom"),
        (4, {7: [1, 3, 4]}, "phantom"),
        (4, {7: [3, 1]}, "reordered"),
        (2, {7: [2, 1]}, "reordered"),
        (1, {7: [1, 3]}, ""),
        (0, {7: [3]}, "gap"),
        (0, {7: [2, 3]}, "gap"),
    ],
)
def test_a_defect_is_named(confirmed: int, shown: Shown, defect: str) -> None:
    done = history(confirmed=confirmed)
    if not defect:
        assert done.check(shown) == 3
        return
    with pytest.raises(Wrong, match=f"^{defect}: "):
        done.check(shown)


def test_what_a_recovery_showed_is_decided() -> None:
    """Operations in a recovered state must stay, and others must not appear later, even if none was confirmed."""
    done = history(confirmed=0)
    assert done.check({7: [1, 2]}) == 2
    done.decide({7: [1, 2]})
    assert done.check({7: [1, 2]}) == 0
    for shown, defect in (({7: [1, 2, 3]}, "phantom"), ({7: [1]}, "lost"), ({7: [2, 1]}, "reordered")):
        with pytest.raises(Wrong, match=defect):
            done.check(shown)
    done.did(9, "dequeue", 1, 7)
    assert done.check({7: [1, 2]}) == 0
    assert done.check({7: [2]}) == 1


def test_a_message_that_went_and_came_to_another_queue() -> None:
    done = history(confirmed=4)
    done.did(5, "enqueue", 1, 8)
    done.did(6, "dequeue", 1, 7)
    assert done.check({7: [1, 3], 8: [1]}) == 1
    assert done.check({7: [3], 8: [1]}) == 2
    with pytest.raises(Wrong, match="gap"):
        done.check({7: [3]})


@pytest.mark.parametrize(("content", "reason"), [(b"on", "the end"), (b"ode", "from 1"), (b"", "0 bytes of 3")])
def test_another_content_is_corrupt(content: bytes, reason: str) -> None:
    done = history(confirmed=4)
    done.check_content(1, b"one")
    with pytest.raises(Wrong, match=f"^corrupt: .*{reason}"):
        done.check_content(1, content)


def test_queues_are_those_that_were_asked_for() -> None:
    done = History()
    done.queues = {1: "a"}
    done.asked = {"a", "b"}
    done.check_queues({1: "a"})
    done.check_queues({1: "a", 2: "b"})
    wrong: list[Callable[[], None]] = [
        lambda: done.check_queues({}),
        lambda: done.check_queues({2: "a"}),
        lambda: done.check_queues({1: "a", 2: "c"}),
    ]
    for check in wrong:
        with pytest.raises(Wrong, match=r"^queue: "):
            check()
