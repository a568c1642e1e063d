"""Peers without permission to join the network receive no information on brokers and receivers (A22)."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from cairnmq.amqp.connector_target import INTER_ROUTER
from cairnmq.broker.mesh.network import ADDRESSES, CONTROL
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.security.connectors import ANNA, connector_of, until, users_of
from tests.harness.security.wire import BEGIN, DETACH, NULL, TRANSFER, Wire, attach, flow, performative, uint, wired

from .conftest import PASSWORDS, StartBroker

LINKS = [(address, sends) for address in ADDRESSES for sends in (False, True)]
BEN = f"ben:{quote(PASSWORDS['ben'])}"
RULES = """
[[rules]]
who = ["ben"]
may = [{operations}]
on = [{names}]

[[rules]]
who = ["anna", "ben"]
may = ["connect"]

[[rules]]
who = ["anna"]
may = ["*"]
"""


def start(start_broker: StartBroker, users_file: str, operations: str, names: str) -> RunningBroker:
    """Start a broker that Anna may join, and for which Ben may do *operations* on *names*."""
    rules = RULES.format(operations=operations, names=names)
    return start_broker(acl=rules, users_file=users_file, anonymous=False, insecure_auth=True, container_id="one")


def joining(wire: Wire) -> tuple[int, list[bytes]]:
    """Attach all links between brokers; return the number of refused links and the transfers received."""
    for handle, (address, sends) in enumerate(LINKS):
        wire.say(attach(f"l{handle}", handle, address, sends=sends))
        if not sends:
            wire.say(flow(handle, 100))
    refused, told, channel = 0, [], 1
    for channel in (1, 2):  # transfers on the links arrive before the answer to the second begin
        wire.say(performative(BEGIN, NULL, uint(0), uint(9), uint(9)), channel=channel)
        code = 0
        while code != BEGIN:
            code, _, body = wire.next()
            refused += code == DETACH
            if code == DETACH:
                assert b"amqp:unauthorized-access" in body
            if code == TRANSFER:
                told.append(body)
    return refused, told


@pytest.mark.parametrize(
    ("operations", "names", "refused"),
    [
        ('"create"', '"orders"', len(LINKS)),
        ('"receive"', '"$router.*"', len(LINKS) // 2),
        ('"send"', '"$router.*"', len(LINKS) // 2),
        ('"browse", "monitor", "create", "manage"', '"$router.*"', len(LINKS)),
        ('"send", "receive"', f'"{CONTROL}"', len(LINKS) - 2),
        ('"send", "receive"', '"$router.[0-9]"', 2),
    ],
)
def test_who_may_not_be_a_broker_is_told_nothing(
    start_broker: StartBroker, users_file: str, operations: str, names: str, refused: int
) -> None:
    broker = start(start_broker, users_file, operations, names)
    with wired(broker.port) as wire:
        assert wire.scram("ben", PASSWORDS["ben"]) == 0
        assert joining(wire.open()) == (refused, [])
        assert not broker._broker.remote.network.neighbours
    with wired(broker.port) as wire:
        assert wire.scram("anna", PASSWORDS["anna"]) == 0
        found, told = joining(wire.open())
        while not told:
            told.append(wire.until(TRANSFER)[1])
        assert (found, b"one" in told[0]) == (0, True)


def test_a_broker_that_may_not_join_goes_on_alone(start_broker: StartBroker, users_file: str) -> None:
    broker = start(start_broker, users_file, '"connect"', '"*"')
    near, allowed = (
        start_broker(connect_to=(f"amqp://{who}@127.0.0.1:{broker.port}?role={INTER_ROUTER}",), container_id=name)
        for who, name in ((BEN, "two"), (ANNA, "three"))
    )
    until(lambda: connector_of(near).failures or "ben" in users_of(broker), "ben should be connected")
    until(lambda: list(allowed._broker.remote.network.topology.next_hops) == ["one"], "who may is joined")
    assert list(broker._broker.remote.network.neighbours) == ["three"]
    assert not near._broker.remote.network.topology.next_hops


def test_a_queue_is_followed_by_who_may_browse_it(start_broker: StartBroker, users_file: str) -> None:
    """A missing queue is reported as missing only to users who may browse a queue of that name."""
    broker = start(start_broker, users_file, '"browse"', '"orders.*"')
    for user, name, refused in (
        ("ben", "orders.x", "amqp:not-found"),
        ("ben", "others", "amqp:unauthorized-access"),
        ("anna", "others", "amqp:not-found"),
    ):
        with wired(broker.port) as wire:
            assert wire.scram(user, PASSWORDS[user]) == 0
            wire.open().say(attach("l", 0, f"$stream/{name}", sends=False))
            assert refused.encode() in wire.until(DETACH)[1]
