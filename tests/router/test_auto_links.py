"""Tests of auto-links, which connect queues to addresses of another container without a client, as in qdrouterd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from proton import Delivery, Endpoint, Link, Message, Terminus
from proton.utils import BlockingConnection

from cairnmq.amqp.ports import Open
from cairnmq.amqp.ports import Terminus as Terms
from cairnmq.base.errors import CairnError
from cairnmq.broker.outbound import auto_links, connectors
from cairnmq.broker.outbound.auto_links import AutoLink, parse
from cairnmq.broker_plugin.run import RunningBroker
from cairnmq.cli.run.connect_to import auto_links_of, targets_of
from tests.clients.conftest import NewPeer, StartBroker
from tests.harness.broker.world import FakeTerminal, World
from tests.harness.clients.peers import Peer
from tests.harness.router.far import Far
from tests.harness.router.joined import is_up, until


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the delays before retries of connections and auto-links to 10 ms."""
    for module in (connectors, auto_links):
        monkeypatch.setattr(module, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(auto_links, "REFUSAL_WAIT_S", 0.01)


@pytest.fixture
def far() -> Iterator[Far]:
    far = Far()
    yield far
    far.close_all()


def link_of(broker: RunningBroker) -> AutoLink:
    (found,) = broker._broker.remote.auto_links.by_name.values()
    return found


def starts(start_broker: StartBroker, far: Far, link: str, **options: Any) -> tuple[RunningBroker, Any]:
    """Start a broker with one auto-link; return it and the link at the other container, which is not answered yet."""
    broker = start_broker(connect_to=(f"amqp://127.0.0.1:{far.port}?name=there",), auto_links=(link,), **options)
    far.accept()
    return broker, far.asked()


def both(far: Far, peer: Peer, condition: Any, what: str = "") -> None:
    """Wait for a condition that needs progress on both sides."""

    def looked() -> object:
        far._exchange()
        return condition()

    peer.wait(looked, what)


def post(far: Far, link: Any, body: str, *, durable: bool = True) -> Any:
    return far.post(link, Message(body=body, durable=durable))


# ---- attaching the link ----------------------------------------------------------------------------------------------


def test_the_link_is_as_it_was_asked_for(start_broker: StartBroker, far: Far) -> None:  # C42
    _, link = starts(start_broker, far, "in:here@there:elsewhere", container_id="me")
    assert link.is_receiver is False
    assert link.name == "me/in:here@there:elsewhere"
    assert (link.remote_source.address, link.remote_target.address) == ("elsewhere", "here")
    assert link.remote_snd_settle_mode == Link.SND_UNSETTLED
    assert link.remote_rcv_settle_mode == Link.RCV_FIRST


def test_without_another_address_it_is_the_same_one(start_broker: StartBroker, far: Far) -> None:
    _, link = starts(start_broker, far, "out:here@there")
    assert link.is_receiver
    assert (link.remote_source.address, link.remote_target.address) == ("here", "here")


@pytest.mark.parametrize("text", ["", "in", "in:", "in:q", "in:q@", "in:@to", "up:q@to", "in:q@to:", "q@to"])
def test_what_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(CairnError):
        parse(text)


def test_a_connector_without_a_name_of_its_own_is_refused() -> None:
    targets = targets_of(["amqp://mq.example.org:5673"], "")
    with pytest.raises(CairnError, match="name="):
        auto_links_of(["in:q@mq.example.org:5673"], targets)
    assert auto_links_of(["in:q@mq:5673"], targets)[0].external == "5673"


# ---- incoming messages -----------------------------------------------------------------------------------------------


def test_what_comes_in_is_stored_and_accepted(start_broker: StartBroker, far: Far, peer_at: NewPeer) -> None:
    broker, link = starts(start_broker, far, "in:inbox@there", credit=5)
    far.answer(link)
    far.wait(lambda: link.credit == 5, "the queue's credit")
    deliveries = []
    for number in range(12):
        far.wait(lambda: link.credit, "credit")
        deliveries.append(post(far, link, f"{number}"))
    far.wait(lambda: all(one.settled for one in deliveries))
    assert {one.remote_state for one in deliveries} == {Delivery.ACCEPTED}
    assert link_of(broker).state == "up"
    peer = peer_at(broker.port)
    assert [one.body for one in peer.take(peer.receiver("inbox", 20), 12)] == [f"{number}" for number in range(12)]


def test_it_may_go_through_an_exchange(start_broker: StartBroker, far: Far, peer_at: NewPeer) -> None:
    broker, link = starts(start_broker, far, "in:topic://news.sport@there:news")
    far.answer(link)
    peer = peer_at(broker.port)
    receiver = peer.receiver("topic://news.*", 10)
    far.wait(lambda: link.credit)
    delivery = post(far, link, "goal")
    far.wait(lambda: delivery.settled)
    assert peer.take(receiver)[0].body == "goal"
    assert link_of(broker).reason == ""


def test_what_there_is_no_room_for_stays_at_the_other_one(start_broker: StartBroker, far: Far) -> None:
    """The message is released, not rejected, and its credit is replenished after a delay."""
    _, link = starts(start_broker, far, "in:inbox@there", credit=1, memory_limit_bytes=0)
    far.answer(link)
    for _ in range(3):
        far.wait(lambda: link.credit, "credit")
        delivery = post(far, link, "transient", durable=False)
        far.wait(lambda: delivery.settled)  # noqa: B023
        assert delivery.remote_state == Delivery.RELEASED


def test_what_can_not_be_read_is_rejected(start_broker: StartBroker, far: Far) -> None:
    _, link = starts(start_broker, far, "in:inbox@there")
    far.answer(link)
    far.wait(lambda: link.credit)
    delivery = far.post(link, b"\x00\x53\x70\xc0\x02")
    far.wait(lambda: delivery.settled)
    assert delivery.remote_state == Delivery.REJECTED


@pytest.mark.parametrize("relayed", [False, True])
def test_who_sent_what_was_the_other_ones_to_look_at(relayed: bool) -> None:
    """A relayed message may have any user ID, since the other container checks user IDs."""
    world = World(1 << 20, vouch=True)
    world.open(to_client=False)
    terminal = FakeTerminal()
    attach = Open(False, Terms("q"), user="hub", relayed=relayed)
    world.do(world.broker.link_opener.open_at, world.queue(), attach, terminal)
    content = bytes(Message(user_id=b"anna", durable=True, body="a").encode())
    world.send(terminal, (1, content, 0))
    assert (terminal.confirmed, list(terminal.rejected)) == (([1], []) if relayed else ([], [1]))


# ---- outgoing messages -----------------------------------------------------------------------------------------------


def test_what_goes_out_is_off_the_queue_when_it_was_accepted(
    start_broker: StartBroker, far: Far, peer_at: NewPeer
) -> None:
    broker, link = starts(start_broker, far, "out:outbox@there")
    peer = peer_at(broker.port)
    peer.put(peer.sender("outbox"), ["a", "b", "c"])
    far.answer(link, 2)
    first, second = far.take(link, 2)
    assert (first.body, second.body) == ("a", "b")
    first.accept()
    second.settle(Delivery.RELEASED)
    link.flow(2)
    rest = far.take(link, 2)
    assert [one.body for one in rest] == ["b", "c"]
    for one in rest:
        one.accept()
    queue = broker._broker.nodes.queues["outbox"]
    both(far, peer, lambda: queue.messages == 0, "the queue to be empty")


def test_what_the_other_one_rejects_is_a_dead_letter(start_broker: StartBroker, far: Far, peer_at: NewPeer) -> None:
    broker, link = starts(start_broker, far, "out:outbox@there")
    peer = peer_at(broker.port)
    peer.put(peer.sender("outbox"), ["bad"])
    far.answer(link, 1)
    far.take(link)[0].settle(Delivery.REJECTED)
    queue = broker._broker.nodes.queues["outbox"]
    both(far, peer, lambda: queue.messages == 0, "the queue to be empty")


# ---- retries ---------------------------------------------------------------------------------------------------------


def test_after_a_cut_nothing_is_missing(start_broker: StartBroker, far: Far, peer_at: NewPeer) -> None:
    broker, link = starts(start_broker, far, "out:outbox@there")
    peer = peer_at(broker.port)
    peer.put(peer.sender("outbox"), ["a", "b"])
    far.answer(link, 10)
    far.take(link, 2)[0].accept()
    queue = broker._broker.nodes.queues["outbox"]
    both(far, peer, lambda: queue.messages == 1, "the outcome to be heard")
    far.cut()
    far.accept()
    link = far.answer(far.asked(), 10)
    (again,) = far.take(link)
    assert again.body == "b"
    assert again.message.delivery_count == 1
    assert link_of(broker).state == "up"


def test_a_link_that_is_refused_or_ended_is_asked_for_again(start_broker: StartBroker, far: Far) -> None:
    broker, link = starts(start_broker, far, "in:inbox@there")
    link.target.type = Terminus.UNSPECIFIED  # the link is refused
    link.source.type = Terminus.UNSPECIFIED
    link.open()
    link.close()
    link = far.answer(far.asked())
    far.wait(lambda: link.credit)
    link.close()
    link = far.answer(far.asked())
    far.wait(lambda: link.credit)
    until(lambda: link_of(broker).state == "up")


def test_a_queue_that_there_is_not_is_waited_for(
    start_broker: StartBroker, far: Far, caplog: pytest.LogCaptureFixture
) -> None:
    broker, link = starts(start_broker, far, "out:outbox@there", auto_create=())
    far.answer(link, 1)
    far.wait(lambda: link.state & Endpoint.REMOTE_CLOSED, "the link to be closed")
    link.close()
    far._exchange()
    until(lambda: "auto-link out:outbox@there: there is no queue 'outbox'" in caplog.text)  # the broker retries later
    broker._core.post(broker._broker.nodes.create_queue, "outbox", {}, lambda found: None)
    broker._core.run()

    def up() -> bool:
        far._exchange()
        while far.links:
            far.answer(far.asked(), 1)
        return link_of(broker).state == "up"

    until(up)


# ---- two brokers -----------------------------------------------------------------------------------------------------


def test_two_brokers_in_both_directions(start_broker: StartBroker) -> None:
    hub = start_broker(container_id="hub")
    edge = start_broker(
        container_id="edge",
        connect_to=(f"amqp://127.0.0.1:{hub.port}?name=hub",),
        auto_links=("in:jobs@hub:edge-jobs", "out:results@hub"),
    )
    until(lambda: is_up(edge, "hub"))
    there, here = (BlockingConnection(f"127.0.0.1:{one.port}", timeout=180) for one in (hub, edge))
    sender, receiver = there.create_sender("edge-jobs"), there.create_receiver("results", credit=10)
    bodies = [f"{number}".encode() * 100 for number in range(50)] + [bytes(300_000)]
    for body in bodies:
        sender.send(Message(body=body, durable=True))
    worker, answers = here.create_receiver("jobs", credit=10), here.create_sender("results")
    for body in bodies:
        message = worker.receive()
        assert bytes(message.body) == body
        answers.send(Message(body=b"did " + bytes(message.body[:10]), durable=True))
        worker.accept()
    for body in bodies:
        assert bytes(receiver.receive().body) == b"did " + body[:10]
        receiver.accept()
    there.close()
    here.close()
