"""Clients whose libraries go to another member by themselves."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cairnmq.tools.cluster_lab import why_not
from cairnmq.tools.cluster_lab_conf import address

from .real import PORT, ROOT, Life, a_lab, die_with_me


@pytest.mark.timeout(300)
@pytest.mark.parametrize("known", [3, 1], ids=["it knows all", "it is told of the others"])
def test_proton_reconnects_to_another_member(tmp_path: Path, known: int) -> None:  # D1, D28, D36
    reason = why_not()
    if reason:
        pytest.skip(f"no corosync: {reason}")
    with a_lab(tmp_path / "lab") as lab:
        life = Life(lab, 1, tmp_path)
        try:
            for node in lab.nodes:
                life.start_broker(node)
            life.wait(life.all_serve, "the members serve")
            places = [f"{address(node)}:{PORT}" for node in lab.nodes]
            command = [sys.executable, "-m", "tests.cluster.reconnecting", "q", "600", *places[:known]]
            with subprocess.Popen(
                lab.command(3, command), cwd=ROOT, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_me
            ) as client:
                assert client.stdout is not None
                for line in client.stdout:
                    if line in ("at 200\n", "at 500\n"):
                        life.brokers[1].stop(signal.SIGKILL)
                    if line == "at 400\n":
                        life.start_broker(1)
                        life.wait(life.all_serve, "it is back")
                assert line == "got 600\n"
            assert client.returncode == 0
        finally:
            life.end()
