"""Tests of subscriptions: receivers get later messages of an exchange, durable ones also those sent while detached."""

from __future__ import annotations

from typing import Any

import pytest
from proton import UNDESCRIBED, Array, Data, Described, Endpoint, Message, Terminus, symbol

from tests.harness.clients.peers import Peer

from .conftest import NewPeer, StartProcess

SELECTOR, NO_LOCAL = "apache.org:selector-filter:string", "apache.org:no-local-filter:list"


def subscribe(
    peer: Peer,
    address: str | None,
    name: str = "sub",
    *,
    durable: bool = False,
    capabilities: tuple[str, ...] = (),
    selector: str = "",
    no_local: bool = False,
    credit: int = 100,
) -> Any:
    """Attach a subscription as JMS clients do, and return its link."""
    link = peer.session.receiver(name)
    source = link.source
    if address is None:
        source.type = Terminus.UNSPECIFIED
    if durable:
        source.durability = Terminus.DELIVERIES
        source.expiry_policy = Terminus.EXPIRE_NEVER
        source.distribution_mode = Terminus.DIST_MODE_COPY
    if capabilities:
        source.capabilities.put_object(Array(UNDESCRIBED, Data.SYMBOL, *map(symbol, capabilities)))
    asked = {}
    if selector:
        asked[symbol("jms-selector")] = Described(symbol(SELECTOR), selector)
    if no_local:
        asked[symbol("no-local")] = Described(symbol(NO_LOCAL), [])
    if asked:
        source.filter.put_object(asked)
    peer.attach(link, address)
    if credit and not link.state & Endpoint.REMOTE_CLOSED:
        link.flow(credit)
    return link


def bodies(peer: Peer, link: Any) -> list[Any]:
    """Accept all available messages, and return their bodies."""
    received = peer.drain(link, 100)
    for one in received:
        one.accept()
    return [one.body for one in received]


@pytest.mark.parametrize("durable", [True, False], ids=["durable messages", "transient"])
def test_every_subscriber_gets_every_message(new_peer: NewPeer, durable: bool) -> None:
    publisher, one, other = new_peer(), new_peer(), new_peer()
    publisher.put(publisher.sender("topic://news.sport"), ["before"], durable=durable)
    links = [subscribe(one, "topic://news.sport"), subscribe(other, "news.*", capabilities=("topic",))]
    quiet = subscribe(other, "topic://weather.#", "other")
    publisher.put(publisher.sender("topic://news.sport"), ["goal", b"x" * 300_000], durable=durable)
    for peer, link in zip((one, other), links, strict=True):
        assert bodies(peer, link) == ["goal", b"x" * 300_000]
    assert bodies(other, quiet) == []


def test_the_subject_is_the_key_where_the_address_has_none(peer: Peer) -> None:
    link = subscribe(peer, "amq.direct/red")
    peer.send(peer.sender("amq.topic"), Message(subject="red", body=0))
    sender = peer.sender("amq.direct")
    peer.send(sender, Message(subject="red", body=1))
    blue = peer.post(sender, Message(subject="blue", body=2))
    peer.wait(lambda: blue.settled)
    assert blue.remote_state == blue.RELEASED  # no subscription matches, and the sender is informed
    assert bodies(peer, link) == [1]


def test_a_relayed_message_goes_through_an_exchange(peer: Peer) -> None:
    link = subscribe(peer, "topic://a.b")
    peer.send(peer.sender(None), Message(address="topic://a.b", body=1), Message(address="amq.topic/a.b", body=2))
    assert bodies(peer, link) == [1, 2]


def test_a_direct_exchange_needs_a_key(peer: Peer) -> None:
    link = peer.session.receiver("r")
    peer.attach(link, "amq.direct")
    assert peer.refusal(link) == "amqp:invalid-field"


def test_a_selector_chooses_before_anything_is_stored(peer: Peer) -> None:
    link = subscribe(peer, "topic://t", selector="colour = 'red'")
    assert b"colour" in bytes(link.remote_source.filter.encode())  # the applied filter is confirmed
    sender = peer.sender("topic://t")
    for number, colour in enumerate(["red", "blue", "red"]):
        peer.send(sender, Message(body=number, properties={"colour": colour}))
    assert bodies(peer, link) == [0, 2]


def test_a_bad_selector_is_refused(peer: Peer) -> None:
    link = subscribe(peer, "topic://t", selector="colour = ")
    assert peer.refusal(link) == "amqp:invalid-field"


