"""Running `cairnmq perftest` as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.harness.process import CAIRNMQ, DEADLINE_S


def hear_signals() -> None:
    """A shell has what it runs in the background ignore Ctrl-C, nohup has it ignore SIGHUP, and so would a test's."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def start(port: int, *options: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [CAIRNMQ, "perftest", "--url", f"127.0.0.1:{port}", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
        preexec_fn=hear_signals,
    )  # fmt: skip


def perftest(port: int, *options: str, status: int = 0, **environment: str) -> tuple[str, str]:
    """What it printed on standard output and standard error."""
    running = start(port, *options, **environment)
    try:
        output, errors = running.communicate(timeout=2 * DEADLINE_S)
    finally:
        running.kill()
    assert running.returncode == status, (options, output, errors)
    return output, errors


def measured(port: int, *options: str, status: int = 0, **environment: str) -> dict[str, Any]:
    """The JSON document."""
    output, _ = perftest(port, *options, "--json", status=status, **environment)
    document: dict[str, Any] = json.loads(output)
    return document


def kept(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document
