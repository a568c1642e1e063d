"""Seeds of the fuzzer: valid conversations, messages and selectors."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import cache
from typing import Any

from proton import Delivery, Described, Link, Message, Terminus, symbol, timestamp, ulong
from scramp import ScramClient

from cairnmq.amqp.codec import encode
from cairnmq.amqp.codec.types import Described as DescribedValue
from cairnmq.amqp.codec.types import Symbol, Ulong
from cairnmq.amqp.sasl.frames import SASL_HEADER
from cairnmq.amqp.sasl.server import Login
from cairnmq.amqp.sasl.server_handshake import AMQP_HEADER, ServerHandshake
from cairnmq.base.accounts.credentials import Credentials, make

from .site import Client, Site

SELECTORS = (
    "color = 'red' AND weight > 2500",
    "JMSPriority >= 4 OR JMSDeliveryMode = 'PERSISTENT' AND NOT ( JMSType = 'x' )",
    "a + b * 2 / -c - 1.5e3 <= 0x1F AND d BETWEEN 10 AND 20",
    "name LIKE 'a%b_c!%' ESCAPE '!' OR name NOT LIKE '%' OR name IN ( 'a' , 'b' , 'it''s' )",
    "x IS NULL AND y IS NOT NULL AND z NOT IN ( 'q' ) AND TRUE <> FALSE",
    "amqp.message_id = 'ID:1' AND JMSMessageID <> 'ID:2' AND amqp.priority = 4 AND amqp.durable = TRUE",
    "( ( a = 1 OR b = 2 ) AND ( c = 3 OR d = 4 ) ) AND NOT e = 5",
    "amqp.ttl > 1 AND JMSTimestamp < 9999999999999 AND JMSXGroupSeq = 3 AND JMSRedelivered = FALSE",
)


def messages() -> list[Message]:
    """Return messages with every section and every type that proton writes."""
    plain = Message(body="hello", durable=True, subject="a.b.c", id=ulong(7), reply_to="q", address="q")
    full = Message(
        body={"list": [1, 2.5, None, True, b"bytes"], "uuid": uuid.UUID(int=5), "nested": {"a": [[1], [2]]}},
        id="ID:message-1",
        user_id=b"",
        correlation_id=uuid.UUID(int=7),
        content_type=symbol("text/plain"),
        expiry_time=1000.0,
        creation_time=2000.0,
        group_id="group",
        group_sequence=3,
        reply_to_group_id="other",
        ttl=1000.0,
        priority=9,
        durable=True,
        delivery_count=2,
        address="amq.topic/a.b",
        subject="key",
        properties={"color": "red", "weight": 3000, "name": "abc", "x": None, "a": 1.5, "flag": True},
        annotations={symbol("x-opt-delivery-delay"): 5, symbol("x-opt-deaths"): [{"queue": "q", "count": 1}]},
        instructions={symbol("x-note"): "delivery"},
    )
    late = Message(body=b"late", annotations={symbol("x-opt-delivery-time"): timestamp(10**13)}, ttl=0.001)
    return [plain, full, late, Message(body=[1, 2, 3]), Message(body=b"x" * 300, inferred=True)]


@cache
def encoded_messages() -> tuple[bytes, ...]:
    return tuple(bytes(message.encode()) for message in messages())


@cache
def encoded_values() -> tuple[bytes, ...]:
    """Return filter sets, terminus properties, and requests and states of transactions."""
    filters = {
        Symbol("selector"): DescribedValue(Symbol("apache.org:selector-filter:string"), SELECTORS[0]),
        Symbol("no-local"): DescribedValue(Ulong(0x0000468C00000003), []),
        Symbol("other"): DescribedValue(Ulong(1), {"a": [1]}),
    }
    lifetime = {Symbol("lifetime-policy"): DescribedValue(Ulong(0x2C), []), Symbol("supported-dist-modes"): "copy"}
    declare = b"\x00\x53\x77" + encode.value(DescribedValue(Ulong(0x31), [b"global"]))
    discharge = b"\x00\x53\x77" + encode.value(DescribedValue(Ulong(0x32), [b"12345678", True]))
    state = encode.value([b"12345678", DescribedValue(Ulong(0x27), [True, False])])
    return (encode.value(filters), encode.value(lifetime), declare, discharge, state)


@cache
def conversations() -> tuple[tuple[bytes, ...], ...]:
    """Return recorded conversations of proton clients that together use all features."""
    return tuple(tuple(said) for said in _record())


def _record() -> Iterator[list[bytes]]:
    for talk in (_queue, _settled, _long, _topics, _dynamic, _anonymous, _transactions, _looking):
        client = Client(Site())
        talk(client)
        yield client.leave()


def _attach(client: Client, link: Link, address: str | None, *, credit: int = 10) -> Any:
    terminus = link.source if link.is_receiver else link.target
    if address is not None:
        terminus.address = address
    link.open()
    if link.is_receiver:
        link.flow(credit)
    client.talk()
    return link


def _send(client: Client, link: Any, message: Message, *, settled: bool = False) -> Any:
    delivery = link.delivery(str(len(client.said)))
    link.send(message.encode())
    link.advance()
    if settled:
        delivery.settle()
    client.talk()
    return delivery


def _take(client: Client, link: Any) -> Iterator[Any]:
    while link.current is not None and link.current.readable and not link.current.partial:
        delivery = link.current
        link.recv(delivery.pending)
        link.advance()
        yield delivery


def _settle(client: Client, delivery: Any, state: int) -> None:
    delivery.update(state)
    delivery.settle()
    client.talk()


def _queue(client: Client) -> None:
    sender = _attach(client, client.session.sender("s"), "q")
    for message in messages():
        _send(client, sender, message)
        _send(client, sender, message, settled=True)
    receiver = _attach(client, client.session.receiver("r"), "q")
    states = (Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED)
    for number, delivery in enumerate(_take(client, receiver)):
        delivery.local.failed = True
        _settle(client, delivery, states[number % 4])
    receiver.drain(5)
    client.talk()
    receiver.detach()
    sender.close()
    client.talk()


def _settled(client: Client) -> None:
    """Receive settled messages, and send messages that the sender settles last (rcv-settle-mode `second`)."""
    link = client.session.sender("s")
    link.rcv_settle_mode = Link.RCV_SECOND
    sender = _attach(client, link, "q")
    deliveries = [_send(client, sender, message) for message in messages()]
    for delivery in deliveries:
        delivery.settle()
    link = client.session.receiver("r")
    link.snd_settle_mode = Link.SND_SETTLED
    receiver = _attach(client, link, "q", credit=3)
    assert len([*_take(client, receiver)]) == 3
    receiver.flow(100)
    client.talk()


def _long(client: Client) -> None:
    sender = _attach(client, client.session.sender("s"), "q")
    receiver = _attach(client, client.session.receiver("r"), "q")
    sender.delivery("long")
    for _ in range(3):
        sender.send(bytes(messages()[0].encode()) + bytes(25_000))
        client.talk()
    sender.advance()
    client.talk()
    aborted = sender.delivery("aborted")
    sender.send(b"\x00\x53\x75\xb0\x00\x00")
    client.talk()
    aborted.abort()
    client.talk()
    for delivery in _take(client, receiver):
        _settle(client, delivery, Delivery.ACCEPTED)


def _topics(client: Client) -> None:
    receivers = []
    for number, address in enumerate(("amq.topic/a.*.#", "amq.fanout", "amq.direct/key", "amq.match")):
        link = client.session.receiver(f"sub{number}|1")
        if number == 0:
            link.source.durability = Terminus.DELIVERIES
            link.source.expiry_policy = Terminus.EXPIRE_NEVER
            selector = Described(symbol("apache.org:selector-filter:string"), "color = 'red'")
            link.source.filter.put_dict({symbol("selector"): selector})
        if number == 1:
            link.source.capabilities.put_object([symbol("shared"), symbol("global"), symbol("topic")])
        receivers.append(_attach(client, link, address))
    for address in ("amq.topic", "amq.fanout", "amq.direct", "topic://a.b.c"):
        sender = _attach(client, client.session.sender(f"to-{address}"), address)
        for message in messages():
            _send(client, sender, message)
    for receiver in receivers:
        for delivery in _take(client, receiver):
            _settle(client, delivery, Delivery.ACCEPTED)
        receiver.detach()
        client.talk()
    link = client.session.receiver("sub0|1")
    link.source.type = Terminus.UNSPECIFIED
    link.open()
    client.talk()
    link.close()
    client.talk()


def _dynamic(client: Client) -> None:
    link = client.session.receiver("reply")
    link.source.dynamic = True
    lifetime = {symbol("lifetime-policy"): Described(ulong(0x2C), [])}
    link.source.properties.put_dict(lifetime)
    _attach(client, link, None)
    sender = _attach(client, client.session.sender("s"), link.remote_source.address)
    _send(client, sender, messages()[0])
    for delivery in _take(client, link):
        _settle(client, delivery, Delivery.ACCEPTED)


def _anonymous(client: Client) -> None:
    link = client.session.sender("anonymous")
    link.open()
    client.talk()
    for message in messages():
        _send(client, link, message)


def _transactions(client: Client) -> None:
    sender = _attach(client, client.session.sender("s"), "q")
    receiver = _attach(client, client.session.receiver("r"), "q")
    coordinator = client.session.sender("coordinator")
    coordinator.target.type = Terminus.COORDINATOR
    coordinator.open()
    client.talk()
    _send(client, sender, messages()[0])
    for fail in (False, True):
        declared = _send(client, coordinator, Message(body=Described(symbol("amqp:declare:list"), [None])))
        txn_id = declared.remote.data[0]
        declared.settle()
        delivery = sender.delivery(f"in {fail}")
        delivery.local.data = [txn_id]
        delivery.update(0x34)
        sender.send(messages()[0].encode())
        sender.advance()
        client.talk()
        for taken in _take(client, receiver):
            taken.local.data = [txn_id, Described(ulong(0x24), [])]
            taken.update(0x34)
            client.talk()
        _send(client, coordinator, Message(body=Described(symbol("amqp:discharge:list"), [txn_id, fail])))


def _looking(client: Client) -> None:
    sender = _attach(client, client.session.sender("s"), "q")
    for message in messages():
        _send(client, sender, message)
    for number, selector in enumerate(SELECTORS):
        link = client.session.receiver(f"browser{number}")
        link.source.distribution_mode = Terminus.DIST_MODE_COPY if number % 2 else Terminus.DIST_MODE_MOVE
        described = Described(symbol("apache.org:selector-filter:string"), selector)
        link.source.filter.put_dict({symbol("selector"): described})
        _attach(client, link, "q")
        link.drain(3)
        client.talk()
        link.close()
        client.talk()


# ---- login --------------------------------------------------------------------------------------------------------

USER, PASSWORD = "user", "pencil"


@cache
def _credentials() -> Credentials:
    return make(PASSWORD, iterations=4096)


def login() -> Login:
    """Return a login with one user."""
    return Login(lambda name: _credentials(), anonymous=True, insecure=True)


def sasl_frame(code: int, *fields: bytes) -> bytes:
    body = encode.described(code, encode.listed(fields))
    return (8 + len(body)).to_bytes(4) + b"\x02\x01\x00\x00" + body


@cache
def logins() -> tuple[tuple[bytes, ...], ...]:
    """Return logins with each mechanism; the SCRAM proof is invalid, as it depends on the nonce of the server."""
    plain = encode.binary(f"\0{USER}\0{PASSWORD}".encode())
    scram = ScramClient(["SCRAM-SHA-256"], USER, PASSWORD, c_nonce="rOprNGfwEbeRWgbNEkqO")
    first = encode.binary(scram.get_client_first().encode())
    begin = sasl_frame(0x41, encode.symbol("SCRAM-SHA-256"), first)
    front = ServerHandshake(login())
    front.feed(SASL_HEADER + begin)
    assert front.check is not None
    answer, _ = front.checked(front.check())
    scram.set_server_first(answer[answer.index(b"r=") :].decode())
    last = sasl_frame(0x43, encode.binary(scram.get_client_final().encode()))
    return (
        (AMQP_HEADER, b""),
        (SASL_HEADER, sasl_frame(0x41, encode.symbol("ANONYMOUS"), encode.binary(b"trace")), AMQP_HEADER),
        (SASL_HEADER, sasl_frame(0x41, encode.symbol("PLAIN"), plain), AMQP_HEADER),
        (SASL_HEADER, sasl_frame(0x41, encode.symbol("PLAIN")), sasl_frame(0x43, plain), AMQP_HEADER),
        (SASL_HEADER, begin, last, AMQP_HEADER),
        (SASL_HEADER, sasl_frame(0x41, encode.symbol("EXTERNAL"), encode.binary(b""), encode.string("host"))),
    )
