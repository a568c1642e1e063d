"""Fixtures of several folders, output of tests in the report of the run, and the order of tests.

`make check` runs the test files in several processes and draws the same examples of properties in each run: a change
is rejected for its own defects, not for chance findings in old code. `make laws SEED=7` draws other examples.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Generator, Iterator
from itertools import count

import pytest
from _pytest.terminal import TerminalReporter
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.harness.core_only import guard
from tests.harness.postgresql import Server, denial_reason

from .costs import Costs, leave_out_long
from .time_limit import LeftOut, TimeLimit

Tell = Callable[[str], None]
LONGEST = (
    "recovery/test_power_cut.py", "test_language.py", "fresh_machine/", "packaging/", "spark/test_batch",
    "recovery/test_bit_rot", "cluster/test_simulation", "recovery/test_io_errors", "kill/test_kill", "crash/",
    "recovery/test_seeded_defects", "store/test_coordinator", "store/test_full_disk", "powercut/",
    "tools/test_salvage", "cli/test_backup_command", "cluster/test_real", "cluster/test_group_on_corosync",
    "perftest/test_soak", "bench/", "spark/", "docs/", "router/test_two_sites", "recovery/", "hostile/",
)  # fmt: skip
"""Parts of test IDs, the longest tests first. Exploration of power cuts is first, as it uses idle cores."""
_numbers = count()
_SAID = pytest.StashKey[list[str]]()
"""Key of the texts that were passed to `tell` since the last report of a test."""


os.umask(0o027)  # programs refuse keys and passwords that others may read; libraries write them with modes of their own
os.environ.pop("COLUMNS", None)  # pytest-xdist sets it, and tables would be as narrow as a terminal
_not_checked = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]  # a test's own settings reset these
_on_a_busy_machine = settings(deadline=None, suppress_health_check=_not_checked, print_blob=True)
settings.register_profile("alike", _on_a_busy_machine, derandomize=True)
settings.register_profile("others", _on_a_busy_machine, database=None)
if os.environ.get("CAIRN_LAWS") == "others":
    settings.load_profile("others")
else:
    settings.load_profile("alike")
    # Hypothesis also draws examples from constants of all imported modules, so that a test that fails in a complete
    # run would get other examples when it runs alone. Hypothesis has no setting to disable this.
    pytest.MonkeyPatch().setattr(providers, "_get_local_constants", lambda: providers._local_constants)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_SAID] = []
    if (path := os.environ.get("CAIRN_COSTS")) and (
        hasattr(config, "workerinput") or config.getoption("numprocesses", None) is None
    ):
        config.pluginmanager.register(Costs(path))
    if minutes := os.environ.get("CAIRN_MINUTES"):
        config.pluginmanager.register(TimeLimit(float(minutes)))
        config.pluginmanager.register(LeftOut())
    guard()


@pytest.fixture(scope="session")
def tell(pytestconfig: pytest.Config) -> Tell:
    """Return a function that adds a text to the end of the run's output."""
    return pytestconfig.stash[_SAID].append


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    said = item.config.stash[_SAID]
    report.said = said[:]  # type: ignore[attr-defined]  # sent to the reporting process with the report
    said.clear()
    return report


class Said:
    """A pytest plugin of the reporting process that prints the texts of all tests at the end."""

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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude the collected tests and the imported modules from garbage collection.

    They exist until the end of the run, and each full collection of them would take 0.4 s of CPU.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out_long(config, items)
    items.sort(key=lambda item: next((rank for rank, part in enumerate(LONGEST) if part in item.nodeid), len(LONGEST)))


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Yield a real PostgreSQL server; skip the test if none can run."""
    reason = denial_reason()
    if reason:
        pytest.skip(reason)
    made = Server()
    try:
        yield made
    finally:
        made.remove()


@pytest.fixture
def catalog() -> str:
    """Return the name of an unused catalog."""
    return f'Catalog {next(_numbers)} "of" tests'
