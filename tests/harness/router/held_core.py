"""Hold up the core of a running broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cairnmq.broker_plugin.run import RunningBroker


@contextmanager
def core_held_up(broker: RunningBroker) -> Iterator[None]:
    """Nobody gets to play the core; the workers go on."""
    with broker._core._role:
        yield
    broker._core.ring()
