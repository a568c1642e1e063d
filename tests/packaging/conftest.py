"""Fixtures: programs that build and check packages, and wheels of the locked dependencies.

Programs are stored in the cache directory per list of versions; wheels come from pip's cache. Tests that need
either are skipped if the package index cannot be reached.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ..fresh_machine.machine import CACHE

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
DEADLINE_S = 600


def run(*words: str | Path, **environment: str) -> str:
    """Run a program that must succeed, and return its output."""
    done = subprocess.run(
        [str(word) for word in words], cwd=ROOT, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}\n{done.stdout[-6000:]}"
    return done.stdout


def fetch(*words: str | Path) -> None:
    """Run pip, and skip the test if it fails because it can't reach the package index."""
    command = [sys.executable, "-m", "pip", *map(str, words), "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    if done.returncode and "No matching distribution" in done.stderr and "connection" in done.stderr:
        pytest.skip(f"the package index can't be reached: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def tools() -> Path:
    """Return the directory of the programs of packaging/tools.txt."""
    listed = PACKAGING / "tools.txt"
    place = CACHE / f"packaging-tools-{hashlib.sha256(listed.read_bytes()).hexdigest()[:12]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "packaging-tools.lock").open("w") as lock:  # test files run in several processes
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "ready").exists():
            run(sys.executable, "-m", "venv", "--clear", "--without-pip", place)
            fetch("--python", place / "bin/python", "install", "--requirement", listed)
            (place / "ready").touch()
    return place / "bin"


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the wheels of packaging/requirements.lock, whose hashes were verified."""
    place = tmp_path_factory.mktemp("wheels")
    fetch("wheel", "--require-hashes", "--requirement", PACKAGING / "requirements.lock", "--wheel-dir", place)
    return place


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory that `make dist` creates, built without network by the installed setuptools."""
    place = tmp_path_factory.mktemp("dist")
    run(sys.executable, "scripts/build_dist.py", place, "--no-isolation", SOURCE_DATE_EPOCH="1700000000")
    return place


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory, wheels: Path, dist: Path) -> Path:
    """Build the Debian package without compression, and return its path."""
    if missing := [name for name in ("dpkg-buildpackage", "dh", "/usr/bin/python3") if shutil.which(name) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if run("/usr/bin/python3", "-c", "import sys; print(sys.version_info[:2])") != f"{sys.version_info[:2]}\n":
        pytest.skip("the wheels are for another version of Python than Debian's")
    place = tmp_path_factory.mktemp("deb")
    [wheel] = dist.glob("*.whl")
    options = ("--wheel", wheel, "--wheels", wheels, "--compression", "none")
    run(sys.executable, "scripts/build_deb.py", place, "--build-dir", place / "tree", *options)
    [made] = place.glob("*.deb")
    return made
