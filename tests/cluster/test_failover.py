"""Tests of clients whose libraries reconnect to another member, and of the addresses that members send them."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from proton import symbol
from proton.utils import BlockingConnection, ConnectionClosed

from cairnmq.tools.lab.cluster_lab_conf import address
from tests.harness.cluster.real_cluster import PATIENCE_S, PORT, ROOT, RealScenario, end_with_parent


@pytest.mark.timeout(900)
@pytest.mark.parametrize("known", [3, 1], ids=["it knows all", "it is told of the others"])
def test_proton_reconnects_to_another_member(scenario: RealScenario, known: int) -> None:  # D1, D28, D36
    lab = scenario.lab
    scenario.wait(lambda: scenario.tells_of_others(1), "it knows the others")
    places = [f"{address(node)}:{PORT}" for node in lab.nodes]
    command = [sys.executable, "-m", "tests.harness.cluster.reconnecting_client", "q", "600", *places[:known]]
    with subprocess.Popen(
        lab.command(3, command), cwd=ROOT, stdout=subprocess.PIPE, text=True, preexec_fn=end_with_parent
    ) as client:
        assert client.stdout is not None
        for line in client.stdout:
            if line in ("at 200\n", "at 500\n"):
                scenario.brokers[1].stop(signal.SIGKILL)
            if line == "at 400\n":
                scenario.start_broker(1)
                scenario.wait(scenario.all_serve, "it is back")
        assert line == "got 600\n"
    assert client.returncode == 0


@pytest.mark.timeout(900)
def test_who_is_cut_off_tells_its_clients_where_the_others_are(scenario: RealScenario) -> None:
    lab = scenario.lab
    others = [(address(node), PORT) for node in lab.nodes if node != 1]
    scenario.wait(lambda: scenario.tells_of_others(1), "it knows the others")
    with lab.inside(1):
        client = BlockingConnection(f"{address(1)}:{PORT}", PATIENCE_S, allowed_mechs="ANONYMOUS")
    told = client.conn.remote_properties[symbol("failover-server-list")]
    assert sorted(found(one) for one in told) == others
    with ThreadPoolExecutor(1) as beside:
        beside.submit(lab.partition, [1], [2, 3])  # in the background, as an idle client would be disconnected
        with pytest.raises(ConnectionClosed, match="majority") as early:
            client.wait(lambda: False)
    condition = early.value.connection.remote_condition
    assert condition.name == "amqp:connection:forced"
    assert found(condition.info) == others[0]
    assert [found(one) for one in condition.info[symbol("failover-server-list")]] == others
    with lab.inside(1), pytest.raises(ConnectionClosed, match=f"majority.*network-host.*{address(2)}"):
        BlockingConnection(f"{address(1)}:{PORT}", PATIENCE_S, allowed_mechs="ANONYMOUS").wait(lambda: False)


def found(place: Any) -> tuple[str, int]:
    assert place[symbol("hostname")] == place[symbol("network-host")]
    return place[symbol("network-host")], int(place[symbol("port")])
