"""Tests of selectors: consumers and browsers get the matching messages, at any place in the queue, and in order."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from proton import Delivery, Described, Message, symbol, ulong
from proton.reactor import Selector
from proton.utils import LinkDetached

from cairnmq.broker.selector import compiler as compiled_here
from tests.harness.clients.peers import Handling, Peer

from .conftest import Connect, NewPeer, StartBroker

NAME = "apache.org:selector-filter:string"
either = pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])


def receiver(peer: Peer, address: str, text: Any, credit: int = 0, **options: Any) -> Any:
    link = peer.session.receiver(f"r-{text}-{len(peer.received)}-{credit}")
    link.source.filter.put_object({symbol("jms-selector"): Described(ulong(0x0000468C00000004), text)})
    peer.attach(link, address, **options)
    if credit:
        link.flow(credit)
    return link


def numbered(count: int, *, durable: bool = True, size: int = 0) -> list[Any]:
    made = []
    for number in range(count):
        message = Message(body=bytes(size) or number, durable=durable, subject="odd" if number % 2 else "even")
        message.properties = {"number": number, "third": number % 3 == 0}
        made.append(message)
    return made


def numbers(received: list[Any]) -> list[int]:
    return [message.message.properties["number"] for message in received]


@either
@pytest.mark.parametrize("settled", [True, False], ids=["settled", "unsettled"])
@pytest.mark.parametrize("size", [0, 200_000], ids=["short", "long"])
def test_a_consumer_gets_what_it_selects_and_leaves_the_rest(
    peer: Peer, durable: bool, settled: bool, size: int
) -> None:
    peer.send(peer.sender("q"), *numbered(20, durable=durable, size=size))
    link = receiver(peer, "q", "third AND JMSType = 'even'", 2, settled=settled)
    received = peer.take(link, 2)
    received += peer.drain(link, 50)
    assert numbers(received) == [0, 6, 12, 18]
    if not settled:
        for message in received:
            message.accept()
    rest = peer.drain(peer.receiver("q"), 100)
    assert numbers(rest) == [number for number in range(20) if number not in (0, 6, 12, 18)]


@pytest.mark.parametrize("size", [0, 200_000], ids=["short", "long"])
def test_a_browser_sees_what_it_selects(peer: Peer, size: int) -> None:
    peer.send(peer.sender("q"), *numbered(20, size=size))
    link = receiver(peer, "q", "number BETWEEN 5 AND 9", 2, copy=True)
    seen = peer.take(link, 2)
    seen += peer.drain(link, 50)
    assert numbers(seen) == [5, 6, 7, 8, 9]
    assert len(peer.drain(peer.receiver("q"), 100)) == 20


def test_what_comes_later_is_selected_too(peer: Peer) -> None:
    detailed, even = receiver(peer, "q", "JMSType = 'odd'", 100), receiver(peer, "q", "JMSType = 'even'", 100)
    browser = receiver(peer, "q", "number = 7", 100, copy=True)
    sender = peer.sender("q")
    for message in numbered(10):
        peer.send(sender, message)
    assert numbers(peer.take(detailed, 5)) == [1, 3, 5, 7, 9]
    assert numbers(peer.take(even, 5)) == [0, 2, 4, 6, 8]
    peer.drain(browser)


@pytest.mark.parametrize("state", [Delivery.RELEASED, Delivery.MODIFIED])
def test_what_comes_back_goes_out_again(peer: Peer, state: int) -> None:
    peer.send(peer.sender("q"), *numbered(10))
    first = receiver(peer, "q", "third", 10)
    other = receiver(peer, "q", "number > 5", 10)
    received = peer.take(first, 4)
    assert numbers(received) == [0, 3, 6, 9]
    assert numbers(peer.take(other, 2)) == [7, 8]
    peer.detach(first)
    assert numbers(peer.take(other, 2)) == [6, 9]
    again = receiver(peer, "q", "third", 10)
    received = peer.take(again, 2)
    assert numbers(received) == [0, 3]
    received[1].settle(state, failed=True)
    assert numbers(peer.take(again)) == [3]
    peer.detach(again)
    peer.detach(other)
    assert numbers(peer.drain(peer.receiver("q"), 100)) == list(range(10))


def test_what_a_consumer_says_is_undeliverable_does_not_come_again(peer: Peer) -> None:
    peer.send(peer.sender("q"), *numbered(3))
    link = receiver(peer, "q", "number > 0", 10)
    received = peer.take(link, 2)
    received[0].settle(Delivery.MODIFIED, undeliverable=True)
    assert peer.drain(link, 10) == []
    assert numbers(peer.take(receiver(peer, "q", "JMSRedelivered OR number = 1", 1))) == [1]


def test_the_filters_that_are_applied_are_confirmed(peer: Peer) -> None:
    link = peer.session.receiver("r")
    sent = {
        symbol("mine"): Described(symbol(NAME), "number = 1"),
        symbol("other"): Described(symbol("example:other"), [1]),
    }
    link.source.filter.put_object(sent)
    peer.attach(link, "q")
    confirmed = link.remote_source.filter
    confirmed.rewind()
    assert confirmed.next()
    assert confirmed.get_object() == {symbol("mine"): Described(symbol(NAME), "number = 1")}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("number = ", "at character 9: it ends where more is expected"),
        ("number LIKE 5", "at character 13: 5 is not expected here"),
        (5, "a selector is not a string"),
    ],
)
@pytest.mark.parametrize("copy", [True, False])
def test_a_bad_selector_refuses_the_link(peer: Peer, text: Any, reason: str, copy: bool) -> None:
    link = receiver(peer, "never-made", text, copy=copy)
    assert peer.refusal(link) == "amqp:invalid-field"
    assert reason in link.remote_condition.description
    peer.send(peer.sender("q"), Message(body="still here"))


@pytest.mark.parametrize("copy", [True, False])
def test_a_long_selector_is_refused_by_the_limit_and_its_option(peer: Peer, copy: bool) -> None:  # W8
    link = receiver(peer, "never-made", "a" * 2049, copy=copy)
    assert peer.refusal(link) == "amqp:resource-limit-exceeded"
    for told in ("2049 bytes", "limit is 2048", "--max-selector-size"):
        assert told in link.remote_condition.description
    peer.send(peer.sender("q"), *numbered(3))
    longest = "number = 1" + " " * 2038
    assert numbers(peer.take(receiver(peer, "q", longest, 10, copy=copy), 1)) == [1]


def test_no_selector_is_none(peer: Peer) -> None:
    peer.send(peer.sender("q"), *numbered(3))
    assert numbers(peer.take(receiver(peer, "q", "", 10), 3)) == [0, 1, 2]


def test_protons_own_selector_option(peer: Peer, connect: Connect) -> None:
    peer.send(peer.sender("examples"), *numbered(10))
    blocking = connect().create_receiver("examples", options=Selector("number > 7"))
    assert blocking.receive().properties["number"] == 8
    blocking.accept()
    with pytest.raises(LinkDetached, match="invalid-field"):
        connect().create_receiver("examples", options=Selector("number >"))


def test_protons_handler(peer: Peer, broker: Any) -> None:
    peer.send(peer.sender("examples"), *numbered(10))
    handling = Handling(
        lambda container, connection: container.create_receiver(
            connection, "examples", options=Selector("third = TRUE")
        ),
        lambda handling: len(handling.messages) == 4,
    ).run(broker.port)
    assert [message.properties["number"] for message in handling.messages] == [0, 3, 6, 9]


def test_a_deep_queue_is_looked_through_once(
    start_broker: StartBroker, peer_at: NewPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message of a queue larger than the memory limit is matched at most once, with ten credits at a time."""
    broker = start_broker(memory_limit_bytes=200_000)
    peer = peer_at(broker.port)
    count = 4000
    peer.send(peer.sender("q"), *numbered(count, size=100))
    judged: Counter[int] = Counter()
    lock = threading.Lock()
    matches = compiled_here.Selector.matches

    def counting(self: Any, content: bytes) -> bool:
        with lock:
            judged[hash(content)] += 1
        return matches(self, content)

    monkeypatch.setattr(compiled_here.Selector, "matches", counting)
    link = receiver(peer, "q", "JMSType = 'odd' AND number / 100 * 100 = number - 1")
    found: list[int] = []
    while len(found) < count // 100:
        link.flow(10)
        received = peer.take(link, 10)
        found += numbers(received)
        for message in received:
            message.accept()
    assert found == list(range(1, count, 100))
    assert sum(judged.values()) <= count
    monkeypatch.undo()
    peer.detach(link)
    rest = peer.receiver("q", count)
    assert numbers(peer.take(rest, count - count // 100)) == [n for n in range(count) if n % 100 != 1]
