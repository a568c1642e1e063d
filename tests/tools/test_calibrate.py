"""Tests of `cairnmq calibrate`: it names the directory, leaves no files, and bases its suggestions on its figures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from cairnmq.cli.run.broker import broker
from cairnmq.tools.load.calibrate import ALLOCATED, SIZES, WRITTEN, Timing, suggest
from tests.harness.process import CAIRNMQ, DEADLINE_S

from .conftest import Dump


def test_it_measures_and_leaves_nothing(tmp_path: Path, command: Dump) -> None:
    found = command("calibrate", tmp_path, "--seconds", 0.2, "--json")
    told = json.loads(found.out)
    assert (found.status, told["complete"]) == (0, True)
    assert {(one["kind"], one["size_bytes"]) for one in told["timings"]} == {
        (kind, size) for kind in (WRITTEN, ALLOCATED) for size in SIZES
    }
    for one in told["timings"]:
        assert 0 < one["p50_us"] <= one["p90_us"] <= one["p99_us"] <= one["max_us"]
    assert told["file_system"]
    assert str(tmp_path).startswith(told["mount_point"].rstrip("/"))
    assert os.listdir(tmp_path) == []
    assert "4.0 KiB" in command("calibrate", tmp_path, "--seconds", 0.2).out
    rows = command("calibrate", tmp_path, "--seconds", 0.2, "--output", "csv").out.splitlines()
    assert rows[0].split(",") == [*told["timings"][0]]
    assert len(rows) == 1 + len(told["timings"])


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="there is no tmpfs here")
def test_memory_is_told_for_what_it_is(command: Dump) -> None:
    told = json.loads(command("calibrate", "/dev/shm", "--seconds", 0.2, "--json").out)
    assert told["file_system"] == "tmpfs"
    assert "nothing here survives" in told["warnings"][0]
    assert told["suggestions"] == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_leaves_nothing_however_it_ends(tmp_path: Path, how: signal.Signals) -> None:
    # a shell ignores SIGINT for its background jobs
    command = ["env", "--default-signal=INT", CAIRNMQ, "calibrate", str(tmp_path), "--seconds", "600"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    # wait until it is unlinked: without O_TMPFILE, the file has a name at first
    while not any(name.startswith(str(tmp_path)) and name.endswith(" (deleted)") for name in open_files(started.pid)):
        assert started.poll() is None
    started.send_signal(how)
    _, err = started.communicate(timeout=DEADLINE_S)
    assert os.listdir(tmp_path) == []
    if how == signal.SIGINT:
        assert (started.returncode, err) == (130, b"cairnmq: interrupted\n")


def open_files(pid: int) -> list[str]:
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with suppress(OSError):  # the descriptor may be closed by now
            found.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return found


def test_what_can_not_be_measured(tmp_path: Path, command: Dump) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "nowhere", tmp_path / "file", "/proc"):
        found = command("calibrate", path)
        assert (found.status, len(found.err.splitlines())) == (2, 1), found


def at(latency_us: float, bytes_per_s: float) -> dict[int, Timing]:
    return {size: Timing(WRITTEN, size, [latency_us + size / bytes_per_s * 1e6]) for size in SIZES}


def test_suggestions_are_options_that_there_are() -> None:
    known = {option for parameter in broker.params for option in parameter.opts}
    assert suggest(at(50, 1e9)) == []  # a fast disk needs none
    slow = suggest(at(20_000, 2e9))
    assert [option.split()[0] for option, _ in slow] == ["--container-size", "--max-write-buffers"]
    assert {option.split()[0] for option, _ in slow} <= known
    given = [part for option, _ in slow for part in option.split()]
    assert CliRunner().invoke(broker, [*given, "--help"]).exit_code == 0
