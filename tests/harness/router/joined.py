"""Connected brokers for tests: start them, and inspect their view of the network."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cairnmq.broker_plugin.run import RunningBroker
from tests.clients.conftest import StartBroker

DEADLINE_S = 180.0
PATTERNS: dict[str, Any] = {"anycast": ("any.*",), "multicast": ("all.*",)}


def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait for a condition that a broker fulfills by itself."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"{what or 'what was waited for'} did not happen"
        time.sleep(0.005)


def start(start_broker: StartBroker, name: str, *others: RunningBroker, **options: Any) -> RunningBroker:
    """Start a broker with the container ID *name* and connectors to *others*."""
    urls = tuple(f"amqp://127.0.0.1:{other.port}?role=inter-router&name=to-{other.port}" for other in others)
    return start_broker(container_id=name, connect_to=urls, **{**PATTERNS, **options})


def reached(broker: RunningBroker) -> set[str]:
    """Return the names of the brokers to which *broker* has a route."""
    return set(broker._broker.remote.network.topology.next_hops)


def all_reach_all(*brokers: RunningBroker) -> None:
    names = {broker._broker.remote.network.me for broker in brokers}
    until(lambda: all(reached(one) == names - {one._broker.remote.network.me} for one in brokers), "all to know all")


def knows_receivers(broker: RunningBroker, address: str, *names: str, multicast: bool = False) -> None:
    """Wait until *broker* knows receivers at *address* on exactly the brokers *names*."""

    def known() -> bool:
        found = broker._broker.remote.network.topology.receivers_of(address, multicast=multicast)
        return {name for _, targets in found.values() for name in targets} == set(names)

    until(known, f"{names} to be known as those with receivers at {address}")


def is_up(broker: RunningBroker, connector: str) -> bool:
    found = broker._broker.remote.connectors.by_name.get(connector)
    return found is not None and found.state == "up"
