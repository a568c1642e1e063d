"""What tests cost, and which of them only thorough runs include.

`CAIRN_COSTS=FILE` has a run append one line for each test: id, seconds, seconds of CPU of its process and of the
children that it waited for. `python -m tests.costs FILE` makes `long_tests.txt` of such a file: the test functions of
which one case takes `LONG_CPU_S` of CPU, or `LONG_S` by the clock (divided by the second argument, where other programs
slowed the run down). An ordinary run of everything leaves them out, and says so; a run of named files or folders never
does. At least one case of each file stays, unless it is listed by hand; each folder keeps ordinary tests.
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
"""Of a file's cheapest function only one case is left if all together take so many times as long."""
LIST = Path(__file__).parent / "long_tests.txt"
SCALED = "amount("
"""A file with this in it does less in an ordinary run by itself."""


def function_of(nodeid: str) -> str:
    """The id without its parameters."""
    return nodeid.partition("[")[0]


def long_tests() -> set[str]:
    """The ids of the test functions, and of single cases, that ordinary runs of everything leave out."""
    return set(LIST.read_text().splitlines())


def cpu_s() -> float:
    """CPU of this process, of the children that it waited for, and of its descendants that run now, in seconds."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system + _running_cpu_s()


def _running_cpu_s() -> float:
    """CPU of all running descendants and of what they waited for; a Spark session or a broker serves many tests."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            fields = stat.rpartition(")")[2].split()  # see proc(5): from the state on, which is the third field
            children[int(fields[1])].append(int(entry))
            ticks[int(entry)] = sum(map(int, fields[11:15]))
    total, waiting = 0, children[os.getpid()]
    while waiting:
        pid = waiting.pop()
        total += ticks[pid]
        waiting += children[pid]
    return total / os.sysconf("SC_CLK_TCK")


class Costs:
    """Appends the cost of each test to a file."""

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
    """Deselect long tests where all tests were asked for, and not thoroughly."""
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
    """The functions for `long_tests.txt`, of the lines of a run that other programs made *slowdown* times as long."""
    cases: dict[str, dict[str, float]] = defaultdict(dict)
    """Function to what its cases take, as a part of what makes one long."""
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
