"""Compilation and execution of client programs in other languages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.harness.process import BrokerProcess

HERE = Path(__file__).parent
TIMEOUT_S = 300
Program = tuple[list[str], dict[str, str]]
"""A command, and additions to its environment."""


def run(program: Program, running: BrokerProcess, *arguments: object) -> str:
    command, environment = program
    done = subprocess.run(
        [*command, f"127.0.0.1:{running.port}", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def compiled(source: Path, program: Path, *options: str) -> str:
    """Compile a C++ program with proton and return its path; skip the test without g++ or proton.

    pkg-config is not used, as Debian's libqpid-proton-cpp.pc requires packages that do not exist.
    """
    if shutil.which("g++") is None:
        pytest.skip("there is no g++: apt-get install g++ libqpid-proton-cpp12-dev")
    command = ["g++", "-std=c++17", "-O1", *options, "-o", str(program), str(source), "-lqpid-proton-cpp", "-lpthread"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    if re.search(r"proton/\w+\.hpp: No such file", made.stderr):
        pytest.skip("there is no proton for C++: apt-get install libqpid-proton-cpp12-dev")
    assert made.returncode == 0, made.stderr
    return str(program)
