"""Tests that the benchmark runs and reports all its rows; measured times are not asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from bench import (
    cluster,
    forwarding,
    group,
    long,
    members,
    parts,
    patterns,
    questions,
    recovery,
    scale,
    settlement,
    sidecars,
    store,
    traffic,
    zeros,
)
from bench.__main__ import PARTS
from bench.embedded import installed, left_out

pytestmark = pytest.mark.timeout(2000)
ROOT = Path(__file__).parents[2]
SECTIONS = {
    "broker, durable": "alone",
    "broker, transient": "alone",
    "client alone, no broker": "",
}
"""Yardsticks of the sections about the broker."""


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=1900
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    others = [word for part in PARTS if part != "members" for word in ("--only", part)]
    found: dict[str, Any] = json.loads(run("--json", *others))
    return found


def test_three_members_are_measured() -> None:
    if members.left_out():
        pytest.skip(members.left_out()[0])
    rows = json.loads(run("--json", "--only", "members"))["rows"]
    assert [(row["section"], row["what"]) for row in rows] == [
        *[(members.SECTION, f"{kind}, {window} in flight") for window, kind in product(members.WINDOWS, members.KINDS)],
        (members.TIMES, "fail-overs"),
        (members.TIMES, "join: messages"),
    ]


def test_everything_is_measured(report: dict[str, Any]) -> None:
    """E70: the report has each row once with its estimate, for the journal alone and the durable broker; all rows but
    the client's have a yardstick of the same run. Real measurements are made by `make bench`."""
    sizes, groups, windows = ("256 B", "1 KiB", "16 KiB"), (1, 64, 512), (1, 100, 1000)
    yardsticks = ("bare", "join", "loop", *installed())
    wanted = [
        ("journal append, one thread, fsynced", f"{size}, groups of {group}", yardstick)
        for size, group, yardstick in product(sizes, groups, yardsticks)
    ] + [
        (section, f"{size}, {window} in flight: {name}", yardstick)
        for section, yardstick in SECTIONS.items()
        for size, window, name in product(sizes, windows, ("accepted", "received"))
    ]
    wanted += [
        (forwarding.SECTION, f"{window} in flight", yardstick)
        for window in forwarding.WINDOWS
        for yardstick in ("durable", "alone")
    ]
    wanted += [
        ("deep queue, consumed", f"256 B, 167 messages: {kind}", yardstick)
        for kind, yardstick in (("memory", ""), ("deep", "memory"), ("restarted", "memory"))
    ]
    wanted += [
        (store.SECTION, f"256 B: {what}", yardstick)
        for what in store.GUESSES
        for yardstick in ("SQL in SQLite", *installed())
    ]
    wanted += [
        (patterns.SECTION, f"{kind}, {size}: {what}", "one to one" if what != "one to one" else "")
        for kind, size, what in product(("durable", "transient"), sizes, patterns.KINDS)
    ]
    wanted += [
        (patterns.SECTION, f"{'durable' if durable else 'transient'}, 1 MiB: {window} in flight", "")
        for window, durable in patterns.LARGE
    ]
    wanted += [(scale.SECTION, f"beside 20 idle {what}", "alone") for what in ("connections", "queues")]
    wanted += [(parts.SECTION, part, "all of it") for part in parts.PARTS if parts.installed()]
    wanted += [
        (store.SINGLE, "256 B, groups of 512: put", "put_all"),
        (zeros.SECTION, "zero-filled", "reserved"),
        (settlement.SECTION, "256 B", "fdatasync"),
        (traffic.SECTION, "messages, plain", ""),
        (traffic.SECTION, "messages, checkpoints", "plain"),
        (traffic.SECTION, "messages, stragglers", "plain"),
        (traffic.SECTION, "1 / p99 of settlement, checkpoints", "plain"),
        (traffic.SECTION, "1 / p99 of settlement, stragglers", "plain"),
        (recovery.SECTION, "journal alone", "read + crc32c"),
        (recovery.SECTION, "checkpoint and 5 % of the log", "read + crc32c"),
        (recovery.SECTION, "clean shutdown", "read + crc32c"),
    ]
    beside = ["1 MiB coming", "a file written at that rate", "1 MiB going"]
    beside += ["1 MiB coming to another broker", "1 MiB going from another broker"]
    wanted += [(long.SECTION, f"beside {what}", "idle") for what in beside]
    for kind in ("memory", "solo", *(() if group.left_out() else ("corosync",))):
        yardstick = "" if kind == "solo" else "bus"
        wanted += [(group.SECTION, f"{kind}, {batch} together", yardstick) for batch in group.BATCHES]
        wanted.append((group.LATENCY, kind, ""))
    wanted += [
        (questions.SECTION, f"{what}, {size}", "read + crc32c")
        for what, size in product(("verify", "stat"), ("1 KiB", "16 KiB"))
    ]
    wanted.append((questions.DUMP, "dump --json, 1 KiB", "read + crc32c"))
    wanted += [(sidecars.SECTION, what, "without") for what in ("taken", "kept")]
    wanted += [
        (cluster.SECTION, f"{kind}, {window} in flight", "none")
        for kind, window in product(cluster.KINDS, cluster.WINDOWS)
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


def test_the_notes_tell_what_no_rate_can(report: dict[str, Any]) -> None:
    notes = {row["what"]: row["note"] for row in report["rows"] if row["note"]}
    assert "bytes of memory per message" in notes["journal alone"]
    assert "bytes of memory per live message" in notes["256 B: put"]
    assert "bytes of memory per open transaction" in notes["256 B: transactions of 10"]
    assert "write amplification" in notes["messages, stragglers"]


def test_stores_that_are_not_installed_are_left_out_with_a_word() -> None:
    assert {"SQLite", "LMDB"} <= set(installed())
    assert len(installed()) + len(left_out()) == 3
    assert bool(parts.left_out()) != bool(parts.installed())
    assert all("pip install" in line for line in left_out())


def test_the_table_shows_every_section() -> None:
    text = run("--only", "journal")
    assert "journal append" in text
    assert "guessed" in text
    assert "512" in text
