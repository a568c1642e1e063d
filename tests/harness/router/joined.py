"""Brokers that are joined, for tests: started so that they know each other, and looked into."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cairnmq.broker_plugin.run import RunningBroker
from tests.clients.conftest import StartBroker

DEADLINE_S = 180.0
PATTERNS: dict[str, Any] = {"anycast": ("any.*",), "multicast": ("all.*",)}


def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait for something that a broker does by itself."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"{what or 'what was waited for'} did not happen"
        time.sleep(0.005)


def start(start_broker: StartBroker, name: str, *others: RunningBroker, **options: Any) -> RunningBroker:
    """A broker that has connections to *others*, and is called *name*."""
    urls = tuple(f"amqp://127.0.0.1:{other.port}?role=inter-router&name=to-{other.port}" for other in others)
    return start_broker(container_id=name, connect_to=urls, **{**PATTERNS, **options})


def reached(broker: RunningBroker) -> set[str]:
    """The other brokers that it knows a way to."""
    return set(broker._broker.remote.network.topology.next_hops)


def all_reach_all(*brokers: RunningBroker) -> None:
    names = {broker._broker.remote.network.me for broker in brokers}
    until(lambda: all(reached(one) == names - {one._broker.remote.network.me} for one in brokers), "all to know all")


def knows_receivers(broker: RunningBroker, address: str, *names: str, multicast: bool = False) -> None:
    """Wait until *broker* knows that exactly these others have receivers there."""

    def known() -> bool:
        found = broker._broker.remote.network.topology.receivers_of(address, multicast=multicast)
        return {name for _, targets in found.values() for name in targets} == set(names)

    until(known, f"{names} to be known as those with receivers at {address}")


def is_up(broker: RunningBroker, connector: str) -> bool:
    found = broker._broker.remote.connectors.by_name.get(connector)
    return found is not None and found.state == "up"
