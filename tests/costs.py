"""Costs of tests, and the list of long tests that only thorough runs include.

With `CAIRN_COSTS=FILE` a run appends one line for each test: ID, seconds, CPU seconds of its process and of the
children that it waited for. `python -m tests.costs FILE` creates `long_tests.txt` from such a file: test functions with
a case that takes `LONG_CPU_S` of CPU time or `LONG_S` of wall-clock time (divided by the second argument, if other
programs slowed the run down). An ordinary run of all tests deselects and reports them; a run of named files or folders
includes them. At least one case of each file remains, unless it is listed by hand; each folder keeps ordinary tests.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.harness.thorough import THOROUGH

LONG_CPU_S = 1.0
LONG_S = 3.0
MOST_OF_ONE = 10
"""Cost of a file's cheapest function, in long tests, from which only one of its cases is kept."""
LIST = Path(__file__).parent / "long_tests.txt"
SCALED = "amount("
"""Text in files that reduce their work in ordinary runs; their tests are not listed."""


def function_of(nodeid: str) -> str:
    """Return a test ID without its parameters."""
    return nodeid.partition("[")[0]


def long_tests() -> set[str]:
    """Return the IDs of the test functions and of single cases that ordinary runs of all tests deselect."""
    return set(LIST.read_text().splitlines())


def cpu_s() -> float:
    """Return the CPU seconds of this process, its reaped children, and its running descendants."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system + _running_cpu_s()


def _running_cpu_s() -> float:
    """Return the CPU seconds of running descendants, such as Spark and brokers, and of the children they reaped."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            fields = stat.rpartition(")")[2].split()  # fields from the third one (state), see proc(5)
            children[int(fields[1])].append(int(entry))
            ticks[int(entry)] = sum(map(int, fields[11:15]))
    total, waiting = 0, children[os.getpid()]
    while waiting:
        pid = waiting.pop()
        total += ticks[pid]
        waiting += children[pid]
    return total / os.sysconf("SC_CLK_TCK")


class Costs:
    """A pytest plugin that appends the cost of each test to a file."""

    def __init__(self, path: str) -> None:
        self._path = path

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        began_s, began_cpu_s = time.monotonic(), cpu_s()
        result = yield
        with open(self._path, "a") as file:
            file.write(f"{item.nodeid}\t{time.monotonic() - began_s:.3f}\t{cpu_s() - began_cpu_s:.3f}\n")
        return result


def leave_out_long(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect long tests if the run includes all tests and is not thorough."""
    if THOROUGH or config.args != config.getini("testpaths"):
        return
    long = long_tests()
    left_out: list[pytest.Item] = []
    kept: list[pytest.Item] = []
    for item in items:
        (left_out if item.nodeid in long or function_of(item.nodeid) in long else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def long_of(lines: list[str], slowdown: float = 1.0) -> list[str]:
    """Return the lines of `long_tests.txt` for the costs of a run that other programs slowed down by *slowdown*."""
    cases: dict[str, dict[str, float]] = defaultdict(dict)
    """Costs of the cases of each function, relative to those of a long test."""
    for line in lines:
        nodeid, seconds, cpu = line.split("\t")
        share = max(float(cpu) / LONG_CPU_S, float(seconds) / slowdown / LONG_S)
        cases[function_of(nodeid)][nodeid] = share
    by_file: dict[str, list[str]] = defaultdict(list)
    for function in sorted(cases, key=lambda name: max(cases[name].values())):
        by_file[function.partition("::")[0]].append(function)
    found: list[str] = []
    root = Path(__file__).parents[1]
    for name, (cheapest, *others) in by_file.items():
        if (root / name).exists() and SCALED not in (root / name).read_text():
            found += [function for function in others if max(cases[function].values()) >= 1]
            if sum(cases[cheapest].values()) >= MOST_OF_ONE:
                _, *rest = sorted(cases[cheapest], key=lambda case: cases[cheapest][case])
                found += rest
    return sorted(found)


if __name__ == "__main__":
    _, costs, *slowdowns = sys.argv
    found = long_of(Path(costs).read_text().splitlines(), *map(float, slowdowns))
    LIST.write_text("".join(f"{name}\n" for name in found))
