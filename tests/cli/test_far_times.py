"""Times of clients that no calendar has, in the tables of `cairnmq ctl`."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cairnmq.cli.manage.ctl_tables import Printer
from cairnmq.cli.tables.human_values import TIMES_MS


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(time_ms=st.integers(-(1 << 63), (1 << 63) - 1), output=st.sampled_from(["table", "csv"]))
@example(time_ms=(1 << 63) - 1, output="table")
@example(time_ms=253_402_300_799_999, output="table")
def test_time_of_a_client_is_printed_whatever_it_is(
    capsys: pytest.CaptureFixture[str], time_ms: int, output: str
) -> None:
    # S4
    for name in TIMES_MS:
        Printer(output).one({name: time_ms})
    shown = capsys.readouterr().out
    assert shown.count(f"@{time_ms * 1000}") in (0, len(TIMES_MS))
    assert shown.strip()
