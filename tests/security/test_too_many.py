"""Tests of more clients than `--max-connections`: excess clients receive a reason, at bounded cost."""

from __future__ import annotations

import time

import pytest

from cairnmq.router.connections import terminal
from tests.harness.security.flood_attacks import begin
from tests.harness.security.wire import (
    AMQP,
    ATTACH,
    BEGIN,
    CLOSE,
    DEADLINE_S,
    NULL,
    OPEN,
    Wire,
    attach,
    frame,
    performative,
    string,
    uint,
    wired,
)

from .conftest import PASSWORDS, Certificates, StartBroker

MOST = 2


def told(wire: Wire, user: str) -> bytes:
    """Log in, open and attach at once; return the close frame, or `b""` if the link is attached."""
    if user:
        assert wire.scram(user, PASSWORDS[user]) == 0
    wire.send(AMQP)
    wire.say(performative(OPEN, string("one too many")), performative(BEGIN, NULL, uint(0), uint(99), uint(99)))
    wire.say(attach("l", 0, "orders", sends=True))
    assert wire.read(8) == AMQP
    while True:
        code, _, body = wire.next()
        if code == CLOSE:
            return body
        if code == ATTACH:
            return b""


def ended(wire: Wire) -> bool:
    """Return whether the broker closes the socket without sending data."""
    try:
        return wire.sock.recv(1) == b""
    except ConnectionError:
        return True


def test_connection_that_begins_too_many_sessions_in_a_second_is_closed(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:  # W6
    monkeypatch.setattr(terminal, "MOST_BEGINS_PER_S", 20)
    with wired(start_broker().port) as wire:
        wire.open()
        session = begin(1), frame(performative(0x17), channel=1)
        deadline_s = time.monotonic() + DEADLINE_S
        code = BEGIN
        while code != CLOSE:
            assert time.monotonic() < deadline_s
            wire.send(b"".join(session))
            code, _, body = wire.next()
        assert b"more than 20 sessions begun in a second" in body


@pytest.mark.parametrize("user", ["", "anna"])
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_one_too_many_is_told_the_limit(
    start_broker: StartBroker, users_file: str, certificates: Certificates, secure: bool, user: str
) -> None:
    broker = start_broker(
        max_connections=MOST, tls=certificates.options(), anonymous=not user, users_file=users_file if user else ""
    )
    context, port = (certificates.client(), broker.tls_port) if secure else (None, broker.port)
    held = [Wire(port, context=context) for _ in range(MOST)]
    for wire in held:
        assert told(wire, user) == b""
    for _ in range(3):
        with wired(port, context=context) as wire:
            reason = told(wire, user)
            assert b"amqp:resource-limit-exceeded" in reason
            assert b"--max-connections" in reason
            assert ended(wire)
    held.pop().sock.close()
    deadline_s = time.monotonic() + DEADLINE_S
    while True:  # the broker may detect the closed connection later
        with wired(port, context=context) as wire:
            if not told(wire, user):
                break
        assert time.monotonic() < deadline_s
    held.pop().sock.close()


def test_those_who_say_nothing_keep_nobody_out(start_broker: StartBroker, users_file: str) -> None:
    """W5: at the limit of unauthenticated connections, the oldest is closed, so that the next client can log in."""
    crowded = start_broker(max_connections=MOST, max_unauthenticated=5, anonymous=False, users_file=users_file)
    silent = [Wire(crowded.port) for _ in range(40)]
    with wired(crowded.port) as wire:
        assert told(wire, "anna") == b""
        for one in silent[:35]:
            assert ended(one)
        for _ in range(10):
            silent.append(Wire(crowded.port))
        with wired(crowded.port) as other:  # authenticated connections stay open and do not count
            assert told(other, "anna") == b""
            assert b"--max-connections" in told_by_next(crowded.port)
    for one in silent:
        one.sock.close()


def told_by_next(port: int) -> bytes:
    with wired(port) as wire:
        return told(wire, "anna")


def test_places_are_kept_for_managers(start_broker: StartBroker, users_file: str) -> None:
    """W5: users with permission to manage everything can connect when the limit refuses other users."""
    rules = """
        [[rules]]
        who = ["anna"]
        may = ["*"]
        on = ["orders"]
        [[rules]]
        who = ["ben"]
        may = ["*"]
        """
    crowded = start_broker(max_connections=MOST, anonymous=False, users_file=users_file, acl=rules)
    held = [Wire(crowded.port) for _ in range(MOST)]
    for wire in held:
        assert told(wire, "anna") == b""
    assert b"--max-connections" in told_by_next(crowded.port)
    with wired(crowded.port) as wire:
        assert told(wire, "ben") == b""
    for wire in held:
        wire.sock.close()


def test_an_address_opens_a_bounded_number_in_a_second(start_broker: StartBroker) -> None:
    """W5: connections beyond the rate are closed at once, and later connections are accepted."""
    broker = start_broker(connection_rate=2)
    wires = [Wire(broker.port) for _ in range(30)]
    for wire in wires[:10]:
        wire.open()
    assert sum(ended(wire) for wire in wires[20:]) >= 5, "ten are the burst, and two a second"
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        try:
            with wired(broker.port) as wire:
                wire.open()
            break
        except (OSError, EOFError):
            assert time.monotonic() < deadline_s
    for wire in wires:
        wire.sock.close()
