"""Tests of members with restored stores: statements of docs/how-to/cluster-backup.md that it does not execute."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairnmq.tools.lab.cluster_lab import Lab, unavailable_reason
from cairnmq.tools.lab.cluster_lab_conf import LabOptions, address
from tests.harness.process import CAIRNMQ, DEADLINE_S, BrokerProcess

COMPLETE = "this member has all messages"
SEND = """
import sys
from proton import Message
from proton.utils import BlockingConnection

connection = BlockingConnection(sys.argv[1], timeout=60)
for body in sys.argv[2:]:
    connection.create_sender("orders", name=body).send(Message(body=body, durable=True))
connection.close()
"""
RECEIVE = """
import sys
from proton.utils import BlockingConnection

connection = BlockingConnection(sys.argv[1], timeout=60)
receiver = connection.create_receiver("orders", credit=10)
print(*[receiver.receive().body for _ in range(int(sys.argv[2]))])
connection.close()
"""


class Members:
    """Brokers in a lab of three nodes, each with a store of its own."""

    def __init__(self, lab: Lab, place: Path) -> None:
        self.lab = lab
        self.place = place
        self.running: dict[int, BrokerProcess] = {}

    def store(self, node: int) -> Path:
        return self.place / f"node{node}"

    def start(self, *nodes: int) -> None:
        for node in nodes:
            self.running[node] = BrokerProcess(
                self.store(node), "--cluster-name", "shop", "--listen", address(node), "--anonymous", "--anonymous",
                within=lambda command, node=node: self.lab.command(node, command),  # type: ignore[misc]
            )  # fmt: skip

    def stop(self) -> None:
        for one in self.running.values():
            assert one.stop() == 0
        self.running.clear()

    def wait_complete(self) -> None:
        for one in self.running.values():
            one.wait_for(COMPLETE)

    def run(self, node: int, program: str, *arguments: str) -> str:
        command = self.lab.command(node, [sys.executable, "-c", program, address(node), *arguments])
        return called(*command)


def called(*command: object) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    if reason := unavailable_reason():
        pytest.skip(f"no lab: {reason}")
    lab = Lab(f"b{secrets.token_hex(2)}")
    made = Members(lab, tmp_path)
    try:
        lab.up(LabOptions(3))
        yield made
    finally:
        for one in made.running.values():
            one.process.kill()
            one.process.wait()
        lab.down()


def test_intact_store_is_restored_for_the_others_and_an_empty_majority_refuses_it(members: Members) -> None:
    members.start(1, 2, 3)
    members.wait_complete()
    members.run(1, SEND, "one", "two")
    members.stop()
    backup = members.place / "backup"
    called(CAIRNMQ, "backup", members.store(1), backup)
    for node in (2, 3):
        shutil.rmtree(members.store(node))
        called(CAIRNMQ, "restore", backup, members.store(node))
    members.start(3, 2)
    members.wait_complete()
    members.start(1)
    members.running[1].wait_for(COMPLETE)
    assert members.run(3, RECEIVE, "2") == "one two\n"
    members.stop()

    for node in (2, 3):
        shutil.rmtree(members.store(node))
    members.start(2, 3)
    members.wait_complete()
    members.start(1)
    assert members.running[1].process.wait(DEADLINE_S) == 1
    members.running.pop(1).wait_for("this store belongs to another cluster")
