"""Brokers in the process of the tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from cairnmq.broker_plugin.run import RunningBroker

SWITCH_INTERVAL_S = 0.0005
"""The thread switch interval, as the command sets it."""


@contextmanager
def running_brokers() -> Iterator[list[RunningBroker]]:
    """Yield a list of brokers, which are stopped at the end. Raises `AssertionError` if one of them has failed."""
    running: list[RunningBroker] = []
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        yield running
    finally:
        sys.setswitchinterval(interval_s)
        for broker in running:
            failure = broker.failure
            broker.stop()
            assert failure is None
