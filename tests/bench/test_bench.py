"""The benchmark runs and reports what it should. What it measured is nobody's business here: no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SECTIONS = {
    "broker, durable": "alone",
    "broker, transient": "alone",
    "client alone, no broker": "",
}
"""Of the broker, with their yardsticks."""


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("--json"))
    return found


def test_everything_is_measured(report: dict[str, Any]) -> None:
    """E70: the journal alone and the durable broker, each row once, with its guess; all but the client alone with a
    yardstick of the same run. `make bench` measures in earnest, outside the normal suite."""
    sizes, groups, windows = ("256 B", "1 KiB"), (1, 64, 512), (1, 100, 1000)
    wanted = [
        ("journal append, one thread, fsynced", f"{size}, groups of {group}", yardstick)
        for size, group, yardstick in product(sizes, groups, ("bare", "join", "loop"))
    ] + [
        (section, f"{size}, {window} in flight: {name}", yardstick)
        for section, yardstick in SECTIONS.items()
        for size, window, name in product(sizes, windows, ("accepted", "received"))
    ]
    wanted += [
        ("deep queue, consumed", f"256 B, 167 messages: {kind}", yardstick)
        for kind, yardstick in (("memory", ""), ("deep", "memory"), ("restarted", "memory"))
    ]
    found = [(row["section"], row["what"], row["yardstick"]) for row in report["rows"]]
    assert sorted(found) == sorted(wanted)


def test_rows_are_whole(report: dict[str, Any]) -> None:
    for row in report["rows"]:
        assert row["low_per_s"] <= row["per_s"] <= row["high_per_s"], row
        assert row["guess_per_s"] > 0
        assert row["ratio"] > 0
        if "in flight" in row["what"]:
            assert row["p50_us"] <= row["p99_us"], row
            assert row["client_cpu_us"] > 0
        assert row["reached"] is None or row["goal_ratio"] is not None or row["goal_per_s"] is not None
    assert any(row["goal_ratio"] for row in report["rows"])


def test_the_table_shows_every_section() -> None:
    text = run("--only", "journal")
    assert "journal append" in text
    assert "guessed" in text
    assert "512" in text
