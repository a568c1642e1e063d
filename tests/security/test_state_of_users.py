"""State with a name chosen by a client belongs to its user; other users cannot occupy, find or move that state."""

from __future__ import annotations

import time

from hypothesis import example, given
from hypothesis import strategies as st

from cairnmq.amqp.codec import encode
from cairnmq.amqp.codec.types import Symbol
from cairnmq.amqp.links.attach import Attach, End
from cairnmq.amqp.links.values import Terminus
from cairnmq.amqp.ports import Open
from cairnmq.broker.federation import upstream as streams
from cairnmq.broker.federation.upstream_link import FOLLOWER
from cairnmq.broker.outbound import link_routes
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.security.wire import (
    AMQP,
    ATTACH,
    CLOSE,
    DEADLINE_S,
    NULL,
    OPEN,
    TRUE,
    Wire,
    performative,
    string,
    symbol,
    target,
    uint,
    wired,
)

from .conftest import PASSWORDS, StartBroker

SOLE = symbol("sole-connection-for-container")


def opened(wire: Wire, user: str, container: str) -> bytes:
    """Log in and open the sole connection of *container*; return the close frame, or `b""` if it is accepted."""
    assert wire.scram(user, PASSWORDS[user]) == 0
    wire.send(AMQP)
    assert wire.read(8) == AMQP
    wire.say(performative(OPEN, string(container), *[NULL] * 7, SOLE))
    _, body = wire.until(OPEN)
    if b"connection-establishment-failed" not in body:
        return b""
    while True:
        code, _, body = wire.next()
        if code == CLOSE:
            return body


def test_container_id_is_taken_for_its_user_alone(guarded: RunningBroker) -> None:  # W9, attack 40
    with wired(guarded.port) as squatter, wired(guarded.port) as victim, wired(guarded.port) as second:
        assert opened(squatter, "ben", "orders-service") == b""
        assert opened(victim, "anna", "orders-service") == b""
        assert b"amqp:invalid-field" in opened(second, "anna", "orders-service")


def test_routed_links_of_two_users_have_two_names(start_broker: StartBroker, users_file: str) -> None:  # W9
    """Link names chosen by different users stay distinct at the next broker, which sees all on one connection."""
    far = start_broker()
    near = start_broker(
        users_file=users_file, anonymous=False, connect_to=(f"amqp://127.0.0.1:{far.port}?name=there",),
        link_routes=("far.*=there",), container_id="near",
    )  # fmt: skip
    deadline_s = time.monotonic() + DEADLINE_S
    while (there := near._broker.remote.connectors.by_name.get("there")) is None or there.connection is None:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    with wired(near.port) as first, wired(near.port) as second:
        for wire, user in ((first, "anna"), (second, "ben")):
            assert wire.scram(user, PASSWORDS[user]) == 0
            wire.open().attach("mine", 0, "far.queue", sends=False)
        names = {link.attach.link_name for link in list(far._broker.connections.links.values())}
        assert names == {"anna/mine@raw", "ben/mine@raw"}


@given(
    one=st.tuples(st.text("ab/@%|", max_size=4), st.text("ab/@%|", max_size=4), st.text("ab/@%|", max_size=4)),
    other=st.tuples(st.text("ab/@%|", max_size=4), st.text("ab/@%|", max_size=4), st.text("ab/@%|", max_size=4)),
)
@example(one=("a", "x", "c"), other=("", "a/x", "c"))
@example(one=("", "x@y", "c"), other=("", "x", "y@c"))
def test_name_of_a_routed_link_is_one_users(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:  # W9
    assert (_routed_name(*one) == _routed_name(*other)) == (one == other)


def _routed_name(user: str, link: str, container: str) -> str:
    asked = Attach(link, End(address="far.queue"), End(address="far.queue"))
    attach = Open(True, Terminus("far.queue"), False, None, link, container, user, attach=asked)
    return link_routes._asked(link_routes.LinkRoute("far.*", "there"), attach).name


@given(
    users=st.lists(st.text(max_size=5), min_size=2, max_size=2, unique=True),
    follower=st.text("az09", min_size=1, max_size=48),
)
def test_place_of_a_follower_is_one_users(users: list[str], follower: str) -> None:  # W9
    properties = encode.value({Symbol(FOLLOWER): follower})
    names = [streams._said(properties, user).follower for user in users]
    assert names[0] != names[1]
    assert all(user or name == follower for user, name in zip(users, names, strict=True))


def test_durable_subscription_is_found_by_its_user_alone(guarded: RunningBroker) -> None:  # W9, attack 40
    """A durable subscription belongs to its user, even if AMQP container ID and link name of another user are equal."""

    def has_source(user: str, source: bytes) -> bool:
        with wired(guarded.port) as wire:
            assert wire.scram(user, PASSWORDS[user]) == 0
            wire.open()
            wire.say(performative(ATTACH, string("news"), uint(0), TRUE, NULL, NULL, source, target("me")))
            _, body = wire.until(ATTACH)
            return b"amq.topic/news" in body

    assert has_source("anna", performative(0x28, string("amq.topic/news"), uint(2), symbol("never")))
    assert not has_source("ben", NULL), "ben has no subscription of that name"
    assert has_source("anna", NULL)
