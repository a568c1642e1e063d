"""Tests that SASL frames forbidden by the AMQP 1.0 specification close the connection, for servers and clients.

Each case quotes the specification; field definitions are quoted from the specification's XML.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cairnmq.amqp.codec import encode
from cairnmq.amqp.codec.types import Array, Symbol, Ubyte, Uint
from cairnmq.amqp.links.events import Limits
from cairnmq.amqp.sasl.client import Identity
from cairnmq.amqp.sasl.client_handshake import ClientHandshake
from cairnmq.amqp.sasl.frames import SASL_HEADER
from cairnmq.amqp.sasl.handshake import Stage
from cairnmq.base.accounts import users
from cairnmq.base.accounts.credentials import FEWEST_ITERATIONS, make
from cairnmq.broker_plugin.options import BrokerOptions, RouterOptions, StoreOptions
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.router import raw
from tests.harness.router.forbidden_frames import DOUBLE, Rule, Witness
from tests.harness.router.raw import AMQP, symbols

FIELDS: dict[str, tuple[int, str, list[str]]] = {
    "mechanisms": (0x40, "5.3.3.1", [
        '<field name="sasl-server-mechanisms" type="symbol" multiple="true" mandatory="true"/>',
    ]),
    "init": (0x41, "5.3.3.2", [
        '<field name="mechanism" type="symbol" mandatory="true"/>',
        '<field name="initial-response" type="binary"/>',
        '<field name="hostname" type="string"/>',
    ]),
    "challenge": (0x42, "5.3.3.3", ['<field name="challenge" type="binary" mandatory="true"/>']),
    "response": (0x43, "5.3.3.4", ['<field name="response" type="binary" mandatory="true"/>']),
    "outcome": (0x44, "5.3.3.5", [
        '<field name="code" type="sasl-code" mandatory="true"/>',
        '<field name="additional-data" type="binary"/>',
    ]),
}  # fmt: skip
"""Code, section and ordered field definitions of each SASL frame."""
LOGIN = b"\0anna\0one stone"
VALID: dict[str, list[Any]] = {
    "mechanisms": [symbols("PLAIN", "ANONYMOUS")],
    "init": [Symbol("PLAIN"), LOGIN, "host"],
    "challenge": [b"r=nonce,s=QSXCR+Q6sek8bf92,i=4096"],
    "response": [LOGIN],
    "outcome": [Ubyte(0), b"more"],
}
LIST = Rule("1.4", "The AMQP type system's composite types are encoded as a described list: one element per field.")
ORDER = "5.3.2", "the client answers the server's sasl-mechanisms with sasl-init, its challenges with sasl-response"
LET_IN = encode.described(0x44, encode.value([Ubyte(0)]))


class Case(NamedTuple):
    """A forbidden SASL frame and the valid frames before the forbidden one."""

    name: str
    rule: Rule
    before: tuple[bytes, ...]
    said: bytes


def sasl(name: str, *fields: Any) -> bytes:
    """Return a complete SASL frame."""
    body = encode.described(FIELDS[name][0], encode.value(list(fields)))
    return (8 + len(body)).to_bytes(4) + b"\2\1\0\0" + body


def forbidden(name: str, *before: bytes) -> Iterator[Case]:
    """Yield cases with each mandatory field missing, each field of a wrong type, and an additional field."""
    _, section, definitions = FIELDS[name]
    for number, definition in enumerate(definitions):
        field, rule, valid = definition.split('"')[1], Rule(section, definition), VALID[name]
        wrong = [*valid[:number], DOUBLE, *valid[number + 1 :]]
        yield Case(f"{name} with {field} of a wrong type", rule, before, sasl(name, *wrong))
        if 'mandatory="true"' in definition:
            yield Case(f"{name} without {field}", rule, before, sasl(name, None, *valid[1:]))
            yield Case(f"{name} without any field", rule, before, sasl(name))
    yield Case(f"{name} with a field that it does not have", LIST, before, sasl(name, *VALID[name], None))


def misplaced(when: str, names: tuple[str, ...], *before: bytes) -> Iterator[Case]:
    """Yield cases with valid frames that the peer does not expect."""
    for name in names:
        yield Case(f"{name} {when}", Rule(*ORDER), before, sasl(name, *VALID[name]))


BEGUN = sasl("init", Symbol("PLAIN"))
"""An init without an initial response, which the broker answers with an empty challenge."""
MECHANISM = Rule("5.3.3.2", "If the selected mechanism is not supported by the receiving peer, it MUST close the "
                 "connection with the authentication-failure close-code.")  # fmt: skip
OF_CLIENTS = [
    *forbidden("init"),
    *forbidden("response", BEGUN),
    *misplaced("before the init", ("mechanisms", "challenge", "response", "outcome")),
    *misplaced("in place of a response", ("mechanisms", "init", "challenge", "outcome"), BEGUN),
    Case("init with a mechanism that is a string", Rule("5.3.3.2", FIELDS["init"][2][0]), (),
         sasl("init", "PLAIN", LOGIN)),
    Case("init with a mechanism that was not offered", MECHANISM, (), sasl("init", Symbol("NONE-SUCH"), LOGIN)),
    Case("a frame of AMQP", Rule(*ORDER), (), raw.opening()),
]  # fmt: skip
OFFER = sasl("mechanisms", *VALID["mechanisms"])
SCRAM = sasl("mechanisms", Symbol("SCRAM-SHA-256"))
CODE = Rule("5.3.3.6", '<choice name="sys-temp" value="4"/>')
OF_SERVERS = [
    *forbidden("mechanisms"),
    *forbidden("challenge", SCRAM),
    *forbidden("outcome", OFFER),
    *misplaced("before the mechanisms", ("init", "challenge", "response", "outcome")),
    *misplaced("in place of an outcome", ("mechanisms", "init", "challenge", "response"), OFFER),
    *[Case(f"mechanisms that are {text}", Rule("5.3.3.1", FIELDS["mechanisms"][2][0]), (), sasl("mechanisms", value))
      for text, value in (("a map", {Symbol("PLAIN"): 1}), ("a list", [Symbol("PLAIN")]), ("a string", "PLAIN"),
                          ("an array of strings", Array(0xB1, ["PLAIN"])))],
    *[Case(f"outcome with a code that is {text}", CODE, (OFFER,), sasl("outcome", value))
      for text, value in (("5", Ubyte(5)), ("a boolean", False), ("a uint", Uint(0)))],
]  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    path: Path = tmp_path_factory.mktemp("users") / "users"
    users.change(str(path), lambda accounts: accounts.update(anna=make("one stone", FEWEST_ITERATIONS)))
    router = RouterOptions(port=0, limits=Limits(), users_file=str(path), anonymous=True, insecure_auth=True)
    running = RunningBroker(BrokerOptions("", StoreOptions(), router, ("*",), store_kind="memory"))
    yield running
    failure = running.failure
    running.stop()
    assert failure is None


def answers(port: int, *said: bytes) -> bytes:
    """Send SASL frames; return all bytes that the broker sends until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=raw.DEADLINE_S) as sock:
        sock.sendall(SASL_HEADER + b"".join(said))
        received = b""
        while data := sock.recv(4096):
            received += data
        return received