def test_no_local_leaves_out_what_the_same_container_sent(new_peer: NewPeer) -> None:
    one, other = new_peer(), new_peer()
    link = subscribe(one, "topic://t", no_local=True)
    one.put(one.sender("topic://t"), ["mine"])
    other.put(other.sender("topic://t"), ["yours"])
    assert bodies(one, link) == ["yours"]


def test_a_durable_subscription_outlasts_its_link(new_peer: NewPeer) -> None:  # B2.2
    publisher, first = new_peer(), new_peer(container="me")
    sender = publisher.sender("topic://t")
    link = subscribe(first, "topic://t", durable=True)
    publisher.put(sender, [1])
    assert bodies(first, link) == [1]
    first.detach(link, close=False)
    publisher.put(sender, [2])
    first.close()
    publisher.put(sender, [3])
    again = new_peer(container="me")
    assert bodies(again, subscribe(again, "topic://t", durable=True)) == [2, 3]
    stranger = new_peer(container="somebody else")
    assert bodies(stranger, subscribe(stranger, "topic://t", durable=True)) == []


def test_it_outlasts_the_broker(start_process: StartProcess, peer_at: NewPeer) -> None:
    process = start_process()
    peer = peer_at(process.port, container="me")
    peer.detach(subscribe(peer, "topic://t", durable=True, selector="n > 1"), close=False)
    peer.detach(subscribe(peer, "topic://t", "volatile"), close=False)
    sender = peer.sender("topic://t")
    peer.send(sender, *(Message(body=n, durable=True, properties={"n": n}) for n in range(4)))
    process.stop()
    process = start_process()
    peer = peer_at(process.port, container="me")
    peer.send(peer.sender("topic://t"), *(Message(body=n, properties={"n": n}) for n in (0, 9)))
    link = subscribe(peer, "topic://t", durable=True, selector="n > 1")
    assert bodies(peer, link) == [2, 3, 9]


def test_other_terms_begin_it_anew(new_peer: NewPeer) -> None:
    peer = new_peer(container="me")
    peer.detach(subscribe(peer, "topic://t", durable=True), close=False)
    sender = peer.sender("topic://t")
    peer.send(sender, Message(body=1, durable=True, properties={"n": 1}))
    link = subscribe(peer, "topic://t", durable=True, selector="n = 2")
    assert bodies(peer, link) == []
    peer.send(sender, *(Message(body=n, properties={"n": n}) for n in (1, 2)))
    assert bodies(peer, link) == [2]


def test_unsubscribing_by_a_null_source(new_peer: NewPeer) -> None:
    peer = new_peer(container="me")
    peer.detach(subscribe(peer, "topic://t", durable=True), close=False)
    lookup = subscribe(peer, None, credit=0)
    assert lookup.remote_source.address == "amq.topic/t"
    assert lookup.remote_source.durability == Terminus.DELIVERIES
    peer.detach(lookup)
    removed = subscribe(peer, None, credit=0)
    assert peer.refusal(removed) == "amqp:not-found"
    removed.close()
    peer.put(peer.sender("topic://t"), [1])
    assert bodies(peer, subscribe(peer, "topic://t", durable=True)) == []


@pytest.mark.parametrize(
    ("containers", "names", "capabilities"),
    [
        (("me", "me"), ("sub", "sub|2"), ("topic", "shared")),
        (("a uuid", "another"), ("sub|global", "sub|global2"), ("topic", "shared", "global")),
    ],
    ids=["of a client id", "of nobody's"],
)
def test_unsubscribing_from_a_shared_one(
    new_peer: NewPeer, containers: tuple[str, str], names: tuple[str, str], capabilities: tuple[str, ...]
) -> None:
    """A shared subscription is deleted by the link names of qpid-jms: `|global` marks connections without client ID."""
    how: Any = {"durable": True, "capabilities": capabilities}
    for container, name in zip(containers, names, strict=True):
        peer = new_peer(container=container)
        peer.detach(subscribe(peer, "t", name, **how), close=False)
        peer.close()
    peer = new_peer(container=containers[0] if containers[0] == containers[1] else "a third")
    peer.put(peer.sender("topic://t"), ["while nobody is there"])
    lookup = subscribe(peer, None, names[0], credit=0)
    assert lookup.remote_source.address == "amq.topic/t"
    peer.detach(lookup)
    again = subscribe(peer, None, names[0], credit=0)
    assert peer.refusal(again) == "amqp:not-found"
    again.close()
    peer.settle_down()
    assert bodies(peer, subscribe(peer, "t", names[0], **how)) == []


