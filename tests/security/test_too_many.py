"""More clients than `--max-connections`: those beyond hear why, and so many of them that it costs little."""

from __future__ import annotations

import time

import pytest

from cairnmq.router.router import MOST_TURNED_AWAY

from .conftest import PASSWORDS, Certificates, StartBroker
from .wire import AMQP, ATTACH, BEGIN, CLOSE, DEADLINE_S, NULL, OPEN, Wire, attach, performative, string, uint, wired

MOST = 2


def told(wire: Wire, user: str) -> bytes:
    """The close that a client gets who logs in, opens and wants a link at once; empty if it gets that."""
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
    """Whether the broker closes the socket without a word."""
    try:
        return wire.sock.recv(1) == b""
    except ConnectionError:
        return True


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
            why = told(wire, user)
            assert b"amqp:resource-limit-exceeded" in why
            assert b"--max-connections" in why
            assert ended(wire)
    held.pop().sock.close()
    deadline_s = time.monotonic() + DEADLINE_S
    while True:  # the broker notices in its own time
        with wired(port, context=context) as wire:
            if not told(wire, user):
                break
        assert time.monotonic() < deadline_s
    held.pop().sock.close()


def test_only_so_many_are_told(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who takes their places, and says nothing, has the others closed without a word."""
    monkeypatch.setattr("cairnmq.router.terminal.OPEN_TIMEOUT_S", 600.0)  # however long it takes to be that many
    crowded = start_broker(max_connections=MOST)
    held = [Wire(crowded.port) for _ in range(MOST + MOST_TURNED_AWAY)]
    for wire in held[:MOST]:
        wire.open()
    with wired(crowded.port) as wire:
        assert ended(wire)
    held[0].attach("out", 0, "orders", sends=True)  # those that are in are served
    for wire in held:
        wire.sock.close()
