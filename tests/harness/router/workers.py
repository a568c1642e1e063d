"""The worker of a connection."""

from __future__ import annotations

from typing import Any

from cairnmq.broker_plugin.run import RunningBroker


def worker_of(broker: RunningBroker) -> Any:
    (worker,) = broker._router._workers
    return worker
