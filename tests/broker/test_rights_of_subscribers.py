"""Tests of rights of subscriptions: each consumes and needs `receive`, whatever distribution mode clients request.

`browse` does not suffice. JMS clients request a copy when they subscribe by name, as the AMQP JMS mapping specifies.
"""

from __future__ import annotations

from typing import Any

import pytest

from cairnmq.amqp.links.attach import Attach, End
from cairnmq.amqp.ports import Open, Terminus
from cairnmq.broker.nodes.access_control import parse as parse_rules
from cairnmq.broker.outbound.link_routes import parse as parse_route
from cairnmq.management.entities.clients import LinkType
from tests.harness.broker.policies import Policed
from tests.harness.broker.world import FakeTerminal

REFUSED = ["amqp:unauthorized-access"]
LASTING: dict[str, Any] = {"durability": 2, "expiry": "never"}
SUBSCRIBERS = {
    "durable": {"address": "amq.topic/t", **LASTING},
    "shared": {"address": "t", "capabilities": ("topic", "shared")},
    "global": {"address": "t", "capabilities": ("topic", "shared", "global"), **LASTING},
    "of one link": {"address": "topic://t"},
}
FAR = {
    "durable": {"address": "far.t", "durability": 1},
    "never given up": {"address": "far.t", "expiry": "never"},
    "a topic": {"address": "far.t", "capabilities": ("topic",)},
    "shared": {"address": "far.t", "capabilities": ("shared",)},
}


class Client:
    name = certified = user = ""
    container = "me"
    certificate = stored_key = b""

    def idle_s(self) -> float | None: ...

    def expel(self, description: str, *, elsewhere: bool = False) -> None: ...


CLIENT = Client()


@pytest.fixture
def policed() -> Policed:
    return Policed()


def allow(policed: Policed, *operations: str) -> None:
    names = ", ".join(f'"{operation}"' for operation in operations)
    policed.world.broker.resolver.access = parse_rules(f'[[rules]]\nwho = ["*"]\nmay = [{names}]\n'.encode(), "rules")


def attach(policed: Policed, **terminus: Any) -> FakeTerminal:
    terminal = FakeTerminal()
    asked = Terminus(**terminus)
    said = Attach("sub", End(address=asked.address), End())
    opening = Open(True, asked, connection=CLIENT, link_name=f"sub {asked}", container="me", attach=said)
    policed.world.do(policed.world.broker.drivers.open, opening, terminal)
    return terminal


@pytest.mark.parametrize("asked", SUBSCRIBERS.values(), ids=SUBSCRIBERS)
@pytest.mark.parametrize("browse", [True, False], ids=["copy", "move"])
def test_who_subscribes_is_to_receive(policed: Policed, asked: dict[str, Any], browse: bool) -> None:
    allow(policed, "browse", "create")
    assert attach(policed, browse=browse, **asked).failures == REFUSED
    assert not policed.world.broker.nodes.queues
    allow(policed, "receive")
    assert attach(policed, browse=browse, **asked).failures == []


@pytest.mark.parametrize("durability", [0, 2])
def test_who_looks_at_a_queue_is_to_browse(policed: Policed, durability: int) -> None:
    policed.make("q")
    for operation, modes in (("browse", (True, False)), ("receive", (False, True))):
        allow(policed, operation)
        for browse, refused in zip(modes, ([], REFUSED), strict=True):
            assert attach(policed, address="q", browse=browse, durability=durability).failures == refused


@pytest.mark.parametrize("asked", FAR.values(), ids=FAR)
def test_who_subscribes_at_another_container_is_to_receive(policed: Policed, asked: dict[str, Any]) -> None:
    """A request that looks like a subscription is treated as one, as only the remote container knows the node type."""
    policed.world.broker.remote.link_routes.start((parse_route("far.*=far"),))
    for operation, subscribes, browses in (("browse", REFUSED, []), ("receive", [], REFUSED)):
        allow(policed, operation)
        for refused, terminus in ((subscribes, asked), (browses, {"address": "far.t"})):
            assert attach(policed, browse=True, **terminus).failures == (refused or ["amqp:not-found"]), "no connector"


def test_new_rules_ask_for_the_same(policed: Policed) -> None:
    """New rules apply to existing subscriptions too, and management shows which links only browse."""
    broker = policed.world.broker
    policed.make("q")
    broker.remote.link_routes.start((parse_route("far.*=far"),))
    policed.world.do(broker.drivers.connection_opened, CLIENT)
    looking = attach(policed, address="q", browse=True)
    links = [attach(policed, browse=True, **asked) for asked in SUBSCRIBERS.values()]
    type_of_links = LinkType(broker.connections, broker.core.loader)
    browsing = [type_of_links.map_of(link)["browsing"] for link in type_of_links.all()]
    assert browsing == [True] + [False] * len(links)
    for operations, ended in ((("receive", "browse"), []), (("connect", "browse"), links)):
        allow(policed, "connect", *operations)
        assert broker.review.revise() == len(ended)
        assert [link for link in (looking, *links) if link.failures == REFUSED] == ended


def test_new_rules_end_links_that_ask_what_there_was(policed: Policed) -> None:
    """New rules require `receive` also for a link without a source, which consumes from an existing subscription."""
    broker = policed.world.broker
    policed.world.do(broker.drivers.connection_opened, CLIENT)
    terminus: dict[str, Any] = {"address": "amq.topic/t", **LASTING}
    first = attach(policed, **terminus)
    name = next(iter(broker.connections.links.values())).attach.link_name
    policed.world.do(broker.connections.link_went, first)
    policed.world.do(first.driver.close, (), False, False)
    asks = FakeTerminal()
    opening = Open(True, Terminus(absent=True), connection=CLIENT, link_name=name, container="me")
    policed.world.do(broker.drivers.open, opening, asks)
    assert asks.failures == []
    for operation, failures in (("receive", []), ("browse", REFUSED)):
        allow(policed, "connect", operation)
        broker.review.revise()
        assert asks.failures == failures
