"""A client of another library that knows one member of a cluster, is told of the others, and goes on with them."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from cairnmq.tools.cluster_lab import why_not
from cairnmq.tools.cluster_lab_conf import address
from tests.cluster.real import PORT, Life, a_lab, die_with_me

from .programs import HERE, Program


@pytest.mark.interop
@pytest.mark.timeout(300)
def test_rhea_goes_on_with_members_that_it_was_told_of(rhea: Program, tmp_path: Path) -> None:  # D1, D28, D36
    reason = why_not()
    if reason:
        pytest.skip(f"no corosync: {reason}")
    (node, _), environment = rhea
    with a_lab(tmp_path / "lab") as lab:
        life = Life(lab, 1, tmp_path)
        try:
            for member in lab.nodes:
                life.start_broker(member)
            life.wait(life.all_serve, "the members serve")
            command = [node, str(HERE / "failover.js"), f"{address(1)}:{PORT}", "q", "600"]
            with subprocess.Popen(
                lab.command(3, command), env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True,
                preexec_fn=die_with_me,
            ) as client:  # fmt: skip
                assert client.stdout is not None
                said = [client.stdout.readline()]
                for line in client.stdout:
                    said.append(line)
                    if line == "at 200\n":
                        life.brokers[1].stop(signal.SIGKILL)
                assert said[0] == "others 2\n"
                assert said[-1] == "got 600\n", said
            assert client.returncode == 0
        finally:
            life.end()
