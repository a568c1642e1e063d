"""Attacks by a tenant that uses up resources: memory, queues, messages, connections. See `isolation`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from tests.harness.security.flood_attacks import begin, received
from tests.harness.security.isolation import Address, Case, Proceed
from tests.harness.security.selector_attacks import TOPICS
from tests.harness.security.wire import (
    ATTACH,
    DISPOSITION,
    FALSE,
    NULL,
    TRUE,
    Wire,
    attach,
    flow,
    message,
    performative,
    source,
    string,
    symbol,
    target,
    transfer,
    uint,
)

_ENDS = performative(0x28), performative(0x30), NULL, NULL, uint(0)
_COORDINATOR = performative(ATTACH, string("c"), uint(100), FALSE, NULL, NULL, *_ENDS)

SETTLED = b"\x50\x01"
"""The field value of a sender that settles its deliveries."""

CREDIT = 1000
"""The initial credit of a sender."""
MOST_AHEAD = 100
"""The first credit of a resumable link to an exchange."""


@contextmanager
def _sender(at: Address, address: str) -> Iterator[Wire]:
    with received(at.log_in("evil")) as wire:
        wire.say(attach("send", 0, address, sends=True))
        yield wire


def fill_memory(at: Address, proceed: Proceed) -> None:
    """D9: send transient messages to a queue without consumers."""
    content = message("x" * 50_000)
    with _sender(at, "evil.memory") as wire:
        wire.sock.settimeout(0.5)
        with suppress(TimeoutError):
            for number in range(CREDIT):
                if not proceed():
                    return
                wire.say(transfer(number, content))
        hold_out(proceed)


SESSIONS = 8


def fill_held_links(at: Address, proceed: Proceed) -> None:
    """Exceed the quota of durable bytes with messages in flight on held links, on 8 sessions of each connection."""
    _fill_over_quota(at, proceed, b"")


def fill_beside_coordinators(at: Address, proceed: Proceed) -> None:
    """Exceed the quota of durable bytes on connections with a coordinator link, whose links are never held."""
    _fill_over_quota(at, proceed, _COORDINATOR)


def _fill_over_quota(at: Address, proceed: Proceed, first: bytes) -> None:
    content = message("x" * 30_000, durable=True)
    with ExitStack() as stack:
        wires = [stack.enter_context(received(at.log_in("evil"))) for _ in range(4)]
        for wire in wires:
            if first:
                wire.say(first)
            for channel in range(1, SESSIONS + 1):
                wire.send(begin(channel))
                wire.say(attach(f"send {channel}", 0, f"evil.held.{channel}", sends=True), channel=channel)
        proceed()
        for wire in wires:
            wire.sock.settimeout(0.3)
            with suppress(TimeoutError):
                for number in range(CREDIT // 4):
                    for channel in range(1, SESSIONS + 1):
                        wire.say(transfer(number, content), channel=channel)
        hold_out(proceed)


QUOTA = """
[[quotas]]
who = ["evil"]
max-durable-bytes = "1MiB"
"""


def hold_out(proceed: Proceed) -> None:
    """Keep the acquired resources, and send nothing more."""
    while proceed():
        time.sleep(0.05)


def make_queues(at: Address, proceed: Proceed) -> None:
    """W10: create 10,000 queues, a thousand on each connection."""
    wires = ExitStack()
    with wires:
        for begin in range(0, 10_000, 1000):
            wire = wires.enter_context(received(at.log_in("evil")))
            for handle in range(1000):
                if not proceed():
                    return
                wire.say(attach(f"{handle}", handle, f"evil.queue.{begin + handle}", sends=True))
        hold_out(proceed)


def send_from_many(at: Address, proceed: Proceed) -> None:
    """W10: send small durable messages on 40 connections of one user, until their credit is used up."""
    content = message("x" * 100, durable=True)
    with ExitStack() as stack:
        wires = [stack.enter_context(_sender(at, f"evil.many.{number}")) for number in range(40)]
        sent = 0
        while proceed():
            many = range(sent, sent + 25)
            for wire in wires:
                wire.say(*[transfer(number, content) for number in many])
            sent += len(many)
            if sent >= CREDIT:
                raise ConnectionResetError("the first credit is used up: again, with new links")


@contextmanager
def _many_subscriptions(at: Address) -> Iterator[None]:
    """Create as many queues as one message may reach by default, each with a consumer."""
    with received(at.log_in("evil")) as wire:
        for handle in range(1000):
            ends = source("amq.topic/evil.fan"), target("me")
            subscription = performative(ATTACH, string(f"{handle}"), uint(handle), TRUE, SETTLED, NULL, *ends)
            wire.say(subscription, flow(handle, 1 << 20))
        yield


def fan_out(at: Address, proceed: Proceed) -> None:
    """Repeatedly send a message to as many queues as the default quota allows."""
    with _many_subscriptions(at):
        publisher = at.log_in("evil")
        publisher.attach("out", 0, "amq.topic/evil.fan", sends=True)
        number = 0
        while proceed():
            publisher.say(transfer(number, message("x")))
            number += 1
            publisher.until(DISPOSITION)


def fan_out_ahead(at: Address, proceed: Proceed) -> None:
    """Send messages of two frames to 1,000 queues on 20 links, until their credit is used up."""
    resumable = performative(0x29, string("amq.topic/evil.fan"), uint(2), symbol("never"))
    content = message("x", durable=True)
    with _many_subscriptions(at), received(at.log_in("evil")) as publisher:
        for handle in range(20):
            ends = source("me"), resumable if handle % 2 else target("amq.topic/evil.fan")
            link = string(f"{handle}"), uint(handle), FALSE, NULL, NULL, *ends, NULL, NULL, uint(0)
            publisher.say(performative(ATTACH, *link))
        proceed()
        publisher.sock.settimeout(0.3)
        with suppress(TimeoutError):
            for number in range(20 * MOST_AHEAD):
                begun = transfer(number, content[:5], handle=number % 20, more=True)
                publisher.say(begun, transfer(number, content[5:], handle=number % 20))
        hold_out(proceed)


def fan_out_beside_coordinator(at: Address, proceed: Proceed) -> None:
    """Send messages of 60 kB to 1,000 queues on 100 links of a connection with a coordinator link."""
    content = message("x" * 60_000)
    with _many_subscriptions(at), received(at.log_in("evil")) as publisher:
        publisher.say(_COORDINATOR)
        for handle in range(100):
            publisher.say(attach(f"{handle}", handle, "amq.topic/evil.fan", sends=True))
        proceed()
        publisher.sock.settimeout(5)
        with suppress(TimeoutError):
            for number in range(100 * CREDIT):
                if not proceed():
                    return
                publisher.say(transfer(number, content, handle=number % 100))
        hold_out(proceed)


def send_empty(at: Address, proceed: Proceed) -> None:
    """Attacks 57 and 58: send empty messages, durable and transient ones in turn, to queues without consumers."""
    contents = [message("", durable=durable) for durable in (True, False)]
    with received(at.log_in("evil")) as wire:
        number = 0
        while proceed():
            handle, place = divmod(number, CREDIT)
            if not place:
                wire.say(attach(f"send {handle}", handle, f"evil.empty.{handle % 2}", sends=True))
            wire.say(*[transfer(number + more, contents[handle % 2], handle=handle) for more in range(25)])
            number += 25


def send_to_unread(at: Address, proceed: Proceed) -> None:
    """Send messages of 60 kB to receivers that have much credit and do not read: one settled, one that browses."""
    copies = performative(0x28, string("evil.unread"), *[NULL] * 5, symbol("copy"))
    browsing = performative(ATTACH, string("b"), uint(1), TRUE, NULL, NULL, copies, target("me"))
    _send_to_unread(at, proceed, "evil.unread", browsing, flow(1, 1 << 20))


def pass_to_unread(at: Address, proceed: Proceed) -> None:
    """Send messages of 60 kB to a passthrough address, whose settled receiver does not read."""
    _send_to_unread(at, proceed, "evil.passed")


def _send_to_unread(at: Address, proceed: Proceed, address: str, *frames: bytes) -> None:
    content = message("x" * 60_000, durable=True)
    reader = at.log_in("evil")
    with received(at.log_in("evil")) as wire:
        settled = performative(ATTACH, string("r"), uint(0), TRUE, SETTLED, NULL, source(address), target("me"))
        reader.say(settled, flow(0, 1 << 20), *frames)
        wire.sock.settimeout(1.0)
        number = 0
        with suppress(TimeoutError):
            while proceed():
                handle, place = divmod(number, CREDIT)
                if not place:
                    wire.say(attach(f"send {handle}", handle, address, sends=True))
                wire.say(transfer(number, content, handle=handle))
                number += 1
        hold_out(proceed)


CASES = (
    Case("messages for 1,000 queues", fan_out, access=TOPICS, finding="W2"),
    Case("messages ahead for 1,000 queues", fan_out_ahead, access=TOPICS, finding="W2"),
    Case("messages for 1,000 queues beside a coordinator", fan_out_beside_coordinator, access=TOPICS, finding="W2"),
    Case("transient messages that fill the memory", fill_memory, 1, ("--memory-limit", "16M"), finding="D9"),
    Case("messages in flight on held links", fill_held_links, access=QUOTA, finding="W10"),
    Case(  # limited, so that queues do not hold the 64 MiB stored beyond the quota in memory
        "messages beside coordinators",
        fill_beside_coordinators,
        options=("--memory-limit", "16M"),
        access=QUOTA,
        finding="W10",
    ),
    Case("messages to receivers that do not read", send_to_unread, options=("--memory-limit", "16M"), finding="W10"),
    Case(
        "messages passed to a receiver that does not read",
        pass_to_unread,
        options=("--memory-limit", "16M", "--anycast", "evil.passed"),
        finding="W10",
    ),
    Case("empty messages", send_empty, options=("--memory-limit", "16M"), finding="57"),
    Case("10,000 queues", make_queues, finding="W10"),
    Case("messages on 40 connections", send_from_many, finding="W10"),
    Case(
        "messages faster than the quota",
        send_from_many,
        options=("--max-messages-per-second-per-user", "1000"),
        finding="W10",
    ),
)
