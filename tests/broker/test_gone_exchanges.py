"""Tests of deleting exchanges, by request or with their link: only their subscribers are detached, with an error."""

from __future__ import annotations

from typing import Any

import pytest

from cairnmq.amqp.ports import Open, Terminus
from tests.harness.broker.policies import Policed
from tests.harness.broker.world import FakeTerminal

DELETED = ["amqp:resource-deleted"]


@pytest.fixture
def policed() -> Policed:
    return Policed()


def attach(policed: Policed, *capabilities: str, connection: object = None, **terminus: Any) -> FakeTerminal:
    terminal = FakeTerminal()
    asked = Open(True, Terminus(capabilities=capabilities, **terminus), False, connection, "link", "me")
    policed.world.do(policed.world.broker.drivers.open, asked, terminal)
    return terminal


def test_who_subscribed_to_another_one_stays(policed: Policed) -> None:
    """A subscriber of one exchange stays attached if its queue is also bound to another exchange that is deleted."""
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
    assert subscribed.failures == DELETED
    assert done[2:] == [None] * 3


def test_a_topic_of_a_link_is_not_shared_by_another_ones_name(policed: Policed) -> None:
    """Two links with the same name each have their own temporary topic, which is deleted with its link."""
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


def subscribe(policed: Policed, address: str, connection: object = None, *, link: str = "link") -> FakeTerminal:
    """Open a durable subscription."""
    terminal = FakeTerminal()
    opening = Open(True, Terminus(address=address, durability=2, expiry="never"), False, connection, link, "me")
    policed.world.do(policed.world.broker.drivers.open, opening, terminal)
    policed.world.do(terminal.driver.request, 10, False)
    return terminal


def subscriptions(policed: Policed) -> list[str]:
    return [name for name in policed.world.broker.nodes.queues if name.startswith("subscription")]


def test_a_durable_subscription_goes_with_a_temporary_topic(policed: Policed) -> None:
    connection = object()
    made = attach(policed, "topic", connection=connection, dynamic=True, address=None)
    (topic,) = {*policed.world.broker.nodes.exchanges} - {"amq.direct", "amq.fanout", "amq.topic", "amq.match"}
    subscribed = subscribe(policed, topic, connection)
    policed.world.do(subscribed.driver.close, (), False, False)
    assert len(subscriptions(policed)) == 2, "it is only detached"
    policed.send(topic, "waits for it")
    subscribed = subscribe(policed, topic, connection)
    assert len(subscribed.forwarded) == 1
    policed.world.do(made.driver.close, (), False, True)
    assert {*subscribed.failures} == {*DELETED}
    assert subscriptions(policed) == []
    policed.restart()
    assert not policed.world.broker.nodes.queues


def test_a_durable_subscription_does_not_outlive_an_exchange_that_does_not_last(policed: Policed) -> None:
    nodes = policed.world.broker.nodes
    nodes.add_exchange("passing", "fanout", {})
    subscribe(policed, "passing")
    subscribe(policed, "amq.fanout", link="stays")
    assert len(subscriptions(policed)) == 2
    policed.restart()
    policed.world.step()
    assert subscriptions(policed) == ["subscription:me:stays"]


def test_a_subscription_to_an_exchange_that_was_made_anew_gets_what_is_sent_there(policed: Policed) -> None:
    """A subscription to a recreated exchange delivers new messages, and those from before the deletion."""
    done = list[Any]()
    for _ in range(2):
        policed.world.do(policed.world.broker.nodes.create_exchange, "news", "fanout", {}, done.append)
        link = subscribe(policed, "news")
        policed.world.do(link.driver.close, [tag for tag, _ in link.forwarded], True, False)
        policed.send("news", 1)
        policed.world.do(policed.world.broker.nodes.delete_exchange, done[-1], lambda error: None)
        policed.senders.clear()
    policed.world.do(policed.world.broker.nodes.create_exchange, "news", "fanout", {}, done.append)
    assert len(subscribe(policed, "news").forwarded) == 2
    assert len(subscriptions(policed)) == 1


def test_a_topic_that_goes_while_somebody_subscribes(policed: Policed) -> None:
    """A link whose topic is deleted during the attach is detached with an error, and its new queue is deleted."""
    nodes = policed.world.broker.nodes
    nodes.add_exchange("passing", "fanout", {})
    terminal: Any = FakeTerminal()
    opening = Open(True, Terminus(address="passing", durability=2), False, None, "link", "me")

    def subscribe_and_delete() -> None:
        policed.world.broker.drivers.open(opening, terminal)
        nodes.delete_exchange(nodes.exchanges["passing"], lambda error: None)

    policed.world.do(subscribe_and_delete)
    assert terminal.failures == DELETED
    assert subscriptions(policed) == []
