"""Tests of the lab of daemons as users run it: its commands, their effects and their error messages."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from cairnmq.base.errors import CairnError
from cairnmq.cli.test.cluster_lab import cluster_lab
from cairnmq.tools.lab.cluster_lab import Lab, LabError, unavailable_reason
from cairnmq.tools.lab.cluster_lab_conf import LabOptions, corosync_conf
from tests.harness.cluster.child_process import in_child
from tests.harness.process import CAIRNMQ, DEADLINE_S


def run(*arguments: str) -> str:
    """Run the command in this process, as a new one takes longer; return its output, or the text of its error."""
    done = CliRunner().invoke(cluster_lab, arguments)
    return str(done.exception) if isinstance(done.exception, CairnError) else done.output


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CAIRNMQ, "cluster-lab", *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


@pytest.fixture
def name() -> Iterator[str]:
    reason = unavailable_reason()
    if reason:
        pytest.skip(f"no lab: {reason}")
    made = f"l{secrets.token_hex(2)}"
    yield made
    run("--name", made, "down", "--yes")


def test_a_dry_run_starts_no_lab(name: str) -> None:
    assert run("--name", name, "up", "3", "--dry-run") == f"would start lab {name} with 3 nodes\n"
    assert not Path("/var/lib/cairnmq-lab", name).exists()


def test_a_lab_from_up_to_down(name: str) -> None:
    up = run("--name", name, "up", "2")
    first, second = up.splitlines()
    assert first.startswith("node 1: quorate, sees 2 of 2, pid ")
    assert run("--name", name, "start", "2") == "node 2: it runs already; cairnmq cluster-lab stop 2"
    assert run("--name", name, "kill", "2") == ""
    assert run("--name", name, "status").splitlines()[1] == "node 2: not running"
    assert run("--name", name, "pause", "2") == "node 2: its daemon does not run; cairnmq cluster-lab start 2"
    there = process("--name", name, "run", "1", "--", "ip", "-o", "-4", "addr", "show", "eth0")
    assert "10.77.0.1/24" in there.stdout
    assert "no node 3, but 1 to 2" in run("--name", name, "kill", "3")
    assert "on one side of a partition, not on two" in run("--name", name, "partition", "1,2", "2")
    assert run("--name", name, "pause", "1") == ""
    assert run("--name", name, "status").startswith("node 1: paused, pid ")
    refusal = f"cluster-lab {{}}: lab {name}: no confirmation, and no terminal to ask on; give --yes"
    assert run("--name", name, "down") == refusal.format("down")
    assert run("--name", name, "up", "3") == refusal.format("up")
    assert run("--name", name, "down", "--dry-run") == f"would remove lab {name}: /var/lib/cairnmq-lab/{name}\n"
    replaced = f"would remove /var/lib/cairnmq-lab/{name}, and start lab {name} with 3 nodes\n"
    assert run("--name", name, "up", "3", "--dry-run") == replaced
    assert run("--name", name, "status").startswith("node 1: paused, pid "), "nothing has changed"
    states = json.loads(run("--name", name, "status", "--json"))
    assert [(one["node"], one["state"], one["votes"]) for one in states] == [
        (1, "paused", None), (2, "not running", None)
    ]  # fmt: skip
    csv = run("--name", name, "status", "--output", "csv").splitlines()
    assert csv == ["node,state,pid,votes,nodes", f"1,paused,{first.split()[-1]},,2", "2,not running,,,2"]
    assert run("--name", name, "down", "--yes") == "", "also of a paused one"
    assert run("--name", name, "down", "--dry-run") == f"there is no lab {name}\n"
    assert not Path(f"/proc/{second.split()[-1]}").exists()
    assert not [space for space in os.listdir("/run/netns") if space.startswith(f"{name}-")]
    not_up = process("--name", name, "status")
    assert (not_up.returncode, not_up.stderr) == (1, f"cairnmq: lab {name}: it is not up; cairnmq cluster-lab up 3\n")


def test_what_it_says_to_who_is_not_root() -> None:
    if os.geteuid() != 0:
        assert "need root" in run("up", "3")
        return

    def up() -> None:
        os.setuid(65534)
        Lab("user").up(LabOptions(3))

    assert in_child(up) == "LabError: lab user: network namespaces need root; run it as root"


@pytest.mark.parametrize("wrong", ["", "UP", "../x", "toolongname", "1a", "a b"])
def test_names(wrong: str) -> None:
    with pytest.raises(LabError, match="a name is"):
        Lab(wrong)


def test_wrong_words() -> None:
    assert "not in the range" in run("up", "17")
    assert "a side is a list of nodes" in run("partition", "1,x")


def test_a_process_that_is_not_the_labs_is_left_alone(tmp_path: Path) -> None:
    """The PID in an old file may belong to an unrelated process today."""
    lab = Lab("other", tmp_path)
    (lab.directory / "1").mkdir(parents=True)
    (lab.directory / "1" / "pid").write_text(str(os.getpid()))
    assert lab.pid(1) == 0
    (lab.directory / "1" / "pid").write_text("garbage")
    assert lab.pid(1) == 0


def test_crypto_is_on_unless_it_is_asked_not_to_be() -> None:
    assert "crypto_cipher: aes256" in corosync_conf(LabOptions(3), "/d", "/key")
    assert "crypto_cipher: none" in corosync_conf(LabOptions(3, crypto=False), "/d", "/key")
