"""Time limit of a thorough run; long tests that would begin after it are skipped and reported.

`CAIRN_MINUTES=N` sets the limit, as in `.ci/run`; it applies from the start of each test process. Without the variable,
no test is skipped. A slow machine thus runs fewer long tests, but all other tests. The summary has the number of
skipped tests, and `-rs` lists them.
"""

from __future__ import annotations

import time

import pytest
from _pytest.terminal import TerminalReporter

from .costs import function_of, long_tests

REASON = "left out: a long test would begin after the minutes of CAIRN_MINUTES"


class TimeLimit:
    """A pytest plugin that skips long tests that would begin more than *minutes* after the start."""

    def __init__(self, minutes: float) -> None:
        self._end_s = time.monotonic() + 60 * minutes
        self._long = long_tests()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        is_long = item.nodeid in self._long or function_of(item.nodeid) in self._long
        if is_long and time.monotonic() >= self._end_s:
            pytest.skip(REASON)


class LeftOut:
    """A pytest plugin of the reporting process that counts the skipped tests."""

    def __init__(self) -> None:
        self._count = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple) and report.longrepr[2].endswith(REASON):
            self._count += 1

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        if self._count:
            terminalreporter.section("left out")
            terminalreporter.write_line(f"{self._count} long tests would have begun after the minutes of CAIRN_MINUTES")
