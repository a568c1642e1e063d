"""How the suite runs in several processes (`make check`), and how a test says something to whoever reads its output.

The tests that take longest begin first. What shares a fixture of a module stays in one process, and so do the tests
that fill all cores themselves, one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest
from _pytest.scope import Scope
from _pytest.terminal import TerminalReporter

from tests.recovery.cores import ALL_CORES

Tell = Callable[[str], None]
LONGEST = (
    f"@{ALL_CORES}", "recovery/test_seeded_defects", "kill/test_kill", "powercut/", "store/test_full_disk",
    "tools/test_salvage", "cli/test_backup_command", "bench/", "recovery/", "hostile/",
)  # fmt: skip
"""Parts of the ids of tests."""
_SAID = pytest.StashKey[list[str]]()
"""What was said since the last report of a test."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_SAID] = []


@pytest.fixture(scope="session")
def tell(pytestconfig: pytest.Config) -> Tell:
    """Have a text stand at the end of the run's output."""
    return pytestconfig.stash[_SAID].append


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    said = item.config.stash[_SAID]
    report.said = said[:]  # type: ignore[attr-defined]  # it goes to the process that reports with all the rest
    said.clear()
    return report


class Said:
    """What tests said, in the process that reports."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.texts += getattr(report, "said", [])

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        if self.texts:
            terminalreporter.section("what was run")
            for text in self.texts:
                terminalreporter.write_line(text)


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.pluginmanager.register(Said())


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.get_closest_marker("xdist_group") is None and _shares(item):
        item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)


def _shares(item: pytest.Item) -> bool:
    """Whether *item* uses something that is made once for its module."""
    fixtures = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    return any(found[-1]._scope is Scope.Module for found in fixtures.values())


def _rank(item: pytest.Item) -> int:
    group = item.get_closest_marker("xdist_group")
    name = f"{item.nodeid}@{group.args[0]}" if group is not None else item.nodeid
    return next((rank for rank, part in enumerate(LONGEST) if part in name), len(LONGEST))
