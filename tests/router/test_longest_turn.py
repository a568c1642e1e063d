"""The longest turn of a loop in the recent past."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cairnmq.router.kernel.longest_turn import WINDOW_S, LongestTurn

TURNS = st.lists(st.tuples(st.floats(0, 3 * WINDOW_S), st.floats(0, 5)), max_size=40)


@given(TURNS, st.floats(0, 3 * WINDOW_S))
def test_longest_turn_covers_one_window_and_at_most_two(turns: list[tuple[float, float]], later_s: float) -> None:
    """Every turn of the last window counts, and none that is older than two."""
    now_s = 0.0
    longest = LongestTurn(lambda: now_s)
    noted = []
    for pause_s, duration_s in turns:
        now_s += pause_s
        longest.note(duration_s, now_s)
        noted.append((now_s, duration_s))
    now_s += later_s
    found_s = longest.longest_s()
    assert found_s >= max((took_s for at_s, took_s in noted if now_s - at_s < WINDOW_S), default=0.0)
    assert found_s <= max((took_s for at_s, took_s in noted if now_s - at_s <= 2 * WINDOW_S), default=0.0)
