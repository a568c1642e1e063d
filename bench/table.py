"""The rows of the result table, and its output.

A subject and its yardstick are measured in turns in each round. A row shows the median of the rounds and the median of
their ratios; neither requires the machine to be equally fast in all rounds.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table


class BenchError(Exception):
    """A failure without a result: a message was lost, duplicated, reordered or altered, or a peer did not answer."""


class Percentiles(NamedTuple):
    """Percentiles of times in microseconds."""

    p50_us: float
    p99_us: float
    p999_us: float


class Goal(NamedTuple):
    """The goal of a kind in relation to the kind "none"."""

    rate: float
    """Minimum ratio of the rates."""
    p99_times: float | None = None
    """Maximum ratio of the p99."""


@dataclass(frozen=True)
class Row:
    """A subject measured against one yardstick."""

    section: str
    what: str
    per_s: float
    """Median of the rates of the rounds."""
    low_per_s: float
    high_per_s: float
    guess_per_s: float
    """Rate estimated before any measurement."""
    yardstick: str
    yardstick_per_s: float
    ratio: float
    """Median of the ratios to the yardstick in each round."""
    goal_ratio: float | None = None
    goal_per_s: float | None = None
    p50_us: float | None = None
    p99_us: float | None = None
    p999_us: float | None = None
    broker_cpu_us: float | None = None
    """CPU time of the broker per message, in all threads."""
    client_cpu_us: float | None = None
    """CPU time per message of the client process to which the row refers."""
    note: str = ""
    """Text with further results."""

    @property
    def reached(self) -> bool | None:
        """Return whether the goal is reached, or None without a goal or if the disk was too slow for a verdict.

        A disk that other processes keep busy slows all rates equally, so a ratio requires a fast yardstick.
        """
        if self.goal_ratio is not None:
            return None if self.yardstick_per_s < self.guess_per_s / 2 else self.ratio >= self.goal_ratio
        return None if self.goal_per_s is None else self.per_s >= self.goal_per_s


def row(
    section: str,
    what: str,
    rates: Sequence[float],
    guess_per_s: float,
    yardstick: str,
    yardstick_rates: Sequence[float],
    **more: Any,
) -> Row:
    """Return a row from the rates of the subject and of its yardstick in each round."""
    ratios = [rate / other for rate, other in zip(rates, yardstick_rates, strict=True)]
    return Row(
        section, what, median(rates), min(rates), max(rates), guess_per_s, yardstick, median(yardstick_rates),
        median(ratios), **more,
    )  # fmt: skip


def rows_in_flight(
    section: str,
    kinds: Sequence[str],
    guesses_per_s: Mapping[int, float],
    found: Mapping[tuple[str, int], Sequence[tuple[float, ...]]],
    *more: str,
    goals: Mapping[str, Goal] | None = None,
) -> list[Row]:
    """Return rows of *kinds* at each number of messages in flight, with "none" as the yardstick.

    *found* contains the rate, p50, p99, and the values of the row fields *more* for each round.
    """
    fields = ("p50_us", "p99_us", *more)
    rows = []
    for window, guess_per_s in guesses_per_s.items():
        yardstick = [each[0] for each in found["none", window]]
        for kind in kinds:
            figures: dict[str, Any]
            rates, *others = zip(*found[kind, window], strict=True)
            figures = {name: median(values) for name, values in zip(fields, others, strict=True)}
            goal = (goals or {}).get(kind)
            if goal is not None:
                figures |= {"goal_ratio": goal.rate, "note": _against(goal, found["none", window], found[kind, window])}
            rows.append(row(section, f"{kind}, {window} in flight", rates, guess_per_s, "none", yardstick, **figures))
    return rows


def _against(goal: Goal, yardstick: Sequence[tuple[float, ...]], found: Sequence[tuple[float, ...]]) -> str:
    times = median(here[2] / there[2] for here, there in zip(found, yardstick, strict=True))
    told = f"p99 is {times:.1f} times that of none"
    return told if goal.p99_times is None else f"{told} (goal: no more than {goal.p99_times:g})"


def as_json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    return [asdict(row) | {"reached": row.reached} for row in rows]


def machine(directory: str) -> dict[str, Any]:
    """Return the properties of the machine that affect the figures."""
    return {
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "directory": directory,
        "file_system": _file_system(directory),
        "load_before": round(os.getloadavg()[0], 2),
    }


def show_size(size_bytes: int) -> str:
    units = ((1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
    return next(f"{size_bytes // unit} {name}" for unit, name in units if size_bytes >= unit)


def render(console: Console, rows: Sequence[Row], title: str, caption: str) -> None:
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")
    table.add_column("per second", no_wrap=True)
    for name in ("median", "low-high", "guessed", "yardstick", "ratio", "goal", "p50/p99/p99.9 us", "CPU us*"):
        table.add_column(name, justify="right", no_wrap=True)
    section = ""
    notes: list[str] = []
    for row in rows:
        if row.section != section:
            section = row.section
            table.add_section()
            table.add_row(f"[bold]{section}[/]")
        table.add_row(
            row.what,
            f"[bold]{row.per_s:,.0f}[/]",
            f"{_short(row.low_per_s)}-{_short(row.high_per_s)}",
            _short(row.guess_per_s),
            f"{row.yardstick} {_short(row.yardstick_per_s)}" if row.yardstick else "",
            f"{row.ratio:.0%}" if row.yardstick else "",
            _goal(row),
            "/".join(f"{time_us:,.0f}" for time_us in (row.p50_us, row.p99_us, row.p999_us) if time_us is not None),
            _cpu(row),
        )
        if row.note:
            notes.append(f"{row.section}: {row.what}: {row.note}")
    console.print(table)
    for note in notes:
        console.print(note, highlight=False)


def _short(rate: float) -> str:
    """Format a rate with significant digits only."""
    if rate >= 1_000_000:
        return f"{rate / 1_000_000:.2f}M"
    return f"{rate / 1000:.{1 if rate < 100_000 else 0}f}k" if rate >= 1000 else f"{rate:.0f}"


def _goal(row: Row) -> str:
    if row.goal_ratio is None and row.goal_per_s is None:
        return ""
    goal = f"{row.goal_ratio:.0%}" if row.goal_ratio is not None else _short(row.goal_per_s or 0)
    if row.reached is None:
        return f"[yellow]{goal} ?[/]"
    return f"[green]{goal} ok[/]" if row.reached else f"[red]{goal} no[/]"


def _cpu(row: Row) -> str:
    if row.client_cpu_us is None:
        return ""
    broker = "-" if row.broker_cpu_us is None else f"{row.broker_cpu_us:.1f}"
    return f"{broker} + {row.client_cpu_us:.1f}"


def _file_system(directory: str) -> str:
    """Return the file system type of *directory*, since a sync is free on tmpfs."""
    best, kind = "", "unknown"
    path = os.path.realpath(directory)
    try:
        with open("/proc/self/mounts") as mounts:
            for line in mounts:
                _, place, found, *_ = line.split()
                if (path == place or path.startswith(place.rstrip("/") + "/")) and len(place) >= len(best):
                    best, kind = place, found
    except OSError:
        pass
    return kind
