"""A report shows sizes and durations in suitable units, ages with their reference time, and short legends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from cairnmq.analytics.jobs.plots import MOST_QUEUES, PLOTS
from cairnmq.analytics.jobs.report import _overview, _section
from cairnmq.analytics.jobs.table import JOBS
from cairnmq.analytics.jobs.units import duration_text, duration_ticks, size_text, size_ticks
from tests.harness.analysis.report_page import BEGIN, tables

MADE = datetime(2026, 5, 17, 9, tzinfo=UTC)
STOCK = pa.table({"queue": ["orders"], "queue_id": [1], "messages": [3], "bytes": [787_480_576],
                  "oldest_time": [datetime(2026, 5, 17, 8, tzinfo=UTC)], "age_s": [301.626],
                  "pinned_bytes": [2048], "alone_bytes": [512]})  # fmt: skip


def test_report_shows_sizes_and_ages_in_units() -> None:
    """A report shows sizes in units, and ages both at the end of the log and now (A6)."""
    assert "No problems were found" in _section(JOBS["integrity"], pa.table({"kind": pa.array([], pa.string())}), MADE)
    page = _section(JOBS["backlog"], STOCK, MADE)
    assert ">751 MiB</td>" in page
    assert 'title="787480576 bytes"' in page
    assert ">2 KiB</td>" in page
    assert ">512 B</td>" in page
    assert ">age at the log&#x27;s end</th>" in page
    assert ">5 min 2 s</td>" in page
    assert ">age now</th>" in page
    assert ">1 h</td>" in page
    assert '"displayModeBar": false' in page


def test_report_shows_durations_in_units() -> None:
    rows = pa.table({"queue": ["a"], "queue_id": [1], "hour": [BEGIN], "messages": [1], "p50_us": [850],
                     "p90_us": [1_500_000], "p99_us": [274_694_405], "max_us": [90_000_000_000], "mean_us": [2.0]})
    page = _section(JOBS["lifetimes"], rows, MADE)
    for text in ("850 us", "1.5 s", "4 min 35 s", "1 d 1 h"):
        assert f">{text}</td>" in page
    assert "274694405" not in page.replace('title="274694405 us"', "")


def test_report_begins_with_a_verdict() -> None:
    good = _overview({"integrity": pa.table({"kind": pa.array([], pa.string())}), "backlog": STOCK}, "")
    for text in ("All is well", "3 messages", "751 MiB, on 1 queue", "queue orders pins the most of the log", "2 KiB"):
        assert text in good
    assert "2 findings" in _overview({"integrity": pa.table({"kind": ["lost", "orphan"]})}, "")
    assert ">1 finding<" in _overview({"integrity": pa.table({"kind": ["lost"]})}, "")
    assert "<p>History begins.</p>" in _overview({}, "history begins")


def test_report_lists_the_emptiest_and_the_fullest_containers() -> None:
    table = tables(1, 1)["liveness"]
    page = _section(JOBS["liveness"], table, MADE)
    top = page.partition("The 10 fullest containers")[2].partition("All</h3>")[0]
    fullest = table["container"].to_pylist()[:-11:-1]
    assert [str(one) in top for one in fullest] == [True] * 10
    assert "The first 200 of 700 rows" in page


@pytest.mark.parametrize("queues", [1, 9, 12, 40])
@pytest.mark.parametrize("hours", [1, 2, 5])
def test_plots_have_few_entries_and_lose_nothing(queues: int, hours: int) -> None:
    answers = tables(queues, hours)
    for name, plot in PLOTS.items():
        figure = plot(answers[name].to_pylist())
        if figure is not None:
            assert sum(trace.showlegend is not False for trace in figure.data) <= MOST_QUEUES + 1, name
    figure = PLOTS["throughput"](answers["throughput"].to_pylist())
    drawn = sum(sum(trace.x if trace.orientation == "h" else trace.y) for trace in figure.data)
    assert drawn == sum(answers["throughput"]["arrived"].to_pylist())


def test_axis_of_times_has_room_around_a_single_one() -> None:
    axis = PLOTS["groups"]([{"time": BEGIN + timedelta(milliseconds=n), "records_per_block": n} for n in range(3)])
    first, last = axis.layout.xaxis.range
    assert last - first >= timedelta(seconds=2)


def test_units() -> None:
    assert [size_text(one) for one in (0, 512, 1536, 1 << 30)] == ["0 B", "512 B", "1.5 KiB", "1 GiB"]
    assert [duration_text(one) for one in (0, 2e-6, 0.25, 3.14159, 59.99, 60, 3661, 90_000, -5)] == [
        "0 s", "2 us", "250 ms", "3.14 s", "1 min", "1 min", "1 h 1 min", "1 d 1 h", "-5 s",
    ]  # fmt: skip
    assert [duration_text(one) for one in (0.9996, 0.0009999, 0.999)] == ["1 s", "1 ms", "999 ms"]
    assert [size_text(one) for one in (1023, (1 << 20) - 1)] == ["1023 B", "1 MiB"]
    assert size_ticks(700 << 20).texts[:2] == ["0 B", "128 MiB"]
    assert duration_ticks(0.01, 50).texts == ["1 ms", "10 ms", "100 ms", "1 s", "10 s", "1 min"]
    assert len(size_ticks(1 << 50, 1).texts) <= 7


def test_report_shows_the_present_age_of_transactions() -> None:
    rows = pa.table({"txn_id": [64], "prepared_time": [datetime(2026, 5, 17, 8, tzinfo=UTC)], "age_s": [2.0]})
    page = _section(JOBS["in-doubt"], rows, MADE)
    assert ">age now</th>" in page
    assert ">1 h</td>" in page
