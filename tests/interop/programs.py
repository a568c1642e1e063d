"""How the clients in other languages are run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.process import BrokerProcess

HERE = Path(__file__).parent
TIMEOUT_S = 120
Program = tuple[list[str], dict[str, str]]
"""A command, and what to add to its environment."""


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
