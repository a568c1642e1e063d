"""Suspension of the core of a running broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cairnmq.broker_plugin.run import RunningBroker


@contextmanager
def core_held_up(broker: RunningBroker) -> Iterator[None]:
    """Keep all threads from running the core; workers continue."""
    with broker._core._role:
        yield
    broker._core.ring()
