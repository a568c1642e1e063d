"""Tests of a federated queue of a real cluster: corosync, processes, clients, SIGKILL (D23)."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Any

import pytest

from cairnmq.base.clock import SystemClock
from cairnmq.recovery.recover import open_store
from cairnmq.tools.lab.cluster_lab_conf import address
from tests.harness.cluster.failover_client import MOST_UNCONFIRMED
from tests.harness.cluster.real_cluster import PORT, RealScenario, end_with_parent
from tests.harness.process import CAIRNMQ, DEADLINE_S, BrokerProcess

THERE = 3
"""The node on which the downstream broker runs."""
FOLLOWER_PORT = 5673


class Sites:
    """A cluster with clients, and a downstream broker with a federated queue `q` over a connector to all members."""

    def __init__(self, scenario: RealScenario) -> None:
        self.scenario = scenario
        self.store_dir = scenario.directory / "follower"
        self.killed: set[int] = set()

    def start_follower(self) -> None:
        scenario = self.scenario
        first, *others = [f"{address(node)}:{PORT}" for node in scenario.lab.nodes]
        self.follower = BrokerProcess(
            self.store_dir,
            "--port", str(FOLLOWER_PORT), "--connect-to", f"amqp://{first}?name=hub&failover={','.join(others)}",
            within=lambda command: scenario.lab.command(THERE, command), preexec=end_with_parent,
        )  # fmt: skip
        self.follower.ready()

    def ctl(self, place: str, *words: str) -> Any:
        command = self.scenario.lab.command(THERE, [CAIRNMQ, "ctl", "--url", f"amqp://{place}", "--json", *words])
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        if done.returncode:
            return None
        return json.loads(done.stdout) if done.stdout.strip() else {}

    @property
    def following(self) -> Any:
        """The state of the federated queue as the downstream broker reports it; default values without a response."""
        nothing = {"state": "", "complete": False, "steps": 0, "messages": -1, "lag-seconds": 0.0}
        return self.ctl(f"127.0.0.1:{FOLLOWER_PORT}", "federated-queues", "show", "q") or nothing

    @property
    def serving(self) -> list[int]:
        """The members that list a downstream."""
        running = [node for node, broker in self.scenario.brokers.items() if broker.process.poll() is None]
        return [node for node in running if self.ctl(f"{address(node)}:{PORT}", "downstreams", "list")]

    def wait_until_up(self, what: str) -> tuple[int, int]:
        """Wait until the link is up; return the upstream member and the number of steps of the downstream broker."""
        found: list[tuple[int, int]] = []

        def is_up() -> bool:
            serving, following = self.serving, self.following
            if len(serving) == 1 and following["state"] == "up":
                found.append((serving[0], following["steps"]))
            return bool(found)

        self.scenario.wait(is_up, what)
        return found[0]

    def kill_serving(self) -> None:
        """Kill the upstream member, wait until another one serves the link, and restart the killed one."""
        node, steps = self.wait_until_up("a member serves")
        self.killed.add(node)
        self.scenario.brokers[node].stop(signal.SIGKILL)
        self.wait_until_up("another member serves")
        self.scenario.wait(lambda: bool(self.following["steps"] > steps + 3), "and the follower goes on")
        self.scenario.start_broker(node)
        self.scenario.wait(self.scenario.all_serve, "it is back")

    def contents(self) -> list[str]:
        """Return the message IDs on the queue of the stopped downstream broker, in order."""
        store, _ = open_store(str(self.store_dir), SystemClock())
        try:
            (queue_id,) = [row.id for row in store.queues() if row.name == "q"]
            ids = store.messages().get(queue_id, ())
            return [self.scenario.id_of(store.load_piece(message_id, 0)) for message_id in ids]
        finally:
            store.close()


@pytest.mark.timeout(1800)
def test_the_follower_goes_on_with_another_member_when_that_which_serves_is_killed(
    scenario: RealScenario,
) -> None:  # D23, D28
    sites = Sites(scenario)
    scenario.begin_client("sender", "q")
    scenario.begin_client("receiver", "q")
    sender, receiver = scenario.clients
    scenario.wait(lambda: sender.noted("Confirmed") > 20 and receiver.noted("Got") > 5, "clients use the queue")
    sites.start_follower()
    assert sites.ctl(f"127.0.0.1:{FOLLOWER_PORT}", "federated-queues", "create", "q", "hub") is not None
    scenario.wait(lambda: bool(sites.following["complete"]), "it is complete")
    sites.kill_serving()
    sites.follower.stop(signal.SIGKILL)
    sites.start_follower()
    sites.kill_serving()
    receiver.process.kill()
    receiver.process.wait()
    before = sender.noted("Confirmed")  # all later confirmations but a window are of messages sent without a receiver
    scenario.wait(lambda: sender.noted("Confirmed") > before + MOST_UNCONFIRMED + 5, "messages are left on the queue")
    scenario.clients = [sender]
    scenario.end_clients()
    scenario.wait(scenario.is_quiet, "the members come to rest")
    count = sites.ctl(f"{address(1)}:{PORT}", "queues", "show", "q")["messages"]
    assert count > 0
    scenario.wait(
        lambda: bool(sites.following["messages"] == count and sites.following["lag-seconds"] < 5), "all is there"
    )
    members = scenario.stopped()
    assert sites.ctl(f"127.0.0.1:{FOLLOWER_PORT}", "federated-queues", "promote", "q", "--yes") is not None
    assert sites.follower.stop() == 0
    found = sites.contents()
    assert len(found) == len(set(found)) == count
    for node, there in members.items():
        if node not in sites.killed:
            assert there["q"] == found
        assert sorted(there["q"]) == sorted(found)
