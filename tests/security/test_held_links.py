"""Tests of held links (W10): their messages use bounded memory, and connections that are not read stay open."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from cairnmq.amqp.links.events import Limits
from cairnmq.broker_plugin.run import RunningBroker
from cairnmq.router.connections import terminal
from tests.harness.security.quotas import (
    account_of,
    attach_sender,
    durable,
    logged_in,
    outcomes,
    quota,
    send,
    take,
    wait_until,
)
from tests.harness.security.wire import CLOSE, Wire, attach

from .conftest import StartBroker

IDLE_MS = 800
COUNT, SIZE = 1000, 30_000
"""Messages that exceed the quota, the messages held in memory, and the socket buffers together."""


@pytest.fixture
def running(start_broker: StartBroker, users_file: str) -> RunningBroker:
    limits = Limits(idle_timeout_ms=IDLE_MS)
    acl = quota(max_durable_bytes=200_000)
    return start_broker(acl=acl, users_file=users_file, anonymous=False, insecure_auth=True, limits=limits)


@contextmanager
def sending(wire: Wire) -> Iterator[threading.Thread]:
    """Send all messages in a separate thread without waiting."""

    def run() -> None:
        with suppress(OSError):
            send(wire, range(COUNT), durable("x" * SIZE))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        thread.join()


def passed(seconds: float) -> Callable[[], bool]:
    end_s = time.monotonic() + seconds
    return lambda: time.monotonic() > end_s


def is_blocked(running: RunningBroker) -> bool:
    return "anna" in running._broker.core.users.by_name and account_of(running, "anna").is_blocked


def test_connection_whose_links_are_held_is_not_read_and_survives(running: RunningBroker) -> None:
    with logged_in(running, "anna") as anna:
        attach_sender(anna, "a")
        with sending(anna) as thread:
            wait_until(lambda: is_blocked(running))
            wait_until(passed(3 * IDLE_MS / 1000))
            assert thread.is_alive(), "all that the client sent was read"
            assert account_of(running, "anna").connections == 1
            with logged_in(running, "ben") as ben:
                take(ben, "a", COUNT)
        assert all(outcomes(anna, COUNT))


def test_client_that_goes_while_it_is_not_read_is_noticed(running: RunningBroker) -> None:
    with logged_in(running, "ben") as ben:
        ben.attach("keep", 0, "b", sends=True)
        with logged_in(running, "anna") as anna:
            attach_sender(anna, "a")
            with sending(anna) as thread:
                wait_until(lambda: is_blocked(running))
                wait_until(passed(2 * IDLE_MS / 1000))
                assert thread.is_alive()
                anna.sock.shutdown(2)
        wait_until(lambda: account_of(running, "anna").connections == 0)


def test_connection_that_receives_is_read_on_up_to_a_limit(
    running: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that also receives is read up to a limit, as it may send outcomes that release messages."""
    monkeypatch.setattr(terminal, "MOST_HELD_BYTES", 100_000)
    monkeypatch.setattr(terminal, "MOST_HELD_BESIDE_BYTES", 8 << 20)
    with logged_in(running, "anna") as anna:
        attach_sender(anna, "a")
        anna.say(attach("take", 9, "b", sends=False))
        with sending(anna):
            while True:
                code, _, body = anna.next()
                if code == CLOSE:
                    break
        assert b"amqp:resource-limit-exceeded" in body
        assert b"receive on another one" in body
