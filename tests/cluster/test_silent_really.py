"""Three real members, of which the one that leads a queue is stopped while its corosync goes on."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection, BlockingReceiver

from cairnmq.tools.lab.cluster_lab import unavailable_reason
from cairnmq.tools.lab.cluster_lab_conf import address

from .real import PATIENCE_S, PORT, Life, a_lab

COUNT = 40
SILENCE_S = 10.0


def client(life: Life, node: int) -> BlockingConnection:
    with life.lab.inside(node):
        return BlockingConnection(f"amqp://{address(node)}:{PORT}", timeout=PATIENCE_S, allowed_mechs="ANONYMOUS")


def received(receiver: BlockingReceiver, count: int) -> list[tuple[int, int]]:
    """Numbers and delivery counts of what comes, each accepted."""
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
    with a_lab(tmp_path / "lab") as lab:
        life = Life(lab, 1, tmp_path)
        try:
            for node in lab.nodes:
                life.start_broker(node, SILENCE_S)
            life.wait(life.all_serve, "the members serve")
            at_leader = client(life, 1)
            first = at_leader.create_receiver("q", credit=5)
            sending = client(life, 3)
            sender = sending.create_sender("q")
            for number in range(COUNT):
                sender.send(Message(body=number, durable=True))
            assert [number for number, _ in received(first, 3)] == [0, 1, 2]
            at_leader.create_sender("q").close()  # the accepts are sent, and come before it
            life.wait(lambda: life.figures(1)["cluster_waiting_events"] == 0, "the accepts are done")
            life.brokers[1].process.send_signal(signal.SIGSTOP)
            try:
                at_second = client(life, 2)
                second = at_second.create_receiver("q", credit=COUNT)
                found = received(second, COUNT - 3)
                assert sorted(number for number, _ in found) == [*range(3, COUNT)], "what was accepted comes again"
                assert all(count for _, count in found), "it may have been handed out before"
                at_second.create_sender("q").close()  # the accepts are sent, and come before it
                at_second.close()
                life.brokers[2].wait_for(r"node 1 \(process \d+\) has shown no sign of life")
                life.brokers[3].wait_for(r"node 1 \(process \d+\) is expelled: no sign of life from it for 10 s")
                assert life.figures(2)["cluster_expelled_members_total"] == 1
            finally:
                life.brokers[1].process.send_signal(signal.SIGCONT)
            life.brokers[1].wait_for("clients are sent away: the others expelled this member: no sign of life")
            life.wait(life.all_serve, "it is back")
            client(life, 1).create_sender("q").send(Message(body=COUNT, durable=True))
            assert (COUNT, 0) in received(client(life, 3).create_receiver("q", credit=COUNT), 1)
        finally:
            life.end()
