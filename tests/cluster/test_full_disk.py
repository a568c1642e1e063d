"""Test of three real members, one of them with a small disk: it rejects nothing, moves its clients away, and ends with
an error; the others confirm the messages of clients."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest
from proton import Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import BlockingConnection

from cairnmq.tools.lab.cluster_lab import unavailable_reason
from cairnmq.tools.lab.cluster_lab_conf import address
from tests.harness.cluster.real_cluster import PATIENCE_S, PORT, RealScenario, real_scenario
from tests.harness.mounted_disk import mounted_disk

SMALL = "24m"
BODY = b"x" * 20_000
MORE_THAN_FIT = 1300
NUMBER = re.compile(rb"number(\d+)x")


class Flood(MessagingHandler):  # type: ignore[misc]  # proton is untyped
    """A client that sends to one member as fast as it gets credit, until the member closes the connection."""

    def __init__(self, node: int) -> None:
        super().__init__()
        self.node = node
        self.sent = 0
        self.outcomes: dict[str, list[int]] = {"accepted": [], "rejected": [], "released": []}
        self.condition: Any = None
        self._numbers: dict[str, int] = {}

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(
            f"amqp://{address(self.node)}:{PORT}", allowed_mechs="ANONYMOUS", reconnect=False
        )
        event.container.create_sender(connection, "q")

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit > 0 and self.sent < 4 * MORE_THAN_FIT:
            body = b"number%dx" % self.sent + BODY
            self._numbers[event.sender.send(Message(body=body, durable=True)).tag] = self.sent
            self.sent += 1

    def on_accepted(self, event: Any) -> None:
        self.outcomes["accepted"].append(self._numbers[event.delivery.tag])

    def on_rejected(self, event: Any) -> None:
        self.outcomes["rejected"].append(self._numbers[event.delivery.tag])

    def on_released(self, event: Any) -> None:
        self.outcomes["released"].append(self._numbers[event.delivery.tag])

    def on_connection_remote_close(self, event: Any) -> None:
        self.condition = event.connection.remote_condition
        event.connection.close()

    def run(self, scenario: RealScenario) -> None:
        with scenario.lab.inside(self.node):
            Container(self).run()


@pytest.mark.timeout(900)
def test_a_member_whose_disk_is_full(tmp_path: Path) -> None:  # B1
    reason = unavailable_reason()
    if reason:
        pytest.skip(f"no corosync: {reason}")
    with mounted_disk(tmp_path / "store3", f"size={SMALL},mode=700"), real_scenario(tmp_path) as scenario:
        scenario.wait(lambda: scenario.tells_of_others(3), "it knows the others")
        full = scenario.brokers[3]
        flood = Flood(3)
        beside = threading.Thread(target=flood.run, args=(scenario,))
        beside.start()
        beside.join(PATIENCE_S)
        assert not beside.is_alive(), flood.outcomes
        full.wait_for(r"cluster 's1': its disk is full: .*; free some space, and start this broker")
        assert full.process.wait(PATIENCE_S)
        assert flood.outcomes["accepted"], "it got on before its disk was full"
        assert not flood.outcomes["rejected"]
        assert flood.condition is not None
        assert flood.condition.name == "amqp:connection:forced"
        assert flood.condition.info[symbol("failover-server-list")]
        with scenario.lab.inside(1):
            client = BlockingConnection(f"amqp://{address(1)}:{PORT}", timeout=PATIENCE_S, allowed_mechs="ANONYMOUS")
        sender = client.create_sender("q")
        for _ in range(50):
            sender.send(Message(body=BODY, durable=True))
        assert all(scenario.brokers[node].process.poll() is None for node in (1, 2))
        receiver = client.create_receiver("q", credit=100)
        missing = {*flood.outcomes["accepted"]}
        while missing:
            message = receiver.receive(PATIENCE_S)
            receiver.accept()
            if number := NUMBER.match(bytes(message.body)):
                missing.discard(int(number[1]))
        client.close()
