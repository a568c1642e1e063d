"""Tests of `conftest.py` and `costs.py`: output at the end of a run, module fixtures, and long tests left out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .costs import LIST, long_of, long_tests

ROOT = Path(__file__).parents[1]
ORDINARY = "tests/test_conftest.py::test_one_case_of_each_file_stays"
TESTS = """
import pytest

@pytest.fixture(scope="module")
def shared(tell):
    met = []
    yield met
    tell(f"all of {sorted(met)}")

@pytest.mark.parametrize("number", range(6))
def test_that_shares(shared, number):
    shared.append(number)

@pytest.mark.parametrize("number", range(6))
def test_that_speaks(tell, number):
    tell(f"number {number}")
    assert number != 3
"""


@pytest.mark.parametrize("processes", [0, 2])
def test_what_tests_say_stands_at_the_end(processes: int, tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").touch()
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-n", str(processes), "--dist", "loadfile"]
    done = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=400)
    _, _, said = done.stdout.partition(" what was run ")
    lines = [line for line in said.splitlines() if line.startswith(("all", "number"))]
    assert sorted(lines) == ["all of [0, 1, 2, 3, 4, 5]", *(f"number {number}" for number in range(6))], done.stdout
    assert "1 failed, 11 passed" in said


@pytest.mark.parametrize(("processes", "minutes", "left_out"), [(0, "1000", 0), (0, "0", 1), (2, "0", 1)])
def test_long_tests_after_the_time_are_left_out(processes: int, minutes: str, left_out: int) -> None:
    long, ordinary = "tests/amqp/test_sections.py::test_bad_bytes_are_malformed_and_nothing_worse", ORDINARY
    assert {long, ordinary} & long_tests() == {long}
    command = [sys.executable, "-m", "pytest", "-n", str(processes), long, ordinary]
    env = {**os.environ, "CAIRN_MINUTES": minutes}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout
    assert f"{2 - left_out} passed" in done.stdout
    assert ("1 long tests would have begun" in done.stdout) == bool(left_out), done.stdout


def test_long_tests_exist() -> None:
    for nodeid in long_tests():
        path, name, *_ = nodeid.partition("[")[0].split("::")
        assert (ROOT / path).exists(), f"{LIST.name}: {nodeid}"
        assert name in (ROOT / path).read_text(), f"{LIST.name}: {nodeid}"


def test_one_case_of_each_file_stays() -> None:
    lines = [
        "tests/test_conftest.py::test_a[1]\t1.0\t9.0", "tests/test_conftest.py::test_a[2]\t90.0\t8.0",
        "tests/test_conftest.py::test_b\t99.0\t99.0",
    ]  # fmt: skip
    long = long_of(lines)
    assert long == ["tests/test_conftest.py::test_a[2]", "tests/test_conftest.py::test_b"]
    assert long_of(lines, 1000.0)[-1] == "tests/test_conftest.py::test_b"  # because of its CPU time
