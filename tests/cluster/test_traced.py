"""Tests of `cairnmq trace` on the members of a real cluster, beside running brokers and without one."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from proton import Message
from proton.utils import BlockingConnection

from cairnmq.tools.lab.cluster_lab_conf import address
from tests.harness.cluster.real_cluster import PORT, RealScenario
from tests.harness.process import CAIRNMQ, DEADLINE_S


def traced(scenario: RealScenario, message_id: str) -> dict[int, list[str]]:
    """Return the events of a message by member, from `cairnmq trace`; none for a member that never had it."""
    first, *others = (str(scenario.directory / f"store{node}") for node in scenario.lab.nodes)
    also = [word for other in others for word in ("--also", other)]
    command = [CAIRNMQ, "trace", first, "--message-id", message_id, *also, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert "Traceback" not in done.stderr
    told: dict[int, list[str]] = {node: [] for node in scenario.lab.nodes}
    for line in done.stdout.splitlines():
        found = json.loads(line)
        if "event" in found:
            reason = f" ({found['reason']})" if "reason" in found else ""
            told[int(found["store"][-1])].append(found["event"] + reason)
    return told


@contextmanager
def client(scenario: RealScenario, node: int) -> Iterator[BlockingConnection]:
    with scenario.lab.inside(node):
        connection = BlockingConnection(f"{address(node)}:{PORT}", timeout=DEADLINE_S, allowed_mechs="ANONYMOUS")
    try:
        yield connection
    finally:
        connection.close()


@pytest.mark.timeout(600)
def test_a_message_is_traced_across_the_members(scenario: RealScenario) -> None:
    with client(scenario, 1) as one:
        sender = one.create_sender("q")
        for name in ("taken", "stays"):
            sender.send(Message(id=name, body=name, durable=True))
    there = {node: ["arrived"] for node in scenario.lab.nodes}
    scenario.wait(lambda: traced(scenario, "stays") == there, "all members have what was confirmed")
    assert traced(scenario, "taken") == there
    scenario.brokers[3].stop(signal.SIGKILL)
    with client(scenario, 2) as two:
        receiver = two.create_receiver("q", credit=1)
        assert receiver.receive(timeout=DEADLINE_S).id == "taken"
        receiver.accept()
    removed = ["arrived", "dequeued (accepted)"]
    expected = {1: removed, 2: removed, 3: ["arrived"]}
    scenario.wait(lambda: traced(scenario, "taken") == expected, "it went off both that live")
    assert traced(scenario, "stays") == there
