"""Runs of `cairnmq perftest` as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.harness.process import CAIRNMQ, DEADLINE_S


def hear_signals() -> None:
    """Restore SIGINT and SIGHUP, which may be inherited as ignored from a shell's background or from nohup."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def start(port: int, *options: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [CAIRNMQ, "perftest", "--url", f"127.0.0.1:{port}", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
        preexec_fn=hear_signals,
    )  # fmt: skip


def perftest(port: int, *options: str, status: int = 0, **environment: str) -> tuple[str, str]:
    """Run perftest, check its exit status, and return its standard output and standard error."""
    running = start(port, *options, **environment)
    try:
        output, errors = running.communicate(timeout=2 * DEADLINE_S)
    finally:
        running.kill()
    assert running.returncode == status, (options, output, errors)
    return output, errors


def measured(port: int, *options: str, status: int = 0, **environment: str) -> dict[str, Any]:
    """Run perftest with `--json`, and return the JSON document."""
    output, _ = perftest(port, *options, "--json", status=status, **environment)
    document: dict[str, Any] = json.loads(output)
    return document


def kept(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document
