"""Clients of a user with quotas, and the account of that user."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from proton import Message

from cairnmq.amqp.codec.decode import read_items
from cairnmq.amqp.codec.primitives import descriptor
from cairnmq.broker.users.user_accounts import UserAccount
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.security.wire import (
    ATTACH,
    DEADLINE_S,
    DISPOSITION,
    TRANSFER,
    TRUE,
    Wire,
    attach,
    flow,
    performative,
    transfer,
    uint,
    wired,
)
from tests.security.conftest import PASSWORDS

RULES = """
[[rules]]
who = ["*"]
may = ["*"]
"""


BODY_BYTES = 1000


def quota(**limits: object) -> str:
    """Return access rules with a quota of the user `anna`."""
    lines = [f"{name.replace('_', '-')} = {value!r}" for name, value in limits.items()]
    return "\n".join([RULES, "[[quotas]]", 'who = ["anna"]', *lines, ""])


@contextmanager
def logged_in(running: RunningBroker, user: str) -> Iterator[Wire]:
    with wired(running.port) as wire:
        assert wire.scram(user, PASSWORDS[user]) == 0
        yield wire.open()


def durable(body: str = "x" * BODY_BYTES) -> bytes:
    return bytes(Message(body=body, durable=True).encode())


def outcomes(wire: Wire, count: int) -> list[bool]:
    """Wait for *count* outcomes; return whether each message was accepted, otherwise it was rejected."""
    found: list[bool] = []
    while len(found) < count:
        _, body = wire.until(DISPOSITION)
        fields = read_items(body, descriptor(body, 0)[1])
        first, last = fields[1], fields[2] if len(fields) > 2 and fields[2] is not None else fields[1]
        assert isinstance(first, int)
        assert isinstance(last, int)
        found += [b"\x00\x53\x24" in body] * (last - first + 1)
    return found


def attach_sender(wire: Wire, address: str, handle: int = 0) -> None:
    wire.say(attach(f"send to {address}", handle, address, sends=True))
    wire.until(ATTACH)


def send(wire: Wire, numbers: range, content: bytes, handle: int = 0) -> None:
    wire.say(*[transfer(number, content, handle=handle) for number in numbers])


def take(wire: Wire, address: str, count: int, handle: int = 9) -> None:
    """Receive *count* messages on a new link, and accept them."""
    wire.say(attach(f"take from {address}", handle, address, sends=False), flow(handle, count))
    for _ in range(count):
        _, body = wire.until(TRANSFER)
        number = read_items(body, descriptor(body, 0)[1])[1]
        assert isinstance(number, int)
        accepted = performative(0x24)
        wire.say(performative(DISPOSITION, TRUE, uint(number), uint(number), TRUE, accepted))


def account_of(running: RunningBroker, user: str) -> UserAccount:
    return running._broker.core.users.by_name[user]


def wait_until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
