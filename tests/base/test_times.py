"""Tests of times as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import example, given
from hypothesis import strategies as st

from cairnmq.base.times import LEAST_US, MOST_US, time_text


@given(st.integers(-(1 << 70), 1 << 70))
@example(LEAST_US)
@example(LEAST_US - 1)
@example(MOST_US)
@example(MOST_US + 1)
def test_time_text_is_a_time_of_the_calendar_or_the_number(time_us: int) -> None:
    text = time_text(time_us)
    if text.startswith("@"):
        assert int(text[1:]) == time_us
        assert not LEAST_US <= time_us <= MOST_US
    else:
        assert (datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) == time_us
