"""Tests of pika, an unmodified client of AMQP 0-9-1, and of one queue with clients of both protocols."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Message

from tests.harness.clients.peers import Peer
from tests.harness.process import DEADLINE_S, BrokerProcess, broker

pika = pytest.importorskip("pika", reason="pip install '.[interop]'")
COUNT = 300


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker(tmp_path_factory.mktemp("pika") / "store", "--amqp091") as started:
        yield started
        assert started.stop() == 0


@pytest.fixture
def connect(running: BrokerProcess) -> Iterator[Callable[[], Any]]:
    opened: list[Any] = []

    def connected() -> Any:
        parameters = pika.ConnectionParameters("127.0.0.1", running.port, blocked_connection_timeout=DEADLINE_S)
        opened.append(pika.BlockingConnection(parameters))
        return opened[-1]

    yield connected
    for one in opened:
        if one.is_open:
            one.close()


@pytest.fixture
def channel(connect: Callable[[], Any]) -> Any:
    return connect().channel()


def all_of(channel: Any, queue: str, count: int) -> list[Any]:
    """Consume *count* messages, and acknowledge each."""
    found: list[Any] = []
    for method, properties, body in channel.consume(queue, inactivity_timeout=DEADLINE_S):
        assert method is not None, f"{len(found)} of {count} messages came"
        found.append((method, properties, body))
        channel.basic_ack(method.delivery_tag)
        if len(found) == count:
            break
    assert channel.cancel() == 0
    return found


def test_messages_keep_their_order_and_properties(channel: Any, address: str) -> None:
    assert channel.queue_declare(address, durable=True).method.message_count == 0
    channel.confirm_delivery()
    properties = pika.BasicProperties(
        "text/plain", "utf-8", {"text": "ü", "number": 5, "none": None, "list": [1, "a", {"b": True}], "raw": b"\xff"},
        2, 3, "correlation", "answers", "600000", "id", 1_700_000_000, "kind", None, "app",
    )  # fmt: skip
    for number in range(COUNT):
        channel.basic_publish("", address, b"%d" % number, properties)
    assert channel.queue_declare(address, passive=True).method.message_count == COUNT
    found = all_of(channel, address, COUNT)
    assert [body for _, _, body in found] == [b"%d" % number for number in range(COUNT)]
    assert vars(found[0][1]) == vars(properties)
    assert (found[0][0].exchange, found[0][0].routing_key, found[0][0].redelivered) == ("", address, False)
    channel.queue_delete(address)


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 3_000_000])
def test_bodies_of_any_size(channel: Any, address: str, size: int) -> None:
    channel.queue_declare(address)
    channel.confirm_delivery()
    channel.basic_publish("", address, bytes(size))
    method, _, body = channel.basic_get(address, auto_ack=True)
    assert method is not None
    assert len(body) == size
    assert channel.basic_get(address) == (None, None, None)
    channel.basic_publish("", address, bytes(size))
    assert len(all_of(channel, address, 1)[0][2]) == size


def test_nacks_requeue_to_the_original_place_or_dead_letter(channel: Any, address: str) -> None:
    dead = f"{address}.dead"
    channel.queue_declare(dead)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    channel.queue_declare(address, durable=True, arguments=arguments)
    for number in range(3):
        channel.basic_publish("", address, b"%d" % number)
    first = channel.basic_get(address)
    second = channel.basic_get(address)
    channel.basic_nack(second[0].delivery_tag, requeue=False)
    channel.basic_reject(first[0].delivery_tag, requeue=True)
    found = all_of(channel, address, 2)
    assert [(body, method.redelivered) for method, _, body in found] == [(b"0", True), (b"2", False)]
    assert all_of(channel, dead, 1)[0][2] == b"1"


def test_a_closed_channel_returns_what_was_not_acknowledged(connect: Callable[[], Any], address: str) -> None:
    connection = connect()
    channel = connection.channel()
    channel.queue_declare(address)
    channel.basic_publish("", address, b"x")
    assert channel.basic_get(address)[2] == b"x"
    assert channel.basic_get(address) == (None, None, None)
    channel.close()
    channel = connection.channel()
    method, _, body = channel.basic_get(address)
    assert (body, method.redelivered) == (b"x", True)


def test_publish_subscribe_and_topics(channel: Any, address: str) -> None:
    for kind, key in (("fanout", ""), ("direct", "a.b"), ("topic", "a.*")):
        exchange = f"{address}.{kind}"
        channel.exchange_declare(exchange, kind)
        channel.exchange_declare(exchange, passive=True)
        queue = channel.queue_declare("", exclusive=True).method.queue
        assert queue.startswith("amq.gen-")
        channel.queue_bind(queue, exchange, key)
        channel.confirm_delivery()
        channel.basic_publish(exchange, "a.b", b"bound", mandatory=True)
        method, _, body = channel.basic_get(queue, auto_ack=True)
        assert (method.exchange, method.routing_key, body) == (exchange, "a.b", b"bound")
        channel.queue_unbind(queue, exchange, key)
        channel.basic_publish(exchange, "a.b", b"unbound")
        assert channel.basic_get(queue) == (None, None, None)
        channel.exchange_delete(exchange)


def test_unroutable_messages_are_returned(channel: Any, address: str) -> None:
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", f"{address}.none", b"x", mandatory=True)
    channel.basic_publish("", f"{address}.none", b"x")
    channel.queue_declare(address)
    channel.basic_publish("", address, b"y", mandatory=True)
    assert channel.basic_get(address, auto_ack=True)[2] == b"y"


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda channel, name: channel.queue_declare(name, passive=True), 404),
        (lambda channel, name: channel.exchange_declare(name, passive=True), 404),
        (lambda channel, name: channel.basic_consume(name, lambda *_: None), 404),
        (lambda channel, name: channel.basic_get(name), 404),
        (lambda channel, name: channel.queue_bind(name, "amq.fanout"), 404),
        (lambda channel, name: channel.queue_declare("amq.mine"), 403),
        (lambda channel, name: channel.exchange_declare("amq.mine"), 403),
        (lambda channel, name: channel.exchange_declare("amq.topic", "fanout"), 406),
        (lambda channel, name: channel.basic_ack(99), 406),
        (lambda channel, name: channel.queue_declare(name, arguments={"x-message-ttl": "soon"}), 406),
        (lambda channel, name: channel.queue_declare(name, arguments={"x-queue-type": "stream"}), 540),
        (lambda channel, name: channel.exchange_declare(name, "fanout", internal=True), 540),
    ],
)
def test_errors_close_the_channel_with_the_code_of_rabbitmq(
    connect: Callable[[], Any], address: str, call: Callable[[Any, str], Any], code: int
) -> None:
    connection = connect()
    channel = connection.channel()

    def done() -> None:
        call(channel, f"{address}.none"[:200])
        channel.basic_qos(prefetch_count=1)

    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        done()
    assert closed.value.reply_code == code
    assert connection.channel().is_open, "the connection and its other channels go on"


def test_a_second_declaration_must_be_equivalent(connect: Callable[[], Any], address: str) -> None:
    connection = connect()
    connection.channel().queue_declare(address, durable=True, arguments={"x-max-length": 5})
    connection.channel().queue_declare(address, durable=True, arguments={"x-max-length": 5})
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="PRECONDITION_FAILED"):
        connection.channel().queue_declare(address, durable=True)


def test_an_exclusive_queue_is_its_connections_alone(connect: Callable[[], Any], running: BrokerProcess) -> None:
    owner, other = connect(), connect()
    queue = owner.channel().queue_declare("", exclusive=True).method.queue
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="RESOURCE_LOCKED"):
        other.channel().basic_get(queue)
    owner.close()
    assert running.wait_for(rf"DELETE queue '{queue}' by .*: done")


def test_a_limit_keeps_the_newest_messages(channel: Any, address: str) -> None:
    channel.queue_declare(address, durable=True, arguments={"x-max-length": 2})
    channel.confirm_delivery()
    for number in range(5):
        channel.basic_publish("", address, b"%d" % number)
    assert [body for _, _, body in all_of(channel, address, 2)] == [b"3", b"4"]


def test_prefetch_bounds_what_a_consumer_holds(connect: Callable[[], Any], address: str) -> None:
    connection = connect()
    channel = connection.channel()
    channel.queue_declare(address)
    channel.confirm_delivery()
    for number in range(10):
        channel.basic_publish("", address, b"%d" % number)
    channel.basic_qos(prefetch_count=3)
    held: list[Any] = []
    channel.basic_consume(address, lambda _, method, properties, body: held.append(method))
    while len(held) < 3:
        connection.process_data_events(time_limit=1)
    assert connection.channel().queue_declare(address, passive=True).method.message_count == 7
    channel.basic_ack(held[2].delivery_tag, multiple=True)
    while len(held) < 6:
        connection.process_data_events(time_limit=1)
    assert connection.channel().queue_declare(address, passive=True).method.message_count == 4


def test_a_deleted_queue_cancels_its_consumers(connect: Callable[[], Any], address: str) -> None:
    connection = connect()
    channel = connection.channel()
    channel.queue_declare(address)
    cancelled = threading.Event()
    channel.add_on_cancel_callback(lambda frame: cancelled.set())
    channel.basic_consume(address, lambda *_: None)
    connection.channel().queue_delete(address)
    while not cancelled.is_set():
        connection.process_data_events(time_limit=1)


def test_confirmed_messages_survive_a_kill(tmp_path: Path) -> None:
    with broker(tmp_path / "store", "--amqp091") as first:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", first.port))
        channel = connection.channel()
        channel.queue_declare("kept", durable=True)
        channel.confirm_delivery()
        for number in range(50):
            channel.basic_publish("", "kept", b"%d" % number, pika.BasicProperties(delivery_mode=2))
        first.process.kill()
        first.process.wait(DEADLINE_S)
    with broker(tmp_path / "store", "--amqp091") as second:
        channel = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", second.port)).channel()
        assert [body for _, _, body in all_of(channel, "kept", 50)] == [b"%d" % number for number in range(50)]


def test_one_queue_has_clients_of_both_protocols(channel: Any, peer: Peer, address: str) -> None:
    channel.queue_declare(address, durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", address, b"to 1.0", pika.BasicProperties(delivery_mode=2, headers={"a": 1}))
    receiver = peer.receiver(address)
    receiver.flow(1)
    (arrival,) = peer.take(receiver, 1)
    assert bytes(arrival.message.body) == b"to 1.0"
    assert arrival.message.properties == {"a": 1}
    assert arrival.message.subject == address
    arrival.accept()
    sender = peer.sender(address)
    peer.send(sender, Message(b"to 0-9-1", properties={"b": 2}, correlation_id="c", durable=True, inferred=True))
    _, properties, body = all_of(channel, address, 1)[0]
    assert (body, properties.headers, properties.correlation_id) == (b"to 0-9-1", {"b": 2}, "c")