@pytest.mark.parametrize("capabilities", [("topic",), ("topic", "shared")], ids=["one's own", "shared"])
def test_nobody_unsubscribes_from_what_is_in_use(new_peer: NewPeer, capabilities: tuple[str, ...]) -> None:
    """Unsubscribing is refused while the subscription is in use, as in JMS, and succeeds after the link is detached."""
    peer, again = new_peer(container="me"), new_peer(container="me")
    link = subscribe(peer, "t", durable=True, capabilities=capabilities)
    assert again.refusal(subscribe(again, None, credit=0)) == "amqp:resource-locked"
    peer.put(peer.sender("topic://t"), [1])
    assert bodies(peer, link) == [1]
    peer.detach(link, close=False)
    again.detach(subscribe(again, None, "sub|2", credit=0))
    assert again.refusal(subscribe(again, None, "sub|3", credit=0)) == "amqp:not-found"


def test_a_name_that_says_nothing_of_it_finds_no_global_one(new_peer: NewPeer) -> None:
    """A link name without `|global` does not match a global subscription, which belongs to other clients, too."""
    how: Any = {"durable": True, "capabilities": ("topic", "shared", "global")}
    one, other = new_peer(container="one"), new_peer(container="other")
    one.detach(subscribe(one, "t", "sub|global", **how), close=False)
    assert other.refusal(subscribe(other, None, "sub", credit=0)) == "amqp:not-found"
    other.put(other.sender("topic://t"), ["kept"])
    assert bodies(one, subscribe(one, "t", "sub|global", **how)) == ["kept"]


def test_its_own_goes_before_a_global_one_of_that_name(new_peer: NewPeer) -> None:
    peer = new_peer(container="me")
    for topic, capabilities in (("t", ("topic", "shared", "global")), ("mine", ("topic",))):
        peer.detach(subscribe(peer, topic, "sub|global", durable=True, capabilities=capabilities), close=False)
    for address in ("amq.topic/mine", "amq.topic/t"):
        lookup = subscribe(peer, None, "sub|global", credit=0)
        assert lookup.remote_source.address == address
        peer.detach(lookup)


def test_closing_the_link_unsubscribes(new_peer: NewPeer) -> None:
    peer = new_peer(container="me")
    peer.detach(subscribe(peer, "topic://t", durable=True))
    assert peer.refusal(subscribe(peer, None, credit=0)) == "amqp:not-found"


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "volatile"])
def test_a_shared_subscription_gives_each_message_to_one_link(new_peer: NewPeer, durable: bool) -> None:
    one, other = new_peer(container="a"), new_peer(container="b")
    how: Any = {"durable": durable, "capabilities": ("topic", "shared", "global")}
    links = [subscribe(one, "t", "s|1", **how), subscribe(other, "t", "s|2", **how)]
    other.settle_down()
    one.put(one.sender("topic://t"), range(10))
    found = [bodies(one, links[0]), bodies(other, links[1])]
    assert sorted(found[0] + found[1]) == list(range(10))
    assert all(found)
    for peer, link in zip((one, other), links, strict=True):
        peer.detach(link, close=False)
    one.put(one.sender("topic://t"), ["later"])
    assert bodies(one, subscribe(one, "t", "s|3", **how)) == (["later"] if durable else [])


def test_a_client_that_lost_its_link_takes_the_subscription_over(new_peer: NewPeer) -> None:
    old, new = new_peer(container="me"), new_peer(container="me")
    stolen = subscribe(old, "topic://t", durable=True)
    old.put(old.sender("topic://t"), [1, 2])
    old.take(stolen, 2)
    link = subscribe(new, "topic://t", durable=True)
    assert old.refusal(stolen) == "amqp:link:stolen"
    assert [one.body for one in new.take(link, 2)] == [1, 2]


def test_a_queue_of_such_a_name_is_no_subscription(new_peer: NewPeer) -> None:
    """A link can't create a queue with the name of a subscription on first use."""
    peer = new_peer(container="me")
    assert peer.refusal(peer.receiver("subscription:me:sub")) == "amqp:not-found"


def test_what_is_offered(peer: Peer) -> None:
    assert {"SHARED-SUBS", "DELAYED_DELIVERY"} <= set(peer.connection.remote_offered_capabilities)
