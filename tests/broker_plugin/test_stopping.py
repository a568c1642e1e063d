"""Tests that a broker stops cleanly while work is deferred."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from cairnmq.broker_plugin.options import BrokerOptions, RouterOptions
from cairnmq.broker_plugin.run import RunningBroker

OWNERS = 400
"""Number of owners whose selectors take a second or more to compile, so that most wait when the broker is stopped."""
ROUNDS = 8
"""Number of stops, as a stop that coincides with an idle thread drops no work."""
Begin = Callable[[RunningBroker, Callable[[], None]], None]


def begin_selectors(running: RunningBroker, begun: Callable[[], None]) -> None:
    for owner in range(OWNERS):
        text = " OR ".join(f"a{owner}x{number} = {number}" for number in range(100))
        running._broker.compiler.compile(text, owner, lambda found: begun())


def begin_background_job(running: RunningBroker, begun: Callable[[], None]) -> None:
    background = running._broker.core.background

    def job() -> None:
        while background.has_time():
            pass
        background.put_off(job, "anna")
        begun()

    background.put_off(job, "anna")


@pytest.mark.parametrize("begin", [begin_selectors, begin_background_job], ids=["selectors", "background job"])
def test_a_broker_stops_cleanly_while_work_is_put_off(begin: Begin) -> None:
    for _ in range(ROUNDS):
        running = RunningBroker(BrokerOptions("", router=RouterOptions(port=0), store_kind="memory"))
        begun = threading.Event()
        try:
            running._post(begin, running, begun.set)
            assert begun.wait(60)
        finally:
            running.stop()  # raises the error of a failed core
        assert running.failure is None