@pytest.mark.parametrize("case", OF_CLIENTS, ids=[case.name for case in OF_CLIENTS])
def test_forbidden_frame_of_a_client_ends_the_connection(broker: RunningBroker, witness: Witness, case: Case) -> None:
    received = answers(broker.port, *case.before, case.said)
    assert received.startswith(SASL_HEADER)
    assert AMQP not in received, case.rule
    assert LET_IN not in received, case.rule
    witness.still_sends()


@pytest.mark.parametrize("said", [(sasl("init", *VALID["init"]),), (BEGUN, sasl("response", LOGIN))],
                         ids=["initial response", "response"])  # fmt: skip
def test_valid_frames_of_a_client_are_let_in(broker: RunningBroker, said: tuple[bytes, ...]) -> None:
    received = answers(broker.port, *said, AMQP, raw.opening(), raw.frame(raw.CLOSE))
    assert LET_IN in received
    assert AMQP in received


def heard_by_a_client(case: Case, identity: Identity) -> ClientHandshake:
    handshake = ClientHandshake(identity, "host", secure=False)
    handshake.feed(SASL_HEADER)
    for said in case.before:
        handshake.feed(said)
        assert handshake.stage is Stage.SASL
    assert handshake.feed(case.said) == (b"", b"")
    return handshake


@pytest.mark.parametrize("case", OF_SERVERS, ids=[case.name for case in OF_SERVERS])
def test_forbidden_frame_of_a_server_ends_the_connection(case: Case) -> None:
    """On a connection that the broker opens, a forbidden frame of the server ends the handshake with a reason."""
    user = Identity("anna", "one stone", insecure=True) if SCRAM in case.before else Identity()
    handshake = heard_by_a_client(case, user)
    assert handshake.stage is Stage.REFUSED, case.rule
    assert handshake.reason


def test_valid_frames_of_a_server_let_the_broker_in() -> None:
    done = heard_by_a_client(Case("", Rule(*ORDER), (OFFER,), sasl("outcome", *VALID["outcome"])), Identity())
    assert done.stage is Stage.OPEN
