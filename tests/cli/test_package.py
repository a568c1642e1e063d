"""Tests of the package installed from a wheel: version, types, commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.harness.process import DEADLINE_S

ROOT = Path(__file__).parents[2]
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel from a copy of the source, and return the directory with its content."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    left_out = shutil.ignore_patterns(".*", "tests", "docs", "build", "dist", "*.egg-info", "node_modules")
    shutil.copytree(ROOT, source, ignore=left_out)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(place), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=place)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    [wheel] = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(place / "installed")
    return place / "installed"


def run(installed: Path, program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, cwd=installed,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_wheel_has_the_version(installed: Path) -> None:
    shown = run(installed, "import cairnmq; print(cairnmq.__version__, cairnmq.__file__)")
    assert shown.split() == [CONFIG["project"]["version"], str(installed / "cairnmq" / "__init__.py")]
    assert version("cairnmq") == CONFIG["project"]["version"]


def test_wheel_tells_type_checkers_that_it_has_types(installed: Path) -> None:
    assert (installed / "cairnmq" / "py.typed").is_file()


def test_wheel_has_every_package_and_no_other_folder(installed: Path) -> None:
    found = {
        ".".join(path.parent.relative_to(installed).parts) for path in (installed / "cairnmq").rglob("__init__.py")
    }
    assert found == set(CONFIG["tool"]["setuptools"]["packages"])


def test_command_of_the_wheel_starts(installed: Path) -> None:
    program = "import sys; sys.argv[0] = 'cairnmq'; from cairnmq.cli.main import main; main()"
    assert run(installed, program, "--version") == f"cairnmq, version {CONFIG['project']['version']}\n"
    assert "cairnmq ctl queues list" in run(installed, program, "ctl", "--help")


@pytest.mark.parametrize("name", ["cairnmq.store", "cairnmq.store.conformance", "cairnmq.analytics.views"])
def test_public_packages_are_documented(installed: Path, name: str) -> None:
    if name == "cairnmq.analytics.views":
        pytest.importorskip("pyarrow")
    program = f"import {name} as module; print(module.__doc__)"
    assert len(run(installed, program).strip()) > 40
