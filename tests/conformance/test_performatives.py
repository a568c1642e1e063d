"""Tests that frames forbidden by the AMQP 1.0 specification close only the link, session or connection they concern.

Each case quotes the specification; field definitions are quoted from the specification's XML. One broker
serves all cases; another session of the connection and another connection stay usable after each.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from cairnmq.amqp.codec.types import Described, Symbol, Ubyte, Uint, Ulong
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.router import raw
from tests.harness.router.forbidden_frames import (
    BODY,
    CONNECTION,
    DOUBLE,
    FIELDS,
    INVALID,
    LINK,
    SESSION,
    Case,
    Rule,
    Witness,
    check_scope,
    connected,
    fields_of,
    performative,
    scope_of,
)  # fmt: skip
from tests.harness.router.raw import Raw, attach, begin, frame, opening, transfer

UTF8 = Rule("1.6.20", "up to 2^8 - 1 octets worth of UTF-8 Unicode (with no byte order mark)")


def with_invalid_octets(encoded: bytes) -> bytes:
    """Return *encoded* with invalid octets in its string of two question marks."""
    assert b"\xa1\x02??" in encoded
    return encoded.replace(b"\xa1\x02??", b"\xa1\x02\xff\xfe")


def field_cases() -> Iterator[Case]:
    """Yield cases with each mandatory field missing, each field of a wrong type, and each string of invalid octets."""
    for name, (section, _) in FIELDS.items():
        channel = 7 if name == "begin" else 0
        for field, kind, mandatory in fields_of(name):
            rule = Rule(section, f'<field name="{field}" type="{kind}"' + ' mandatory="true"' * mandatory)
            wrong = (performative(name, {field: DOUBLE}, channel=channel),)
            yield Case(f"{name} with {field} of a wrong type", rule, wrong, scope_of(name, field), INVALID)
            if mandatory:
                wrong = (performative(name, {field: None}, channel=channel),)
                yield Case(f"{name} without {field}", rule, wrong, scope_of(name, field), INVALID)
            if kind == "string":
                wrong = (with_invalid_octets(performative(name, {field: "??"})),)
                yield Case(f"{name} with {field} that is not UTF-8", UTF8, wrong, scope_of(name, field), INVALID)


def terminus_case(name: str, section: str, sentence: str, descriptor: int, *fields: Any) -> Case:
    ends = {"source": Described(Ulong(descriptor), list(fields))}
    if descriptor != raw.SOURCE:
        ends = {"target": ends["source"]}
    return Case(name, Rule(section, sentence), (performative("attach", ends),), LINK, INVALID)


UNATTACHED = Rule("2.7.4", "If set to a handle that is not currently associated with an attached link, the recipient "
                  "MUST respond by ending the session with an unattached-handle session error.")  # fmt: skip
TAG = Rule("2.7.5", "This field MUST be specified for the first transfer of a multi-transfer message and can only be "
           "omitted for continuation transfers.")  # fmt: skip
NODE = Rule("3.5.9", "A symbol-keyed map containing properties of a node used when requesting creation or reporting "
            "the creation of a dynamic node.")  # fmt: skip

STATE_CASES = [
    Case("a flow on an unattached handle", UNATTACHED,
         (performative("flow", {"handle": Uint(9), "link-credit": Uint(1)}),), SESSION,
         "amqp:session:unattached-handle"),  # D1
    Case("a transfer on an unattached handle", UNATTACHED, (performative("transfer", {"handle": Uint(9)}),), SESSION,
         "amqp:session:unattached-handle"),
    Case("a detach of an unattached handle", UNATTACHED, (performative("detach", {"handle": Uint(9)}),), SESSION,
         "amqp:session:unattached-handle"),
    Case("a flow on a handle that was detached", UNATTACHED,
         (performative("detach", {}), performative("flow", {"handle": Uint(0), "link-credit": Uint(1)})), SESSION,
         "amqp:session:unattached-handle"),
    Case("a second attach on a handle",  # D2
         Rule("2.7.3", "An attempt to attach using a handle which is already associated with a link MUST be responded "
              "to with an immediate close carrying a handle-in-use session-error."),
         (performative("attach", {"handle": Uint(0)}),), SESSION, "amqp:session:handle-in-use"),
    Case("a second link of one name and direction",
         Rule("2.6.1", "Links are named so that they can be recovered when communication is interrupted. Link names "
              "MUST uniquely identify the link amongst all links of the same direction between the two participating "
              "containers."),
         (performative("attach", {"name": "out"}),), CONNECTION, INVALID),  # U4
    Case("a second begin on a channel",  # D2
         Rule("2.5.1", "Sessions are established by creating a session endpoint, assigning it to an unused channel "
              "number, and sending a begin announcing the association of the session endpoint with the outgoing "
              "channel."),
         (begin(),), CONNECTION, "amqp:not-allowed"),
    Case("an open on channel 1",  # D5
         Rule("2.4.1", "The open frame can only be sent on channel 0."),
         (opening()[:6] + b"\0\1" + opening()[8:],), CONNECTION, "amqp:not-allowed"),
    Case("a second open",
         Rule("2.4.1", "Each AMQP connection begins with an exchange of capabilities and limitations."),
         (opening(),), CONNECTION, "amqp:not-allowed"),
    Case("a max-frame-size below 512",
         Rule("2.7.1", "Both peers MUST accept frames of up to 512 (MIN-MAX-FRAME-SIZE) octets."),
         (performative("open", {"max-frame-size": Uint(511)}),), CONNECTION, INVALID),
    Case("a channel above channel-max",
         Rule("2.7.1", "A peer that receives a channel number outside the supported range MUST close the connection "
              "with the framing-error error-code."),
         (begin(256),), CONNECTION, "amqp:connection:framing-error"),
    Case("an attach on a channel without a session",
         Rule("2.5.1", "Sessions are established by creating a session endpoint, assigning it to an unused channel "
              "number, and sending a begin."),
         (performative("attach", {}, channel=9),), CONNECTION, "amqp:not-allowed"),
    Case("a sender without an initial-delivery-count",
         Rule("2.7.3", "This MUST NOT be null if role is sender, and it is ignored if the role is receiver."),
         (performative("attach", {"initial-delivery-count": None}),), LINK, INVALID),
    Case("a snd-settle-mode out of range", Rule("2.8.2", '<choice name="mixed" value="2"/>'),
         (performative("attach", {"snd-settle-mode": Ubyte(3)}),), LINK, INVALID),
    Case("a rcv-settle-mode out of range", Rule("2.8.3", '<choice name="second" value="1"/>'),
         (performative("attach", {"rcv-settle-mode": Ubyte(2)}),), LINK, INVALID),
    Case("a transfer without a delivery-tag", TAG, (performative("transfer", {"delivery-tag": None}),), LINK, INVALID),
    Case("a transfer without a delivery-id",
         Rule("2.7.5", "The delivery-id MUST be supplied on the first transfer of a multi-transfer delivery."),
         (performative("transfer", {"delivery-id": None}),), SESSION, INVALID),
    Case("a delivery-tag of 33 octets", Rule("2.8.7", "A delivery-tag can be up to 32 octets of binary data."),
         (performative("transfer", {"delivery-tag": bytes(33)}),), LINK, INVALID),
    Case("a message-format that changes",
         Rule("2.7.5", "It is an error if the message-format on a continuation transfer differs from the "
              "message-format on the first transfer of a delivery."),
         (performative("transfer", {"more": True}), performative("transfer", {"message-format": Uint(1)})), LINK,
         INVALID),
    Case("a delivery-tag that changes",
         Rule("2.7.5", "It is an error if the delivery-tag on a continuation transfer differs from the delivery-tag on "
              "the first transfer of a delivery."),
         (performative("transfer", {"more": True}), performative("transfer", {"delivery-tag": b"u"})), LINK, INVALID),
    Case("a rcv-settle-mode of second on a link of mode first",
         Rule("2.7.5", "If the negotiated link value is first, then it is illegal to set this field to second."),
         (performative("transfer", {"rcv-settle-mode": Ubyte(1)}),), LINK, INVALID),
    Case("a settled message without any section", Rule("3.2", "The body consists of one of the following three "
         "choices: one or more data sections, one or more amqp-sequence sections, or a single amqp-value section."),
         (frame(raw.TRANSFER, Uint(0), Uint(0), b"t", Uint(0), True, False),), LINK, "amqp:decode-error"),
    Case("a transfer from the receiver of a link",
         Rule("2.7.5", "The transfer frame is used to send messages across a link."),
         (attach("in", 3, "q", receives=True), performative("transfer", {"handle": Uint(3)})), SESSION,
         "amqp:not-allowed"),
    Case("a disposition of a range that runs backwards",
         Rule("2.7.6", "Identifies the upper bound of delivery-ids for the deliveries in this set."),
         (performative("disposition", {"first": Uint(9), "last": Uint(3)}),), SESSION, INVALID),
    terminus_case("a source in place of a target", "2.7.3", '<field name="target" type="*" requires="target"/>',
                  raw.TARGET + 0x20, "q"),
    terminus_case("a target whose address is a number", "3.5.4", '<field name="address" type="*" requires="address"/>',
                  raw.TARGET, DOUBLE),
    Case("a target whose address is not UTF-8", UTF8,
         (with_invalid_octets(performative("attach", {"target": Described(Ulong(raw.TARGET), ["??"])})),), LINK,
         INVALID),
    terminus_case("a durability out of range", "3.5.5", '<choice name="unsettled-state" value="2"/>', raw.TARGET, "q",
                  Uint(3)),
    terminus_case("an unknown expiry-policy", "3.5.6", '<choice name="never" value="never"/>', raw.TARGET, "q", None,
                  Symbol("someday")),
    terminus_case("node properties that are a list", *NODE, raw.TARGET, None, None, None, None, True, [1]),  # D5
    terminus_case("node properties keyed by strings", *NODE, raw.TARGET, None, None, None, None, True, {"a": 1}),
    terminus_case("a lifetime-policy that is a string", *NODE, raw.TARGET, None, None, None, None, True,
                  {Symbol("lifetime-policy"): "delete-on-close"}),
    terminus_case("supported-dist-modes that are strings", *NODE, raw.TARGET, None, None, None, None, True,
                  {Symbol("supported-dist-modes"): "move"}),
    Case("a performative with more fields than it has",
         Rule("1.4", "The AMQP type system's composite types are encoded as a described list: one element per field."),
         (frame(raw.DETACH, Uint(0), True, None, None),), CONNECTION, "amqp:decode-error"),
    Case("a list that is cut off", Rule("1.6.22", "a polymorphic list"), (
         b"\0\0\0\x10\2\0\0\0\0\x53\x13\xd0\0\0\1\0",), CONNECTION, "amqp:decode-error"),
]  # fmt: skip

CASES = [*field_cases(), *STATE_CASES]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_forbidden_frame_ends_what_it_is_about(broker: RunningBroker, witness: Witness, case: Case) -> None:
    """A forbidden frame closes the endpoint it concerns, with the required error (D1, D2, D5)."""
    check_scope(broker.port, witness, case)


@pytest.mark.parametrize(
    ("first", "condition"),
    [
        (begin(), "amqp:illegal-state"),
        (performative("open", {"container-id": None}), INVALID),
        (performative("open", {"max-frame-size": Uint(511)}), INVALID),
        (opening()[:6] + b"\0\1" + opening()[8:], "amqp:not-allowed"),
    ],
    ids=["begin", "without container-id", "max-frame-size", "channel 1"],
)
def test_connection_that_does_not_begin_with_an_open_is_closed(
    broker: RunningBroker, witness: Witness, first: bytes, condition: str
) -> None:
    """2.4.1: a connection that does not begin with a valid open is closed with an error."""
    with Raw(broker.port, first) as one:
        assert one.until("close").error == condition
    witness.still_sends()


def test_empty_message_is_rejected_and_its_link_goes_on(broker: RunningBroker) -> None:  # D5
    """3.2: the body is mandatory; an unsettled message without a body is rejected, and the link stays attached."""
    with connected(broker.port) as one:
        one.say(transfer(0, 0), transfer(0, 1, BODY))
        outcomes: dict[int, Any] = {}
        while len(outcomes) < 2:
            fields = one.until("disposition", channel=0).fields
            outcomes[int(fields[1])] = fields[4]
        assert outcomes[0].descriptor == 0x25
        assert outcomes[0].value[0].value[0] == "amqp:decode-error"
        assert outcomes[1].descriptor == 0x24


def test_deliveries_go_on_beside_a_link_that_was_detached(broker: RunningBroker) -> None:
    """2.5.6: transfers on a refused link count for the transfer-ids and windows of the session."""
    with connected(broker.port) as one:
        one.say(attach("other", 1, "q"))
        one.until("attach", channel=0)
        bad = [frame(raw.TRANSFER, Uint(0), Uint(n), None, Uint(0), False, False, payload=BODY) for n in range(5)]
        one.say(*bad, transfer(1, 5, BODY))
        seen: list[Any] = []
        while not {"detach", 5} <= {*seen}:
            found = one.hear()
            assert found is not None
            seen.append(found.fields[1] if found.name == "disposition" else found.name)


@pytest.mark.parametrize("step", [1, 3, 7, 64])
def test_transfers_are_checked_however_they_are_cut(broker: RunningBroker, step: int) -> None:
    """A transfer on an unattached handle after a run of valid ones is detected, however the bytes are split."""
    with connected(broker.port) as one:
        run = b"".join(transfer(0, number, BODY + bytes(0), settled=True) for number in range(300))
        run += b"".join(transfer(0, number, BODY, settled=True) for number in range(300, 340))
        run += transfer(8, 340, BODY)
        one.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(run), 97 * step):
            one.say(run[at : at + 97 * step])
        assert one.until("end").error == "amqp:session:unattached-handle"


@pytest.mark.parametrize(
    ("place", "value"),
    [
        pytest.param(4, Uint(1), id="1 ms"),  # P7
        pytest.param(4, Uint(199), id="199 ms"),
        pytest.param(0, "x" * 1025, id="long container-id"),
    ],
)
def test_open_that_can_not_be_met_is_refused_with_an_error(broker: RunningBroker, place: int, value: Any) -> None:  # P7
    """2.4.5: a peer that can't support an idle-time-out closes the connection with an error."""
    fields: list[Any] = ["raw", None, None, None, None]
    fields[place] = value
    with Raw(broker.port, raw.frame(raw.OPEN, *fields)) as one:
        assert one.until("close").error in ("amqp:not-implemented", "amqp:invalid-field")
    fields[place] = Uint(200) if place else "x" * 1024
    with Raw(broker.port, raw.frame(raw.OPEN, *fields), raw.begin()) as one:
        one.until("begin")
