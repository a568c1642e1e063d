"""The fuzz targets, each of which processes one input without an undeclared exception.

A target with a setup for many inputs is a generator function. Inputs are sent to the generator; after each batch, the
generator is closed, which checks its invariants, and a new one is created.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from itertools import cycle
from typing import Any, NamedTuple

from cairnmq.amqp.codec import decode, encode, filters, header, sections
from cairnmq.amqp.codec import primitives as codec
from cairnmq.amqp.codec import transaction_types as transactions
from cairnmq.amqp.codec import user_id_check as vouching
from cairnmq.amqp.codec.primitives import Malformed
from cairnmq.amqp.engine.engine import Engine
from cairnmq.amqp.links import terminus as termini
from cairnmq.amqp.links.credit import grant
from cairnmq.amqp.native.buffer_pool import Buckets
from cairnmq.amqp.sasl.handshake import MAX_AHEAD_BYTES, Stage
from cairnmq.amqp.sasl.server_handshake import ServerHandshake
from cairnmq.base.accounts.users import Users, parse
from cairnmq.base.errors import CairnError
from cairnmq.broker.messages.message_times import may_have_times, stamped, times_of
from cairnmq.broker.nodes import lifetimes
from cairnmq.broker.nodes.topic_trie import Topics
from cairnmq.broker.selector.compiler import Selector, SelectorError

from . import corpus
from .grouping import Grouped, said
from .managing import Managed, requests
from .mutate import Mutator
from .peering import client_front, conversations, peers, sasl_servers
from .site import LIMITS, Client, Site

Batch = Generator[None, bytes, None]


class Target(NamedTuple):
    """A fuzz target: input generator, setup, share of executions, and batch size."""

    make: Callable[[Mutator], bytes]
    begin: Callable[[], Batch]
    share: float
    """Fraction of all executions."""
    batch: int = 500
    """Number of inputs per setup."""


def _pure(function: Callable[[bytes], Any]) -> Callable[[], Batch]:
    def begin() -> Batch:
        while True:
            function((yield))

    return begin


# ---- decoders -----------------------------------------------------------------------------------------------------


def _values(data: bytes) -> None:
    """Check that a decoded value can be encoded and is decoded to the same value."""
    with suppress(Malformed):
        found, end = decode.value(data)
        assert 0 < end <= len(data)
        again = encode.value(found)
        assert repr(decode.complete(again)) == repr(found)
    for read in (decode.complete, lambda raw: decode.value(raw, plain=True), filters.parse, lifetimes.asked_for):
        with suppress(Malformed):
            read(data)
    for read_at in (codec.read, codec.read_list, codec.descriptor, codec.head, codec.extent):
        with suppress(Malformed):
            read_at(data, 0)
    with suppress(Malformed):
        filters.accepted(filters.parse(data), no_local=True)


def _message(data: bytes) -> None:
    for read in (
        header.parse, header.address_of, header.subject_of, lambda raw: header.redelivered(raw, 3),
        sections.index, lambda raw: sections.index(raw, complete=False), lambda raw: vouching.vouch(raw, "user"),
        transactions.read_request, transactions.read_state,
    ):  # fmt: skip
        with suppress(Malformed, vouching.NotTheSender):
            read(data)
    with suppress(Malformed):
        sections.properties(data, sections.find(data, sections.PROPERTIES))
    with suppress(Malformed):
        sections.application_properties(data, sections.find(data, sections.APPLICATION_PROPERTIES))
    with suppress(Malformed):
        annotated = sections.annotated(data, {"x-opt-a": 1})
        found = sections.annotations_of(annotated, sections.find(annotated, sections.MESSAGE_ANNOTATIONS))
        assert found["x-opt-a"] == 1
    with suppress(Malformed):
        head = header.parse(data)
        assert header.parse(sections.header_section(head))[:5] == head[:5]
        may_have_times(data, head)
        times_of(stamped(data, head, 10**15, always=True), 1000)
    walk = vouching.Walk("user")
    with suppress(Malformed, vouching.NotTheSender):
        for at in range(0, len(data), 7):
            walk.feed(data[at : at + 7], last=at + 7 >= len(data))


def _users(data: bytes) -> None:
    with suppress(CairnError):
        assert isinstance(parse(data, "users"), Users)


def _topics(data: bytes) -> None:
    """Check that matching does not fail and that removed patterns do not match."""
    patterns = data.decode("latin-1").split("\n")[:8]
    topics: Topics[int] = Topics()
    for number, pattern in enumerate(patterns):
        topics.add(pattern[:255], number)
    topics.match(patterns[-1][:255])
    for number, pattern in enumerate(patterns):
        topics.remove(pattern[:255], number)
    assert topics.match(patterns[-1][:255]) == []


_SELECTED = (*corpus.encoded_messages(), b"", b"\x00\x53\x74\xc1\x07\x02\xa1\x01a\x81\xff")


def _selector(data: bytes) -> None:
    with suppress(SelectorError):
        selector = Selector(data.decode("utf-8", "replace"))
        for message in _SELECTED:
            assert isinstance(selector.matches(message), bool)


_SELECTORS = tuple(map(Selector, corpus.SELECTORS))


def _selected(data: bytes) -> None:
    for selector in _SELECTORS:
        assert isinstance(selector.matches(data), bool)


# ---- conversations ------------------------------------------------------------------------------------------------


def _front(data: bytes) -> None:
    """Check that only SASL is reachable before login, and that the bytes held before login are bounded."""
    front = ServerHandshake(corpus.login())
    for at in range(0, len(data), 100):
        _, rest = front.feed(data[at : at + 100])
        while front.check is not None:
            _, rest = front.checked(front.check())
        assert not rest or front.stage is Stage.OPEN
        assert len(front._held) <= MAX_AHEAD_BYTES
        if front.stage in (Stage.OPEN, Stage.REFUSED):
            return


def _engine(data: bytes) -> None:
    """Make all calls of a terminal on an isolated engine and answer each attach."""
    buckets = Buckets(1 << 20)
    engine = Engine("broker", LIMITS, buckets)
    for at in range(0, len(data), 700):
        engine.push(data[at : at + 700])
        engine.digest()
        events, engine.endpoints.events = engine.endpoints.events, []
        for event in events:
            if event.kind.name == "OPENED":
                engine.endpoints.open(("one", "two"))
            elif event.link is not None and not event.link.closed:
                if event.kind.name == "ATTACHED":
                    terminus = termini.asked_for(event.link)
                    engine.endpoints.open_link(event.link, terminus.address, terminus.filters)
                    if not event.link.sender:
                        grant(event.link, 10)
                elif event.kind.name == "FLOW":
                    engine.credit_limit(event.link)
        for link in engine.touched:
            link.touched = False
            if link.inbox:
                engine.check_credit(link)
            link.inbox.clear()
            link.outcomes.clear()
            link.provisional.clear()
        engine.touched.clear()
        while output := engine.output():
            engine.consumed(len(output))
    engine.push_end()
    engine.digest()
    engine.free()


_policies = cycle(
    (
        {},
        {"dead-letter-address": "dead", "max-deliveries": 2, "retry-delay-ms": 50},
        {"max-messages": 3, "overflow": "ring", "message-ttl-ms": 900, "expiry-address": "dead"},
        {"duplicate-window": 4, "max-bytes": 3000, "overflow": "block", "dead-letter-address": "amq.topic"},
        {"priorities": True, "last-value-key": "subject", "message-ttl-ms": 500},
        {"message-groups": True, "max-messages": 4, "overflow": "drop", "dead-letter-address": "q"},
        {"single-active-consumer": True, "auto-delete": "no-messages", "max-messages": 2, "overflow": "ring"},
        {"auto-delete": "no-links-or-messages", "exclusive": True, "duplicate-window": 1},
    )
)
"""Arguments of the queues `q` and `dead` that the conversations use."""


def _broker() -> Batch:
    """Fuzz a complete broker; check that it does not fail, its counters stay correct, and another client works."""
    site = Site(next(_policies))
    other = Client(site, "other")
    number = 0
    try:
        while True:
            data = yield
            number += 1
            site.converse(data, (64 << 10, 600, 90)[number % 3])
            if number % 20 == 0:
                site.advance(0.7)
                _exchange(other, number)
    finally:
        other.leave()
        site.check_accounts()


def _exchange(client: Client, number: int) -> None:
    """Send a message from the other client and receive the message."""
    name = f"others {number}"
    sender = client.session.sender(name)
    sender.target.address = "others"
    receiver = client.session.receiver(name)
    receiver.source.address = "others"
    for link in (sender, receiver):
        link.open()
    receiver.flow(1)
    client.talk()
    content = b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x75\xa0\x04" + number.to_bytes(4)
    delivery = sender.delivery("tag")
    sender.send(content)
    sender.advance()
    client.talk()
    assert delivery.remote_state == delivery.ACCEPTED
    received = receiver.current
    assert receiver.recv(1000) == content
    received.update(received.ACCEPTED)
    received.settle()
    for link in (sender, receiver):
        link.close()
    client.talk()


def _management() -> Batch:
    managed = Managed()
    number = 0
    while True:
        data = yield
        if number % 25 == 0:
            managed.fill(corpus.encoded_messages())
        if number % 5 == 4:
            managed.fill([data])
        else:
            managed.ask(data)
        number += 1


_PATTERNS = (b"a.b.c\n*.b.#\na.b.c", b"#\n#.#\na.#.c\n.\n..\n", b"*\n*.*\nx.y", b"#.a.#.a.#\na.a.a.a")
_USERS = (
    b"cairnmq-users 1 " + b"QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=" + b"\n# note\n"
    b"user:SCRAM-SHA-256$15000:QUFBQUFBQUFBQUFB$QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=:"
    b"QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=\n",
)  # fmt: skip


def _group() -> Batch:
    grouped = Grouped()
    while True:
        try:
            data = yield
        except GeneratorExit:
            grouped.check()
            return
        grouped.hear(data)


TARGETS = {
    "values": Target(
        lambda mutator: mutator.blob((*corpus.encoded_values(), *corpus.encoded_messages())), _pure(_values), 0.15
    ),
    "message": Target(lambda mutator: mutator.blob(corpus.encoded_messages()), _pure(_message), 0.28),
    "group": Target(lambda mutator: mutator.blob(said()), _group, 0.02, batch=100),
    "users": Target(lambda mutator: mutator.blob(_USERS), _pure(_users), 0.05),
    "topics": Target(lambda mutator: mutator.blob(_PATTERNS), _pure(_topics), 0.05),
    "selector": Target(lambda mutator: mutator.text(corpus.SELECTORS).encode(), _pure(_selector), 0.05),
    "selected": Target(lambda mutator: mutator.blob(corpus.encoded_messages()), _pure(_selected), 0.06),
    "front": Target(lambda mutator: mutator.frames(corpus.logins()), _pure(_front), 0.1),
    "engine": Target(lambda mutator: mutator.frames(corpus.conversations()), _pure(_engine), 0.13),
    "management": Target(
        lambda mutator: mutator.blob((*requests(), *requests(), *corpus.encoded_messages())),
        _management,
        0.05,
        batch=200,
    ),
    "client_front": Target(lambda mutator: mutator.frames(sasl_servers()), _pure(client_front), 0.03),
    "peers": Target(lambda mutator: mutator.frames(sum(conversations(), ())), peers, 0.01, batch=100),
    "broker": Target(lambda mutator: mutator.frames(corpus.conversations()), _broker, 0.02, batch=200),
}
