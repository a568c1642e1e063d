"""Test of three real members: the leader of a queue is stopped while its corosync runs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection, BlockingReceiver

from cairnmq.tools.lab.cluster_lab import unavailable_reason
from cairnmq.tools.lab.cluster_lab_conf import address
from tests.harness.cluster.real_cluster import PATIENCE_S, PORT, RealScenario, three_node_lab

COUNT = 40
SILENCE_S = 10.0


def client(scenario: RealScenario, node: int) -> BlockingConnection:
    with scenario.lab.inside(node):
        return BlockingConnection(f"amqp://{address(node)}:{PORT}", timeout=PATIENCE_S, allowed_mechs="ANONYMOUS")


def received(receiver: BlockingReceiver, count: int) -> list[tuple[int, int]]:
    """Accept *count* messages, and return their numbers and delivery counts."""
    found = []
    for _ in range(count):
        message = receiver.receive(PATIENCE_S)
        found.append((int(message.body), message.delivery_count))
        receiver.accept()
    return found


@pytest.mark.timeout(900)
def test_stopped_leader_is_replaced_and_comes_back(tmp_path: Path) -> None:  # B2, D2
    reason = unavailable_reason()
    if reason:
        pytest.skip(f"no corosync: {reason}")
    with three_node_lab(tmp_path / "lab") as lab:
        scenario = RealScenario(lab, 1, tmp_path)
        try:
            for node in lab.nodes:
                scenario.start_broker(node, SILENCE_S)
            scenario.wait(scenario.all_serve, "the members serve")
            at_leader = client(scenario, 1)
            first = at_leader.create_receiver("q", credit=5)
            sending = client(scenario, 3)
            sender = sending.create_sender("q")
            for number in range(COUNT):
                sender.send(Message(body=number, durable=True))
            assert [number for number, _ in received(first, 3)] == [0, 1, 2]
            at_leader.create_sender("q").close()  # the accepts are sent first, and arrive before this link
            scenario.wait(lambda: scenario.figures(1)["cluster_waiting_events"] == 0, "the accepts are done")
            scenario.brokers[1].process.send_signal(signal.SIGSTOP)
            try:
                at_second = client(scenario, 2)
                second = at_second.create_receiver("q", credit=COUNT)
                found = received(second, COUNT - 3)
                assert sorted(number for number, _ in found) == [*range(3, COUNT)], "what was accepted comes again"
                assert all(count for _, count in found), "it may have been handed out before"
                at_second.create_sender("q").close()  # the accepts are sent first, and arrive before this link
                at_second.close()
                scenario.brokers[2].wait_for(r"node 1 \(process \d+\) is silent")
                scenario.brokers[3].wait_for(r"node 1 \(process \d+\) is expelled: it was silent for 10 s")
                assert scenario.figures(2)["cluster_expelled_members_total"] == 1
            finally:
                scenario.brokers[1].process.send_signal(signal.SIGCONT)
            scenario.brokers[1].wait_for("clients are disconnected: the others expelled this member, which was silent")
            scenario.wait(scenario.all_serve, "it is back")
            client(scenario, 1).create_sender("q").send(Message(body=COUNT, durable=True))
            assert (COUNT, 0) in received(client(scenario, 3).create_receiver("q", credit=COUNT), 1)
        finally:
            scenario.end()
