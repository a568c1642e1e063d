"""Tests of commands whose standard streams are closed or full: a one-line error without a traceback."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.process import CAIRNMQ, DEADLINE_S, BrokerProcess, broker

COMMANDS = (
    "--help", "--version", "broker --help", "ctl --help", "completion bash", "man broker", "config show",
    "config show --json",
)  # fmt: skip
LISTS = ("ctl queues list", "ctl queues list --json", "ctl queues list --output csv", "ctl broker")
FULL = "cairnmq: standard output: No space left on device; the output there is incomplete\n"


def shell(words: str, directory: Path) -> subprocess.CompletedProcess[str]:
    command = f"{shlex.quote(str(CAIRNMQ))} {words}"
    return subprocess.run(
        command, shell=True, cwd=directory, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker(tmp_path_factory.mktemp("site") / "store") as process:
        yield process


@pytest.mark.parametrize("words", COMMANDS)
def test_full_output_is_one_line(words: str, tmp_path: Path) -> None:
    done = shell(f"{words} > /dev/full", tmp_path)
    assert (done.returncode, done.stderr) == (1, FULL)


@pytest.mark.parametrize("words", COMMANDS)
def test_closed_output_is_discarded(words: str, tmp_path: Path) -> None:
    done = shell(f"{words} >&-", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_closed_error_output_is_not_replaced_by_output(tmp_path: Path) -> None:
    done = shell("ctl --url amqp://127.0.0.1:1 queues list 2>&-", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize("words", LISTS)
def test_full_output_of_a_list_is_one_line(words: str, running: BrokerProcess, tmp_path: Path) -> None:
    done = shell(f"{words} --url amqp://127.0.0.1:{running.port} > /dev/full", tmp_path)
    assert (done.returncode, done.stderr) == (1, FULL)
    assert shell(f"{words} --url amqp://127.0.0.1:{running.port} >&-", tmp_path).returncode == 0
