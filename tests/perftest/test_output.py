"""Tests of the rows of `cairnmq perftest --output csv`."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from cairnmq.cli.common.csv_rows import without_lists
from cairnmq.cli.test.perftest_screen import Screen
from cairnmq.tools.perftest.figures import Iteration, Report, Times
from cairnmq.tools.perftest.plan import Options


def iteration(number: int, *, lost: int = 0) -> Iteration:
    times = Times()
    times.add(np.array([2_000_000] * 10))
    found = Iteration(number, 100)
    for role in ("publisher", "subscriber"):
        found.reports.append(Report(role, 0, number, 10, 1, 1_000_000_001, 0.5, times.encoded(), lost=lost))
    return found


def test_csv_has_a_row_for_each_iteration(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(Options(), output_format="csv", summary=False, live=False)
    iterations = [iteration(0), iteration(1, lost=3)]
    screen.result(iterations, screen.document(iterations, ""))
    first, second = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (first["iteration"], first["transfers"], first["transfers_per_s"]) == ("0", "20", "20.0")
    assert float(second["accepted_us_p99"]) == pytest.approx(2000, rel=0.01)
    assert (first["wrong_lost"], second["wrong_lost"]) == ("", "6")
    assert not any(value.startswith(("[", "{")) for row in (first, second) for value in row.values())


def test_row_of_an_object_has_no_lists() -> None:
    assert without_lists({"a": 1, "b": {"c": 2, "d": [3]}, "e": [4]}) == {"a": 1, "b_c": 2}
