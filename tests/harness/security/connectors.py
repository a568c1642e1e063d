"""Connectors that log in with TLS, and the users that the accepting broker sees."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from cairnmq.broker_plugin.run import RunningBroker
from tests.security.conftest import PASSWORDS

DEADLINE_S = 180.0
ANNA = f"anna:{quote(PASSWORDS['anna'])}"


def until(condition: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.005)


def connector_of(broker: RunningBroker) -> Any:
    until(lambda: broker._broker.remote.connectors.by_name, "the connector to be there")
    (found,) = broker._broker.remote.connectors.by_name.values()
    return found


def users_of(broker: RunningBroker) -> list[str]:
    return [end.user for end in list(broker._broker.connections.by_end)]  # type: ignore[attr-defined]
