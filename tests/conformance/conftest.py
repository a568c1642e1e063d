"""Fixtures: one broker per file, and a connection that other connections must not affect."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cairnmq.amqp.links.events import Limits
from cairnmq.broker_plugin.options import BrokerOptions, RouterOptions, StoreOptions
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.router.forbidden_frames import Witness


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    router = RouterOptions(port=0, limits=Limits())
    running = RunningBroker(BrokerOptions("", StoreOptions(), router, ("*",), store_kind="memory"))
    yield running
    failure = running.failure
    running.stop()
    assert failure is None


@pytest.fixture(scope="module")
def witness(broker: RunningBroker) -> Iterator[Witness]:
    found = Witness(broker.port)
    yield found
    found.close()
