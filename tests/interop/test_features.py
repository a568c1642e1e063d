"""Tests of further client features with proton's C++ library, rhea and rhea-promise.

The programs of `test_interop.py` also have these commands:

    HOST:PORT take ADDRESS plain|copy|durable [SELECTOR]     prints `took SUBJECT ...` after a drain
    HOST:PORT echo ADDRESS TO COUNT                          prints `echoed COUNT`: messages decoded and encoded
    HOST:PORT types ADDRESS                                  prints each message sent in hex, then `sent COUNT`
    HOST:PORT reconnect ADDRESS                              prints `open N` at each attach, then `received SUBJECT`

Only the C++ program has `echo`; only that for rhea has `types` and `reconnect`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from proton import Message

from cairnmq.tools.soak.servers import free_port
from tests.harness.clients.content_values import VALUES
from tests.harness.clients.peers import Peer
from tests.harness.process import BrokerProcess, broker

from .programs import HERE, TIMEOUT_S, Program, run


def put(peer: Peer, address: str, *subjects: str, colour: str = "red") -> None:
    messages = [Message(subject=subject, durable=True, properties={"colour": colour}) for subject in subjects]
    peer.send(peer.sender(address), *messages)


def test_a_drain_ends_when_all_is_there(program: Program, running: BrokerProcess, peer: Peer, address: str) -> None:
    # B2.3, B2.5
    assert run(program, running, "take", address, "plain") == "took"
    put(peer, address, "a", "b", "c")
    assert run(program, running, "take", address, "plain") == "took a b c"
    assert peer.drain(peer.receiver(address), 10) == []


def test_a_selector_selects(program: Program, running: BrokerProcess, peer: Peer, address: str) -> None:
    # B2.3, B2.4
    put(peer, address, "a", "b")
    put(peer, address, "c", "d", colour="green")
    assert run(program, running, "take", address, "plain", "colour = 'green'") == "took c d"
    assert run(program, running, "take", address, "plain", "colour = 'green'") == "took"
    assert run(program, running, "take", address, "plain") == "took a b"


def test_a_selector_that_is_none(program: Program, running: BrokerProcess, address: str) -> None:
    # B2.10: the error is reported to the client
    assert run(program, running, "take", address, "plain", "colour = ") == "refused: amqp:invalid-field"


def test_a_browser_leaves_all_where_it_is(program: Program, running: BrokerProcess, peer: Peer, address: str) -> None:
    # B2.3, B2.5: the distribution mode
    put(peer, address, "a", "b")
    for _ in range(2):
        assert run(program, running, "take", address, "copy") == "took a b"
    assert len(peer.drain(peer.receiver(address), 10)) == 2


def test_a_durable_subscription(
    program: Program, running: BrokerProcess, peer: Peer, request: pytest.FixtureRequest
) -> None:
    # B2.3
    topic = f"topic://{request.node.name.replace('[', '.').replace(']', '')}"
    put(peer, topic, "before")
    assert run(program, running, "take", topic, "durable") == "took"
    put(peer, topic, "a", "b")
    assert run(program, running, "take", topic, "durable") == "took a b"
    assert run(program, running, "take", topic, "durable") == "took"


def test_all_types_pass_two_libraries(cpp: Program, running: BrokerProcess, peer: Peer, address: str) -> None:
    # B2.9: proton's Python library encodes, its C++ library decodes and encodes again
    sent = [Message(subject=str(n), body=value, durable=True) for n, value in enumerate(VALUES)]
    peer.send(peer.sender(address), *sent)
    assert run(cpp, running, "echo", address, f"{address}-echo", len(sent)) == f"echoed {len(sent)}"
    received = peer.take(peer.receiver(f"{address}-echo", len(sent)), len(sent))
    assert [message.body for message in received] == VALUES


@pytest.mark.interop
def test_all_types_of_rhea_come_byte_for_byte(
    cpp: Program, rhea: Program, running: BrokerProcess, peer: Peer, address: str
) -> None:
    # B2.9: rhea encodes, C++ decodes and encodes again, and Python decodes equal values from both
    *encoded, said = run(rhea, running, "types", address).splitlines()
    assert said == f"sent {len(encoded)}"
    contents = [bytes.fromhex(line) for line in encoded]
    browsed = peer.take(peer.receiver(address, len(contents), copy=True), len(contents))
    assert [message.content for message in browsed] == contents
    assert run(cpp, running, "echo", address, f"{address}-echo", len(contents)) == f"echoed {len(contents)}"
    for echoed in peer.take(peer.receiver(f"{address}-echo", len(contents)), len(contents)):
        before = next(message for message in browsed if message.message.subject == echoed.message.subject)
        assert repr(echoed.body) == repr(before.body), before.message.subject
        told, meant = ((one.message.properties or {}).get("value") for one in (echoed, before))
        assert (type(told), told) == (type(meant), meant), before.message.subject


@pytest.mark.interop
def test_it_connects_again(rhea: Program, tmp_path: Path) -> None:
    # B2.3
    port = str(free_port())
    command, environment = rhea
    client = [*command, f"127.0.0.1:{port}", "reconnect", "q"]
    with broker(tmp_path / "store", "--port", port) as first:
        program = subprocess.Popen(client, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
        assert program.stdout is not None
        assert program.stdout.readline() == "open 1\n"
        assert first.stop() == 0
    with broker(tmp_path / "store", "--port", port) as second:
        assert program.stdout.readline() == "open 2\n"
        peer = Peer(second.port)
        put(peer, "q", "again")
        assert program.communicate(timeout=TIMEOUT_S)[0] == "received again\n"
        peer.close()


@pytest.mark.interop
def test_rhea_promise(rhea: Program, running: BrokerProcess, address: str) -> None:
    # B2.3
    (node, _), environment = rhea
    program = [node, str(HERE / "promise.js")], environment
    assert run(program, running, address, 300) == "sent and received 300"
