"""Tests that a sandbox leaves no process, mount or file, however its creator ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ..readme_blocks import ROOT
from .machine import reason_against
from .sandbox import Sandbox

pytestmark = pytest.mark.skipif(reason_against() is not None, reason=f"no sandbox here: {reason_against()}")
DEADLINE_S = 120
MAKER = """
import subprocess, sys
from pathlib import Path
from tests.fresh_machine.sandbox import Sandbox
sandbox = Sandbox(Path(sys.argv[1]), "one")
sandbox.run("mount", "--bind", sys.argv[2], str(sandbox.inner))
assert (sandbox.root / "file").exists()
subprocess.Popen(sandbox.command("sh", "-c", "echo ready; exec tail -f /dev/null", str(sandbox.place))).wait()
"""


def wait_until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end_s, "the deadline has passed"
        time.sleep(0.02)


def processes_of(place: Path) -> list[str]:
    """Return the processes whose command or mounts contain the path of a directory."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            texts = [(directory / name).read_text(errors="replace") for name in ("cmdline", "mounts")]
        except OSError:  # the process has ended
            continue
        if directory.name != str(os.getpid()) and any(str(place) in text for text in texts):
            found.append(directory.name)
    return found


@pytest.mark.parametrize("kind", ["mnt", "pid_for_children", "ipc"])
def test_sandbox_has_namespaces_of_its_own(tmp_path: Path, kind: str) -> None:
    sandbox = Sandbox(tmp_path, "one")
    try:
        command = sandbox.command("readlink", f"/proc/self/ns/{kind}")
        found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=DEADLINE_S)
    finally:
        sandbox.close()
    assert found.stdout.strip() != os.readlink(f"/proc/self/ns/{kind}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_sandbox_is_removed_when_its_maker_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    parent, mounted = tmp_path / "sandboxes", tmp_path / "mounted"
    mounted.mkdir()
    (mounted / "file").touch()
    command = ["env", "--default-signal=INT", sys.executable, "-c", MAKER, str(parent), str(mounted)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as maker:
        assert maker.stdout is not None
        assert maker.stdout.readline() == "ready\n"
        place = parent / f"one-{maker.pid}"
        assert len(processes_of(place)) >= 3
        maker.send_signal(number)
    wait_until(lambda: not place.exists() and not processes_of(place))
    assert (mounted / "file").exists()


def test_next_sandbox_removes_what_a_killed_keeper_left(tmp_path: Path) -> None:
    used = Sandbox(tmp_path, "used")
    left = tmp_path / "left-1"
    (left / "root").mkdir(parents=True)
    try:
        Sandbox(tmp_path, "next").close()
        assert not left.exists()
        assert used.place.exists()
    finally:
        used.close()
    assert list(tmp_path.iterdir()) == []
