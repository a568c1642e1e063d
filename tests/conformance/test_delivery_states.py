"""Tests of delivery states and coordinator requests that the AMQP 1.0 specification forbids.

Each case quotes the specification; field definitions are quoted from the specification's XML. A state is sent
in a transfer, in a disposition, and as the outcome of a transactional state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cairnmq.amqp.codec import encode
from cairnmq.amqp.codec.types import Array, Described, Symbol, Ubyte, Uint, Ulong
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.router import raw
from tests.harness.router.forbidden_frames import (
    BODY,
    DOUBLE,
    INVALID,
    LINK,
    SESSION,
    Case,
    Rule,
    Witness,
    check_scope,
    connected,
    performative,
)
from tests.harness.router.raw import Raw, begin, frame, opening, symbols, transfer

COORDINATOR = 0x30
DECODE = "amqp:decode-error"
UNKNOWN_ID = "amqp:transaction:unknown-id"
CODES = {
    "error": 0x1D, "received": 0x23, "accepted": 0x24, "rejected": 0x25, "released": 0x26, "modified": 0x27,
    "declare": 0x31, "discharge": 0x32, "declared": 0x33, "transactional-state": 0x34,
}  # fmt: skip
FIELDS: dict[str, tuple[str, list[str]]] = {
    "error": ("2.8.14", [
        '<field name="condition" type="symbol" requires="error-condition" mandatory="true"/>',
        '<field name="description" type="string"/>',
        '<field name="info" type="fields"/>',
    ]),
    "received": ("3.4.1", [
        '<field name="section-number" type="uint" mandatory="true"/>',
        '<field name="section-offset" type="ulong" mandatory="true"/>',
    ]),
    "accepted": ("3.4.2", []),
    "rejected": ("3.4.3", ['<field name="error" type="error"/>']),
    "released": ("3.4.4", []),
    "modified": ("3.4.5", [
        '<field name="delivery-failed" type="boolean"/>',
        '<field name="undeliverable-here" type="boolean"/>',
        '<field name="message-annotations" type="fields"/>',
    ]),
    "declare": ("4.5.2", ['<field name="global-id" type="*" requires="global-tx-id"/>']),
    "discharge": ("4.5.3", [
        '<field name="txn-id" type="*" requires="txn-id" mandatory="true"/>',
        '<field name="fail" type="boolean"/>',
    ]),
    "declared": ("4.5.5", ['<field name="txn-id" type="*" requires="txn-id" mandatory="true"/>']),
    "transactional-state": ("4.5.6", [
        '<field name="txn-id" type="*" mandatory="true" requires="txn-id"/>',
        '<field name="outcome" type="*" requires="outcome"/>',
    ]),
}  # fmt: skip
"""Section and ordered field definitions of each composite type."""
VALID: dict[str, list[Any]] = {
    "error": [Symbol("amqp:internal-error"), "why", {Symbol("a"): 1}],
    "received": [Uint(0), Ulong(0)],
    "accepted": [],
    "rejected": [Described(Ulong(0x1D), [Symbol("amqp:internal-error"), "why", None])],
    "released": [],
    "modified": [True, True, {Symbol("x-opt-a"): 1}],
    "declare": [b"global"],
    "discharge": [b"id", True],
    "declared": [b"id"],
    "transactional-state": [b"id", Described(Ulong(0x24), [])],
}
STATES = ("received", "accepted", "rejected", "released", "modified", "declared", "transactional-state")
LIST = "The AMQP type system's composite types are encoded as a described list: one element per field."


def composite(name: str, **changes: Any) -> Described:
    """Return a valid value of a composite type, except for the fields in *changes* (`_` instead of `-`)."""
    fields = list(VALID[name])
    for number, definition in enumerate(FIELDS[name][1]):
        field = definition.split('"')[1].replace("-", "_")
        if field in changes:
            fields[number] = changes[field]
    return Described(Ulong(CODES[name]), fields)


def variations(name: str) -> Iterator[tuple[str, Rule, Described]]:
    """Yield cases with each mandatory field missing, and each field of a wrong type."""
    section, definitions = FIELDS[name]
    for definition in definitions:
        field, rule = definition.split('"')[1], Rule(section, definition)
        yield f"{name} with {field} of a wrong type", rule, composite(name, **{field.replace("-", "_"): DOUBLE})
        if 'mandatory="true"' in definition:
            yield f"{name} without {field}", rule, composite(name, **{field.replace("-", "_"): None})
            if field == definitions[0].split('"')[1]:
                yield f"{name} without any field", rule, Described(Ulong(CODES[name]), [])


def forbidden_states() -> Iterator[tuple[str, Rule, Described]]:
    for name in STATES:
        yield from variations(name)
        if name not in ("received", "declared", "transactional-state"):
            symbolic = [(text, rule, Described(Symbol(f"amqp:{name}:list"), state.value))
                        for text, rule, state in variations(name)]  # fmt: skip
            yield from [(f"{text}, by name", rule, state) for text, rule, state in symbolic]
    for text, rule, error in variations("error"):
        yield f"rejected by an {text}", rule, composite("rejected", error=error)
    for name in ("rejected", "modified"):
        for text, rule, outcome in variations(name):
            yield f"transaction with a {text}", rule, composite("transactional-state", outcome=outcome)
    yield ("rejected with an error that is a source", Rule("3.4.3", FIELDS["rejected"][1][0]),
           composite("rejected", error=Described(Ulong(raw.SOURCE), [])))  # fmt: skip
    yield ("outcome received", Rule("3.4.1", '<type name="received" class="composite" source="list" '
           'provides="delivery-state">'), composite("transactional-state", outcome=composite("received")))  # fmt: skip
    yield ("outcome of a transaction in a transaction", Rule("4.5.6", '<type name="transactional-state" '
           'class="composite" source="list" provides="delivery-state">'),
           composite("transactional-state", outcome=composite("transactional-state")))  # fmt: skip
    for name in ("error", "declare", "discharge"):
        yield (f"{name} as a state", Rule("2.7.5", '<field name="state" type="*" requires="delivery-state"/>'),
               composite(name))  # fmt: skip


CASES = [
    *[Case(f"a transfer {text}", rule, (performative("transfer", {"state": state}),), LINK, INVALID)
      for text, rule, state in forbidden_states()],
    *[Case(f"a disposition {text}", rule, (performative("disposition", {"role": True, "state": state}),), SESSION,
           INVALID) for text, rule, state in forbidden_states()],
    *[Case(f"{name} with a field that it does not have", Rule("1.4", LIST),
           (performative("disposition", {"role": True, "state": Described(Ulong(CODES[name]), [*VALID[name], 1])}),),
           "close", DECODE) for name in STATES],
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_forbidden_state_ends_the_scope_of_its_frame(broker: RunningBroker, witness: Witness, case: Case) -> None:
    check_scope(broker.port, witness, case)


@pytest.mark.parametrize("name", STATES)
def test_valid_state_ends_nothing(broker: RunningBroker, name: str) -> None:
    """Valid states in the same frames close neither the link nor the connection."""
    states = [composite(name), Described(Symbol(f"amqp:{name}:list"), VALID[name])]
    with connected(broker.port) as one:
        for number, state in enumerate(states):
            one.say(performative("disposition", {"role": True, "first": Uint(9), "state": state}))
            state_of = {"delivery-id": Uint(number), "delivery-tag": bytes([number]), "state": state}
            one.say(performative("transfer", state_of))
        one.say(transfer(0, len(states), BODY))
        settled = 0
        while settled <= len(states):
            fields = one.until("disposition", channel=0).fields
            settled = int(fields[2] if fields[2] is not None else fields[1]) + 1


# ---- the coordinator ------------------------------------------------------------------------------------------------

ID = Rule("4.5.4", "A transaction-id can be up to 32 octets of binary data.")
UNKNOWN = Rule("4.5.8", "The specified txn-id does not exist.")
MUST_BE_UNSETTLED = Rule("4.2", "The controller MUST send the message unsettled")
REQUESTS = [
    *[(text, rule, request, DECODE) for name in ("declare", "discharge") for text, rule, request in variations(name)],
    *[(f"{name} with a field that it does not have", Rule("1.4", LIST),
       Described(Ulong(CODES[name]), [*VALID[name], 1]), DECODE) for name in ("declare", "discharge")],
    ("discharge of a transaction that was not declared", UNKNOWN, composite("discharge"), UNKNOWN_ID),
    ("discharge of a txn-id of 33 octets", ID, composite("discharge", txn_id=bytes(33)), UNKNOWN_ID),
    ("request that is a state", Rule("4.2", "a declare message"), composite("declared"), DECODE),
    ("request that is a string", Rule("4.2", "a declare message"), "declare", DECODE),
]  # fmt: skip


def control(port: int, outcomes: Array | None = None) -> Raw:
    """Return a connection with a link to the coordinator on handle 0, and one to a queue on handle 1."""
    source = Described(Ulong(raw.SOURCE), ["here", *[None] * 8, outcomes])
    links = []
    for handle, target in enumerate((Described(Ulong(COORDINATOR), []), Described(Ulong(raw.TARGET), ["q"]))):
        ends = False, Ubyte(2), Ubyte(0), source, target, None, None, Uint(0)
        links.append(frame(raw.ATTACH, f"link {handle}", Uint(handle), *ends))
    one = Raw(port, opening(), begin(), *links)
    for _ in links:
        while len(one.until("flow").fields) < 7:
            pass
    return one


def request(number: int, body: Any, *, settled: bool = False) -> bytes:
    return transfer(0, number, b"\x00\x53\x77" + encode.value(body), settled=settled)


def declared(one: Raw, number: int) -> bytes:
    """Declare a transaction; return its ID."""
    one.say(request(number, Described(Ulong(CODES["declare"]), [])))
    state = one.until("disposition").fields[4]
    assert state.descriptor == CODES["declared"]
    return bytes(state.value[0])


@pytest.mark.parametrize(("text", "rule", "body", "condition"), REQUESTS, ids=[text for text, *_ in REQUESTS])
def test_forbidden_request_is_rejected_and_its_transactions_go_on(
    broker: RunningBroker, witness: Witness, text: str, rule: Rule, body: Any, condition: str
) -> None:
    """4.2: a forbidden request is rejected with the error if the link's source supports the outcome `rejected`."""
    with control(broker.port) as one:
        txn_id = declared(one, 0)
        one.say(request(1, body))
        state = one.until("disposition").fields[4]
        assert state.descriptor == CODES["rejected"], (text, rule)
        assert state.value[0].value[0] == condition, (text, rule)
        one.say(request(2, composite("discharge", txn_id=txn_id, fail=False)))
        assert one.until("disposition").fields[4].descriptor == CODES["accepted"], "the open transaction is committed"
    witness.still_sends()


