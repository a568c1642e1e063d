"""Tests of the anonymous terminus, the termini of attach responses, and the declarations of an open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from proton import Message

from cairnmq.amqp.codec.types import Array, Described, Symbol, Ubyte, Uint, Ulong
from cairnmq.amqp.links.events import Limits
from cairnmq.broker_plugin.options import BrokerOptions, RouterOptions, StoreOptions
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.router import raw
from tests.harness.router.raw import Raw, begin, frame, opening, symbols, transfer

REJECTED, ACCEPTED = "amqp:rejected:list", "amqp:accepted:list"


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    router = RouterOptions(port=0, limits=Limits())
    running = RunningBroker(BrokerOptions("", StoreOptions(), router, ("known-*",), store_kind="memory"))
    yield running
    failure = running.failure
    running.stop()
    assert failure is None


def relay(port: int, outcomes: Array | None) -> Raw:
    """Return a connection with a link to the anonymous terminus."""
    source = Described(Ulong(raw.SOURCE), ["here", *[None] * 8, outcomes])
    target = Described(Ulong(raw.TARGET), [])
    said = frame(raw.ATTACH, "relay", Uint(0), False, Ubyte(2), Ubyte(0), source, target, None, None, Uint(0))
    one = Raw(port, opening(), begin(), said)
    while len(one.until("flow").fields) < 7:
        pass
    return one


def addressed(address: str) -> bytes:
    return bytes(Message(address=address, body="x").encode())


def info_of(error: Any) -> Any:
    return {str(key): value for key, value in error.value[2].items()}


@pytest.mark.parametrize("outcomes", [None, symbols(REJECTED, ACCEPTED)], ids=["any", "listed"])
def test_message_to_an_unknown_address_is_rejected_with_its_tag(
    broker: RunningBroker, outcomes: Array | None
) -> None:  # D3
    """Anonymous Terminus 2.2.2: an unsettled message is rejected if the source supports the outcome `rejected`."""
    with relay(broker.port, outcomes) as one:
        one.say(transfer(0, 0, addressed("nowhere")), transfer(0, 1, addressed("known-q")))
        states: dict[int, Any] = {}
        while len(states) < 2:
            fields = one.until("disposition").fields
            states[int(fields[1])] = fields[4]
        assert states[0].descriptor == 0x25
        error = states[0].value[0]
        assert error.value[0] == "amqp:not-found"
        assert info_of(error) == {"delivery-tag": (0).to_bytes(4)}
        assert states[1].descriptor == 0x24, "the link goes on"


@pytest.mark.parametrize(
    ("outcomes", "settled"),
    [(None, True), (symbols(ACCEPTED), False), (symbols(ACCEPTED, "amqp:released:list"), False)],
    ids=["settled", "accepted only", "not rejected"],
)
def test_message_that_can_not_be_rejected_detaches_its_link(
    broker: RunningBroker, outcomes: Array | None, settled: bool
) -> None:  # D3
    """Anonymous Terminus 2.2.2: the link is detached with the delivery-tag of the message in the error info."""
    with relay(broker.port, outcomes) as one:
        one.say(transfer(0, 0, addressed("known-q"), settled=settled))
        one.say(transfer(0, 1, addressed("nowhere"), settled=settled))
        detached = one.until("detach")
        assert detached.error == "amqp:not-found"
        assert info_of(detached.fields[2]) == {"delivery-tag": (1).to_bytes(4)}


@pytest.mark.parametrize("source", [["here"], [], [None, Uint(1)]], ids=["address", "empty", "durable"])
def test_answer_to_a_sender_has_its_source(broker: RunningBroker, source: list[Any]) -> None:  # D7
    """2.7.3: the answering attach repeats the source and the target of the sender."""
    ends = Described(Ulong(raw.SOURCE), source), Described(Ulong(raw.TARGET), ["known-q"])
    said = frame(raw.ATTACH, "s", Uint(0), False, Ubyte(2), Ubyte(0), *ends, None, None, Uint(0))
    with Raw(broker.port, opening(), begin(), said) as one:
        answered = one.until("attach").fields
        assert answered[5] is not None
        assert answered[5].value[0] == (source[0] if source else None)
        assert answered[6].value[0] == "known-q"


def test_answer_to_a_receiver_has_its_target(broker: RunningBroker) -> None:  # D7
    ends = Described(Ulong(raw.SOURCE), ["known-q"]), Described(Ulong(raw.TARGET), ["there"])
    said = frame(raw.ATTACH, "r", Uint(0), True, Ubyte(2), Ubyte(0), *ends)
    with Raw(broker.port, opening(), begin(), said) as one:
        assert one.until("attach").fields[6].value[0] == "there"


def test_sole_connection_declares_weak_detection(broker: RunningBroker) -> None:  # D6
    """Sole connection extension 1.0: the open declares weak detection, as strong detection is the default."""
    desired = frame(raw.OPEN, "only", *[None] * 7, symbols("sole-connection-for-container"))
    with Raw(broker.port, desired) as one:
        fields = one.until("open").fields
        properties = {str(key): value for key, value in fields[9].items()}
        assert properties["sole-connection-detection-policy"] == 1
        assert Symbol("sole-connection-for-container") in fields[7].items
        with Raw(broker.port, desired) as second:
            assert second.until("close").error == "amqp:invalid-field"


def test_attach_without_a_target_is_refused(broker: RunningBroker) -> None:  # P7
    """2.6.3: a link without a terminus is detached, with the error."""
    source = Described(Ulong(raw.SOURCE), ["here"])
    said = frame(raw.ATTACH, "s", Uint(0), False, Ubyte(2), Ubyte(0), source, None, None, None, Uint(0))
    with Raw(broker.port, opening(), begin(), said) as one:
        assert one.until("attach").fields[6] is None
        assert one.until("detach").error == "amqp:invalid-field"


@pytest.mark.parametrize("receives", [True, False], ids=["source", "target"])
@pytest.mark.parametrize(("policy", "timeout"), [("connection-close", 0), ("never", 0), ("session-end", 2)])
def test_answer_for_a_dynamic_node_states_the_expiry_in_force(
    broker: RunningBroker, policy: str, timeout: int, receives: bool
) -> None:  # P7
    """3.5.3: a dynamic node goes with its link, whatever expiry was asked for."""
    node = [None, None, Symbol(policy), Uint(timeout), True]
    ends = (
        Described(Ulong(raw.SOURCE), node if receives else []),
        Described(Ulong(raw.TARGET), [] if receives else node),
    )
    count = [] if receives else [None, None, Uint(0)]
    said = frame(raw.ATTACH, "d", Uint(0), receives, Ubyte(2), Ubyte(0), *ends, *count)
    with Raw(broker.port, opening(), begin(), said) as one:
        answered = one.until("attach").fields[5 if receives else 6].value
        assert str(answered[0]).startswith("dynamic-")
        assert str(answered[2]) == "link-detach"
        assert not answered[3]


def test_answer_for_a_subscription_that_lasts_has_no_expiry(broker: RunningBroker) -> None:  # P7
    source = Described(Ulong(raw.SOURCE), ["amq.topic/a", Uint(1), Symbol("connection-close"), Uint(2)])
    ends = source, Described(Ulong(raw.TARGET), [])
    said = frame(raw.ATTACH, "d", Uint(0), True, Ubyte(2), Ubyte(0), *ends)
    with Raw(broker.port, opening("lasting"), begin(), said) as one:
        answered = one.until("attach").fields[5].value
        assert str(answered[2]) == "never"
        assert not answered[3]
