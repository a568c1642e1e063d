"""Tests of link routes that the broker closes: both ends get the error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Endpoint, Terminus

from cairnmq.broker_plugin.run import RunningBroker
from tests.clients.conftest import NewPeer, StartBroker
from tests.harness.router import raw
from tests.harness.router.far import Far, begin, meanwhile
from tests.harness.router.joined import is_up, until
from tests.management.conftest import Manager


@pytest.fixture
def far() -> Iterator[Far]:
    far = Far()
    yield far
    far.close_all()


@pytest.fixture
def broker(start_broker: StartBroker, far: Far) -> RunningBroker:
    """Return a broker with a route for links at `far.*`, which is connected to the other container."""
    started = start_broker(connect_to=(f"amqp://127.0.0.1:{far.port}?name=there",), link_routes=("far.*=there",))
    far.accept()
    until(lambda: is_up(started, "there"))
    return started


@pytest.mark.parametrize("sends", [True, False], ids=["sender", "receiver"])
@pytest.mark.parametrize("what", ["link", "connection"])
def test_what_management_closes_is_closed_at_the_other_container_with_the_error(
    new_peer: NewPeer, far: Far, what: str, sends: bool
) -> None:
    client, admin = new_peer(container="clerk"), Manager(new_peer())
    link, there = begin(client, far, "far.q", sends=sends, credit=5 if sends else 0, name="mine")
    container, name = ("container", "clerk") if what == "connection" else ("name", "mine")
    [row] = [one for one in admin.rows(what) if one[container] == name]
    assert admin.ask("DELETE", what, body={"reason": "stock-taking"}, identity=row["identity"]).status == 204
    far.wait(lambda: there in far.detached, "the other container to hear of it")
    condition = "amqp:link:detach-forced" if what == "link" else "amqp:connection:forced"
    assert there.state & Endpoint.REMOTE_CLOSED
    assert (there.remote_condition.name, there.remote_condition.description) == (condition, "stock-taking")
    if what == "link":
        assert client.refusal(link) == condition


def test_what_is_to_outlast_its_link_is_not_given_up_for_management(new_peer: NewPeer, far: Far) -> None:
    """The other container gets the error, and keeps its durable terminus, like a durable subscription here."""
    client, admin = new_peer(), Manager(new_peer())
    link = client.session.receiver("mine")
    link.source.address, link.source.durability = "far.topic", 2
    link.source.expiry_policy = Terminus.EXPIRE_NEVER
    link.open()
    meanwhile(far, client, lambda: far.links)
    there = far.answer(far.asked())
    meanwhile(far, client, lambda: link.state & Endpoint.REMOTE_ACTIVE)
    [row] = [one for one in admin.rows("link") if one["name"] == "mine"]
    assert admin.ask("DELETE", "link", identity=row["identity"]).status == 204
    far.wait(lambda: there in far.detached)
    assert not there.state & Endpoint.REMOTE_CLOSED
    assert there.remote_condition.name == "amqp:link:detach-forced"
    assert client.refusal(link) == "amqp:link:detach-forced"


def test_a_client_that_sends_more_than_it_may_is_closed_at_both_ends(broker: RunningBroker, far: Far) -> None:
    with raw.Raw(broker.port, raw.opening(), raw.begin(), raw.attach("greedy", 0, "far.q")) as client:
        there = far.answer(far.asked())
        far._exchange()
        client.until("attach")
        client.say(raw.transfer(0, 0, b"\x00\x53\x75\xa0\x01x"))
        assert client.until("detach").error == "amqp:link:transfer-limit-exceeded"
        far.wait(lambda: there in far.detached)
        assert there.state & Endpoint.REMOTE_CLOSED
        assert there.remote_condition.name == "amqp:link:transfer-limit-exceeded"
