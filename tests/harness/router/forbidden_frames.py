"""A table of frames that the AMQP 1.0 specification forbids, and a check of the scope that each of them ends."""

from __future__ import annotations

from typing import Any, NamedTuple

from cairnmq.amqp.codec.types import Described, Ubyte, Uint, Ulong, Ushort
from tests.harness.router import raw
from tests.harness.router.raw import Raw, attach, begin, frame, opening, transfer

LINK, SESSION, CONNECTION = "detach", "end", "close"
BODY = b"\x00\x53\x77\x43"
INVALID = "amqp:invalid-field"
DOUBLE = 1.5
"""A value of a type that no field of any performative has."""


class Rule(NamedTuple):
    """A sentence of the specification."""

    section: str
    sentence: str


class Case(NamedTuple):
    """Frames on channel 0, and the error with which the broker answers them."""

    name: str
    rule: Rule
    said: tuple[bytes, ...]
    scope: str
    condition: str


FIELDS: dict[str, tuple[str, str]] = {
    "open": ("2.7.1", "container-id:string! hostname:string max-frame-size:uint channel-max:ushort "
             "idle-time-out:milliseconds outgoing-locales:ietf-language-tag incoming-locales:ietf-language-tag "
             "offered-capabilities:symbol desired-capabilities:symbol properties:fields"),
    "begin": ("2.7.2", "remote-channel:ushort next-outgoing-id:transfer-number! incoming-window:uint! "
              "outgoing-window:uint! handle-max:handle offered-capabilities:symbol desired-capabilities:symbol "
              "properties:fields"),
    "attach": ("2.7.3", "name:string! handle:handle! role:role! snd-settle-mode:sender-settle-mode "
               "rcv-settle-mode:receiver-settle-mode source:* target:* unsettled:map incomplete-unsettled:boolean "
               "initial-delivery-count:sequence-no max-message-size:ulong offered-capabilities:symbol "
               "desired-capabilities:symbol properties:fields"),
    "flow": ("2.7.4", "next-incoming-id:transfer-number incoming-window:uint! next-outgoing-id:transfer-number! "
             "outgoing-window:uint! handle:handle delivery-count:sequence-no link-credit:uint available:uint "
             "drain:boolean echo:boolean properties:fields"),
    "transfer": ("2.7.5", "handle:handle! delivery-id:delivery-number delivery-tag:delivery-tag "
                 "message-format:message-format settled:boolean more:boolean rcv-settle-mode:receiver-settle-mode "
                 "state:* resume:boolean aborted:boolean batchable:boolean"),
    "disposition": ("2.7.6", "role:role! first:delivery-number! last:delivery-number settled:boolean state:* "
                    "batchable:boolean"),
    "detach": ("2.7.7", "handle:handle! closed:boolean error:error"),
    "end": ("2.7.8", "error:error"),
    "close": ("2.7.9", "error:error"),
}  # fmt: skip
"""The section, and the fields in order with their types; `!` marks mandatory ones."""

CODES = {name: raw.OPEN + number for number, name in enumerate(FIELDS)}
SOURCE = Described(Ulong(raw.SOURCE), ["q"])
TARGET = Described(Ulong(raw.TARGET), ["q"])
VALID: dict[str, list[Any]] = {
    "open": ["raw", None, Uint(65536), Ushort(255), None, None, None, None, None, None],
    "begin": [None, Uint(0), Uint(9), Uint(9), None, None, None, None],
    "attach": ["new", Uint(5), False, Ubyte(2), Ubyte(0), SOURCE, TARGET, None, None, Uint(0), *[None] * 4],
    "flow": [Uint(0), Uint(9), Uint(0), Uint(9), *[None] * 7],
    "transfer": [Uint(0), Uint(0), b"t", Uint(0), False, False, *[None] * 5],
    "disposition": [False, Uint(0), None, True, None, None],
    "detach": [Uint(0), True, None],
    "end": [None],
    "close": [None],
}


def performative(name: str, changes: dict[str, Any], *, channel: int = 0, payload: bytes = b"") -> bytes:
    """Return a valid performative, except for the fields in *changes*."""
    fields = list(VALID[name])
    for number, (field, _, _) in enumerate(fields_of(name)):
        if field in changes:
            fields[number] = changes[field]
    return frame(CODES[name], *fields, channel=channel, payload=payload or (BODY if name == "transfer" else b""))


def fields_of(name: str) -> list[tuple[str, str, bool]]:
    """Return the name and type of each field, and whether it is mandatory."""
    found = []
    for field in FIELDS[name][1].split():
        field_name, kind = field.rstrip("!").split(":")
        found.append((field_name, kind, field.endswith("!")))
    return found


def scope_of(name: str, field: str) -> str:
    """Return the scope that an invalid field ends: the smallest endpoint that can still be named."""
    if name in ("open", "begin", "end", "close"):
        return CONNECTION
    if name == "attach" and field not in ("name", "handle", "role"):
        return LINK
    if name == "transfer" and field not in ("handle", "delivery-id"):
        return LINK
    return SESSION


class Witness:
    """A separate connection whose messages must still be accepted."""

    def __init__(self, port: int) -> None:
        self._raw = Raw(port, opening("witness"), begin(), attach("w", 0, "witnessed"))
        while len(self._raw.until("flow").fields) < 7:  # a flow of the session only
            pass
        self._sent = 0

    def still_sends(self) -> None:
        self._raw.say(transfer(0, self._sent, BODY))
        self._sent += 1
        assert self._raw.until("disposition").fields[4].descriptor == 0x24

    def close(self) -> None:
        self._raw.sock.close()


def connected(port: int) -> Raw:
    """Open a connection with a link `out` on handle 0 of channel 0, and `beside` on handle 0 of channel 1."""
    one = Raw(port, opening("raw"), begin(), begin(1), attach("out", 0, "q"), attach("beside", 0, "q", channel=1))
    for _ in range(2):  # the two flows may arrive in either order
        while len(one.until("flow").fields) < 7:  # a flow of a session only
            pass
    return one


def check_scope(port: int, witness: Witness, case: Case) -> None:
    """Send the frames of *case*; check that the error ends its scope, and no link, session or connection beside it."""
    with connected(port) as one:
        one.say(*case.said)
        ended = one.until(case.scope)
        assert ended.error == case.condition, case.rule
        if case.scope == CONNECTION:
            one.say(frame(raw.CLOSE))
            assert one.hear() is None
            witness.still_sends()
            return
        assert ended.channel == 0
        one.say(transfer(0, 0, BODY, channel=1))
        found = one.until("disposition", channel=1)
        assert found.fields[4].descriptor == 0x24, "the session beside it goes on"
        if case.scope == LINK:
            handle = Uint(ended.fields[0])
            one.say(frame(raw.DETACH, Uint(5 if handle else 0), True), attach("again", 6, "q"))
            assert one.until("attach", channel=0).fields[6] is not None, "so does the session itself"
        else:
            one.say(transfer(0, 9, BODY), frame(raw.END), begin(), attach("again", 0, "q"))
            one.until("begin", channel=0)
            assert one.until("attach", channel=0).fields[6] is not None, "a new session takes its place"
        witness.still_sends()