def test_discharge_with_a_fail_of_a_wrong_type_commits_nothing(broker: RunningBroker) -> None:
    """4.5.3: `fail` is a boolean; a request that cannot be decoded leaves its transaction open."""
    with control(broker.port) as one:
        txn_id = declared(one, 0)
        state = composite("transactional-state", txn_id=txn_id, outcome=None)
        one.say(frame(raw.TRANSFER, Uint(1), Uint(1), b"1", Uint(0), False, False, None, state, payload=BODY))
        assert one.until("disposition").fields[4].descriptor == CODES["transactional-state"]
        one.say(request(2, composite("discharge", txn_id=txn_id, fail=Uint(1))))
        assert one.until("disposition").fields[4].descriptor == CODES["rejected"]
        one.say(request(3, composite("discharge", txn_id=txn_id, fail=True)))
        assert one.until("disposition").fields[4].descriptor == CODES["accepted"], "it was open, and is rolled back"


@pytest.mark.parametrize("text", ["discharge without txn-id", "discharge of a transaction that was not declared"])
def test_request_on_a_source_without_rejected_detaches_the_link(broker: RunningBroker, text: str) -> None:
    """4.2, 4.3: the link is detached with the error if its source does not support the outcome `rejected`."""
    ((body, condition),) = [(body, condition) for name, _, body, condition in REQUESTS if name == text]
    with control(broker.port, symbols("amqp:accepted:list", "amqp:declared:list")) as one:
        one.say(request(0, body))
        ended = one.until("detach")
        assert ended.fields[0] == 0
        assert ended.error == condition


