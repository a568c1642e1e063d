"""A real cluster of three members, each with a web console on a loopback port of its network namespace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proton import Message

from cairnmq.tools.lab.cluster_lab_conf import address
from tests.harness.clients.peers import Peer
from tests.harness.cluster.real_cluster import PORT, RealScenario, real_scenario
from tests.harness.console.browser import ApiClient
from tests.harness.console.chromium import chromium
from tests.harness.console.site import order
from tests.harness.process import BrokerProcess

if TYPE_CHECKING:
    from playwright.sync_api import Browser


class ClusterSite:
    """Members 1 to 3, and clients that stay connected until the end; for the test's thread only."""

    def __init__(self, scenario: RealScenario) -> None:
        self.scenario = scenario
        self._clients: list[Peer] = []
        self._sessions: dict[BrokerProcess, ApiClient] = {}
        """A console session for each process."""

    def url(self, node: int) -> str:
        """Return the URL of a running member's console, valid within its namespace."""
        return self.scenario.brokers[node].wait_for(r"web console at (http://127\.0\.0\.1:\d+/)")[1]

    def get(self, node: int, path: str) -> Any:
        """Return the value of a successful request to the console of a member."""
        with self.scenario.lab.inside(node):
            return self._session(node).get(path)

    def _session(self, node: int) -> ApiClient:
        process = self.scenario.brokers[node]
        if process not in self._sessions:
            client = ApiClient(int(self.url(node).rstrip("/").rpartition(":")[2]))
            assert client.login().status == 201
            self._sessions[process] = client
        return self._sessions[process]

    def members(self, node: int) -> dict[int, dict[str, Any]]:
        """Return the rows of the cluster page by node, as the console of *node* shows them."""
        return {row["node"]: row for row in self.get(node, "/cluster")["members"]}

    def client(self, node: int) -> Peer:
        """Return a connection to a member that stays open until the end."""
        with self.scenario.lab.inside(node):
            found = Peer(PORT, host=address(node), sasl=True)
        self._clients.append(found)
        return found

    def lead(self, node: int, *queues: str) -> None:
        """Attach consumers without credit, so that the member leads these queues while no other one has consumers."""
        client = self.client(node)
        for queue in queues:
            client.receiver(queue)
        self.scenario.wait(
            lambda: self.members(node)[node]["leader-of"] >= len(queues), f"member {node} leads {queues}"
        )

    def send(self, node: int, queue: str, *messages: Message) -> None:
        """Send messages through a member, and wait until all are confirmed."""
        client = self.client(node)
        client.send(client.sender(queue), *messages)

    def fill(self) -> None:
        """Create queues with messages and leaders."""
        self.lead(1, "orders", "invoices")
        self.lead(2, "emails")
        self.lead(3, "payments", "audit")
        for queue, count in (("orders", 12), ("invoices", 30), ("emails", 7), ("payments", 17), ("audit", 48)):
            self.send(1, queue, *map(order, range(count)))

    def stop(self) -> None:
        """Close the clients; the scenario ends the members."""
        for client in self._clients:
            client.cut()

    @contextmanager
    def browser(self, node: int) -> Iterator[Browser]:
        """Run a browser in the namespace of a member; the test is skipped if none is installed."""
        with ExitStack() as stack:
            with self.scenario.lab.inside(node):  # its processes stay in the namespace
                running = stack.enter_context(chromium())
            yield running


@contextmanager
def cluster_site(directory: Path) -> Iterator[ClusterSite]:
    """Run a cluster whose members serve clients. Needs root and corosync."""
    with real_scenario(directory, "--http-port", "0", "--idle-timeout", "0") as scenario:
        site = ClusterSite(scenario)
        try:
            yield site
        finally:
            site.stop()
