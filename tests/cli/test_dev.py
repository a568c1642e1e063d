"""Tests of `cairnmq dev`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.console.browser import ApiClient
from tests.harness.process import CAIRNMQ, DEADLINE_S


@contextmanager
def dev(place: Path, *options: str) -> Iterator[dict[str, str]]:
    """Run the command in the directory *place*, and yield what it prints, by its labels; Ctrl-C ends it in order."""
    command = ["env", "--default-signal=INT", CAIRNMQ, "dev", "--port", "0", "--http-port", "0", *options]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CAIRNMQ_")}
    with subprocess.Popen(
        command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as running:
        try:
            assert running.stdout is not None
            found = {}
            while line := running.stdout.readline():
                label, _, value = line.partition(": ")
                found[label] = value.strip()
                if line.startswith("    cairnmq receive"):
                    break
            yield found
        finally:
            running.send_signal(signal.SIGINT)
            _, errors = running.communicate(timeout=DEADLINE_S)
        assert (running.returncode, errors) == (0, "")


def run(*arguments: str) -> str:
    done = subprocess.run([CAIRNMQ, *arguments], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done
    return done.stdout


def test_dev_keeps_messages_and_routes_the_samples(tmp_path: Path) -> None:
    with dev(tmp_path) as found:
        url = ("--url", found["AMQP"])
        run("send", *url, "shop/order.paid", "one cairn, please")
        assert ApiClient(int(re.findall(r":(\d+)/", found["web console"])[0])).login("", "").status == 201
    assert (tmp_path / "cairnmq-data").is_dir()
    with dev(tmp_path) as found:
        url = ("--url", found["AMQP"])
        assert run("receive", *url, "orders") == run("receive", *url, "invoices") == "one cairn, please\n"
        assert "orders.dead" in run("ctl", *url, "queues", "show", "orders")


def test_dev_in_memory_leaves_nothing(tmp_path: Path) -> None:
    with dev(tmp_path, "--memory", "--no-samples") as found:
        run("send", "--url", found["AMQP"], "orders", "one")
        assert "samples" not in found
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["--version"], ["ctl", "--help"]], ids=" ".join)
def test_package_is_a_command(arguments: list[str]) -> None:  # U7
    done = subprocess.run([sys.executable, "-m", "cairnmq", *arguments], capture_output=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["broker", "./d"], "--store-dir ./d"),
        (["broker", "--store", "./d"], "--store ./d: this is the kind of the store"),
        (["broker"], "`cairnmq dev`"),
        (["queues", "list"], "Did you mean 'ctl queues'?"),
        (["receive", "q", "--url", "amqp://no-such-host.invalid"], "check the host name"),
    ],
)
def test_wrong_call_names_the_remedy(arguments: list[str], text: str, tmp_path: Path) -> None:  # U8
    done = subprocess.run([CAIRNMQ, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path)
    assert done.returncode == 2
    assert text in done.stderr