def test_settled_request_detaches_the_link(broker: RunningBroker) -> None:
    with control(broker.port) as one:
        one.say(request(0, composite("declare"), settled=True))
        assert one.until("detach").error == INVALID, MUST_BE_UNSETTLED


@pytest.mark.parametrize("txn_id", [b"id", bytes(33), b""], ids=["unknown", "33 octets", "empty"])
def test_transfer_in_an_unknown_transaction_gets_the_error(
    broker: RunningBroker, witness: Witness, txn_id: bytes
) -> None:
    """4.5.8: a transfer with an unknown txn-id is rejected, or detaches its link if it is settled."""
    state = composite("transactional-state", txn_id=txn_id, outcome=None)
    with control(broker.port) as one:
        one.say(frame(raw.TRANSFER, Uint(1), Uint(0), b"0", Uint(0), False, False, None, state, payload=BODY))
        refused = one.until("disposition").fields[4]
        assert refused.value[1].descriptor == CODES["rejected"]
        assert refused.value[1].value[0].value[0] == UNKNOWN_ID
        one.say(frame(raw.TRANSFER, Uint(1), Uint(1), b"1", Uint(0), True, False, None, state, payload=BODY))
        ended = one.until("detach")
        assert ended.fields[0] == 1
        assert ended.error == UNKNOWN_ID
        assert len(declared(one, 2)) <= 32, "the coordinator goes on"
    witness.still_sends()
