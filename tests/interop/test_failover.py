"""Clients of other libraries whose member is killed: they go on with the others, and what was confirmed is there."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from cairnmq.tools.cluster_lab import why_not
from cairnmq.tools.cluster_lab_conf import address
from tests.cluster.real import PORT, a_life, die_with_me

from .programs import HERE, Program

NODES = (1, 2, 3)


def goes_on(program: Program, arguments: list[str], directory: Path) -> None:
    """A client sends 600 durable messages to the first member, which is killed after 200; then it receives all."""
    reason = why_not()
    if reason:
        pytest.skip(f"no corosync: {reason}")
    command, environment = program
    with (
        a_life(directory) as life,
        subprocess.Popen(
            life.lab.command(3, [*command, *arguments]), env={**os.environ, **environment}, stdout=subprocess.PIPE,
            text=True, preexec_fn=die_with_me,
        ) as client,
    ):  # fmt: skip
        assert client.stdout is not None
        said = []
        for line in client.stdout:
            said.append(line)
            if line == "at 200\n":
                life.brokers[1].stop(signal.SIGKILL)
    assert said[0] == "others 2\n"
    assert said[-1] == "got 600\n", said
    assert client.returncode == 0


@pytest.mark.interop
@pytest.mark.timeout(900)
def test_rhea_goes_on_with_members_that_it_was_told_of(rhea: Program, tmp_path: Path) -> None:  # D1, D28, D36
    (node, _), environment = rhea
    goes_on(([node, str(HERE / "failover.js")], environment), [f"{address(1)}:{PORT}", "q", "600"], tmp_path)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("known", [3, 1], ids=["it knows all", "it is told of the others"])
def test_proton_for_cpp_goes_on(cpp_failover: Program, tmp_path: Path, known: int) -> None:  # D1, D28, D36
    goes_on(cpp_failover, ["q", "600", *[f"{address(node)}:{PORT}" for node in NODES[:known]]], tmp_path)
