"""Exchanges that go, by hand or with the link they were made for: who subscribed is told, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from cairnmq.channel.words import Open, Terminus

from .test_policies import Policed
from .world import FakeTerminal

GONE = ["amqp:resource-deleted"]


@pytest.fixture
def policed() -> Policed:
    return Policed()


def attach(policed: Policed, *capabilities: str, connection: object = None, **terminus: Any) -> FakeTerminal:
    terminal = FakeTerminal()
    asked = Open(True, Terminus(capabilities=capabilities, **terminus), False, connection, "link", "me")
    policed.world.do(policed.world.broker.open, asked, terminal)
    return terminal


def test_who_subscribed_to_another_one_stays(policed: Policed) -> None:
    """Though somebody has bound its queue to the one that goes as well."""
    nodes, done = policed.world.broker.nodes, list[Any]()
    for name in ("one", "other"):
        policed.world.do(nodes.create_exchange, name, "fanout", {}, done.append)
    one, other = done
    subscribed = attach(policed, address="one")
    (queue,) = [binding.queue for binding in one.bindings()]
    policed.world.do(nodes.bind, other, queue, "", {}, done.append)
    policed.world.do(nodes.delete_exchange, other, done.append)
    assert subscribed.failures == []
    policed.world.do(nodes.delete_exchange, one, done.append)
    assert subscribed.failures == GONE
    assert done[2:] == [None] * 3


def test_a_topic_of_a_link_is_not_shared_by_another_ones_name(policed: Policed) -> None:
    """Two links of one name, each with a topic of its own: what is made goes with its link, and nothing stays."""
    exchanges = policed.world.broker.nodes.exchanges
    before = {*exchanges}
    connection = object()
    links = [attach(policed, "topic", "shared", connection=connection, dynamic=True, address=None) for _ in range(2)]
    assert [link.failures for link in links] == [[], []]
    assert len({*exchanges} - before) == 2
    for link in links:
        policed.world.do(link.driver.close, (), False, True)
    assert {*exchanges} == before
    assert not policed.world.broker.nodes.queues
