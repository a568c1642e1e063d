"""Attacks with work that the broker does for a client: selectors, bindings, expiry. See `isolation`."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from proton import Message

from cairnmq.amqp.codec import encode
from cairnmq.amqp.codec.decode import read_items
from cairnmq.amqp.codec.primitives import descriptor
from tests.harness.security.flood_attacks import received
from tests.harness.security.isolation import Address, Case, Proceed
from tests.harness.security.wire import (
    ATTACH,
    DISPOSITION,
    FALSE,
    NULL,
    TRUE,
    Wire,
    attach,
    flow,
    performative,
    string,
    target,
    transfer,
    uint,
)

FILTER = 0x0000468C00000004
HEAVY = " OR ".join(["p LIKE '%b_c%'"] * 110)
"""A selector near the default size limit."""
LONG, JUST_WITHIN = "a" * 60_000, "a" * 8_000
"""Property values that exceed the step budget of `HEAVY`, or just stay within it."""
TOPICS = """
[[rules]]
who = ["evil"]
may = ["*"]
on = ["amq.topic", "amq.topic/*"]
"""


def selecting(name: str, handle: int, address: str, text: str) -> bytes:
    """Return the attach of a receiver with a selector."""
    described = b"\x00" + encode.ulong(FILTER) + encode.string(text)
    chosen = encode.mapped([encode.symbol("jms-selector"), described])
    source = performative(0x28, string(address), uint(0), NULL, uint(0), FALSE, NULL, NULL, chosen)
    return performative(ATTACH, string(name), uint(handle), TRUE, NULL, NULL, source, target("me"))


def _send(wire: Wire, handle: int, first: int, messages: list[Message]) -> None:
    wire.say(*[transfer(first + n, bytes(one.encode()), handle=handle) for n, one in enumerate(messages)])


def _over_and_over(at: Address, proceed: Proceed, attach: Any, prepared: Any = None) -> None:
    """Attach fifty receivers with distinct selectors, close them, and repeat."""
    wire = at.log_in("evil")
    if prepared is not None:
        prepared(wire)
    with received(wire):
        number = 0
        while proceed():
            for handle in range(100, 150):
                number += 1
                wire.say(attach(number, handle), flow(handle, 100))
            time.sleep(0.2)
            with suppress(OSError):
                wire.say(*[performative(0x16, uint(handle), TRUE) for handle in range(100, 150)])


def likes_on_a_queue(at: Address, proceed: Proceed) -> None:
    """W2: match many LIKE patterns against three messages with a property of 60 KB."""

    def prepared(wire: Wire) -> None:
        wire.attach("out", 0, "evil.q", sends=True)
        _send(wire, 0, 0, [Message(durable=True, properties={"p": LONG})] * 3)
        wire.until(DISPOSITION)

    def attach(number: int, handle: int) -> bytes:
        return selecting(f"in-{number}", handle, "evil.q", f"{HEAVY} OR n = {number % 40}")

    _over_and_over(at, proceed, attach, prepared)


def likes_on_a_backlog(at: Address, proceed: Proceed) -> None:
    """W2: match many LIKE patterns against 200 messages for which the step budget just suffices."""

    def prepared(wire: Wire) -> None:
        wire.attach("out", 0, "evil.q", sends=True)
        _send(wire, 0, 0, [Message(durable=True, properties={"p": JUST_WITHIN})] * 200)
        wire.until(DISPOSITION)

    def attach(number: int, handle: int) -> bytes:
        return selecting(f"in-{number}", handle, "evil.q", f"{HEAVY} OR n = {number % 40}")

    _over_and_over(at, proceed, attach, prepared)


def likes_on_a_topic(at: Address, proceed: Proceed) -> None:
    """W2: subscribe with many LIKE patterns to an exchange that others use, too, and publish through it."""
    with received(at.log_in("evil")) as wire:
        for handle in range(100, 150):
            text = f"{HEAVY} OR n = {handle}"
            wire.say(selecting(f"in-{handle}", handle, "amq.topic/evil", text), flow(handle, 100))
        publisher = at.log_in("evil")
        publisher.attach("out", 0, "amq.topic/evil", sends=True)
        number = 0
        while proceed():
            _send(publisher, 0, number, [Message(properties={"p": JUST_WITHIN})])
            number += 1
            publisher.until(DISPOSITION)


def patterns_on_a_topic(at: Address, proceed: Proceed) -> None:
    """W2: create 200 bindings with wildcards, and publish with new routing keys, 500 at a time."""
    with received(at.log_in("evil")) as wire:
        for handle in range(200):
            pattern = ".".join([("a", "*", "a", "#")[handle >> 2 * place & 3] for place in range(3)])
            wire.say(attach(f"in-{handle}", handle, f"amq.topic/#.{pattern}.{handle}", sends=False))
        publisher = at.log_in("evil")
        publisher.attach("out", 0, "amq.topic", sends=True)
        words, number = ".".join(["a"] * 115), 0
        while proceed():
            keys = [f"{words}.{number + n}" for n in range(500)]
            _send(publisher, 0, number, [Message(subject=key) for key in keys])
            number += 500
            confirmed = 0
            while confirmed < 500 and proceed():
                code, _, body = publisher.next()
                if code == DISPOSITION:
                    _, first, last = read_items(body, descriptor(body, 0)[1])[:3]
                    confirmed += (first if last is None else last) - first + 1


def many_selectors(at: Address, proceed: Proceed) -> None:
    """W8: attach as many receivers as possible with distinct selectors of the default length."""

    def attach(number: int, handle: int) -> bytes:
        text = f"n = {number} AND " + "n > 0 AND " * 190 + "TRUE"
        return selecting(f"in-{number}", handle, "evil.q", text)

    _over_and_over(at, proceed, attach)


def _make(wire: Wire, replies: str, **queues: dict[str, Any]) -> None:
    """Create queues by management, without waiting for the answers."""
    wire.attach("manage", 90, "$management", sends=True)
    made = [
        Message(
            properties={"operation": "CREATE", "type": "queue", "name": f"evil.{name}"},
            body=arguments, reply_to=replies,
        )
        for name, arguments in queues.items()
    ]  # fmt: skip
    _send(wire, 90, 1000, made)


def expiry_cycle(at: Address, proceed: Proceed) -> None:
    """W7: create two queues that are each other's expiry-address, with 2,000 messages."""
    wire = at.log_in("evil")
    _make(
        wire, "evil.replies",
        a={"arguments": {"message-ttl-ms": 1, "expiry-address": "evil.b"}},
        b={"arguments": {"message-ttl-ms": 1, "expiry-address": "evil.a"}},
    )  # fmt: skip
    wire.attach("out", 0, "evil.a", sends=True)
    with received(wire):
        for number in range(0, 2000, 100):
            _send(wire, 0, number, [Message(durable=True)] * 100)
        while proceed():
            time.sleep(0.05)


def mass_expiry(at: Address, proceed: Proceed) -> None:
    """W7: send messages that expire simultaneously, about 20,000 every two seconds."""
    wire = at.log_in("evil")
    wire.attach("out", 0, "evil.q", sends=True)
    with received(wire):
        number = 0
        while proceed():
            ttl_s = 2.0 - time.time() % 2.0
            message = bytes(Message(ttl=ttl_s).encode())
            wire.say(*[transfer(number + n, message) for n in range(200)])
            number += 200
            time.sleep(0.01)


CASES = (
    Case("LIKE patterns on a queue", likes_on_a_queue, finding="W2"),
    Case("LIKE patterns on a backlog", likes_on_a_backlog, finding="W2"),
    Case("LIKE patterns on a topic", likes_on_a_topic, access=TOPICS, finding="W2"),
    Case("patterns on a topic", patterns_on_a_topic, access=TOPICS, finding="W2"),
    Case("selectors without end", many_selectors, finding="W8"),
    Case("queues that expire into each other", expiry_cycle, finding="W7"),
    Case("messages that expire at once", mass_expiry, finding="W7"),
)
