"""The fields of AMQP's performatives, termini, delivery states and SASL frames, as the specification defines them.

Checks look at the encoded fields: type codes, missing mandatory fields and values out of range. Other nested values are
not decoded here; the engine does that.
"""

from __future__ import annotations

from typing import NamedTuple

from ..codec import decode, encode
from ..codec.primitives import NAMES, Malformed, extent, head

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
ERROR_TYPE, RECEIVED, ACCEPTED, REJECTED, RELEASED, MODIFIED = 0x1D, *range(0x23, 0x28)
SOURCE, TARGET, COORDINATOR, DECLARED, TRANSACTIONAL = 0x28, 0x29, 0x30, 0x33, 0x34
MECHANISMS, INIT, CHALLENGE, RESPONSE, OUTCOME = range(0x40, 0x45)
NULL = 0x40
HEADER_BYTES = 8
"""The size of a frame header."""


class Invalid(Exception):
    """A field is missing, of the wrong type, or out of range."""


class Type(NamedTuple):
    """An AMQP type: its name, the codes of its encodings, and the descriptors of composite types that provide it."""

    name: str
    codes: frozenset[int]
    provided_by: tuple[int, ...] = ()


class Field(NamedTuple):
    """A field of a composite type; *least* and *most* bound numbers."""

    name: str
    type: Type
    mandatory: bool = False
    least: int = 0
    most: int | None = None


_BOOLEAN = Type("boolean", frozenset((0x41, 0x42, 0x56)))
_UBYTE = Type("ubyte", frozenset((0x50,)))
_USHORT = Type("ushort", frozenset((0x60,)))
_UINT = Type("uint", frozenset((0x43, 0x52, 0x70)))
_ULONG = Type("ulong", frozenset((0x44, 0x53, 0x80)))
_BINARY = Type("binary", frozenset((0xA0, 0xB0)))
_STRING = Type("string", frozenset((0xA1, 0xB1)))
_SYMBOL = Type("symbol", frozenset((0xA3, 0xB3)))
_SYMBOLS = Type("symbol or array of symbols", _SYMBOL.codes | {0xE0, 0xF0})
_MAP = Type("map", frozenset((0xC1, 0xD1)))
_DESCRIBED = Type("described value", frozenset((0,)))
_OUTCOME = Type("outcome", _DESCRIBED.codes, (ACCEPTED, REJECTED, RELEASED, MODIFIED, DECLARED))
_STATE = Type("delivery state", _DESCRIBED.codes, (*_OUTCOME.provided_by, RECEIVED, TRANSACTIONAL))
_LIST_CODES = frozenset((0x45, 0xC0, 0xD0))

_CAPABILITIES = (Field("offered-capabilities", _SYMBOLS), Field("desired-capabilities", _SYMBOLS))
_PROPERTIES = Field("properties", _MAP)
_ERROR = Field("error", Type("error", _DESCRIBED.codes, (ERROR_TYPE,)))
_TXN_ID = Field("txn-id", _BINARY, mandatory=True)

FIELDS: dict[int, tuple[str, tuple[Field, ...]]] = {
    OPEN: ("open", (
        Field("container-id", _STRING, mandatory=True),
        Field("hostname", _STRING),
        Field("max-frame-size", _UINT, least=512),
        Field("channel-max", _USHORT),
        Field("idle-time-out", _UINT),
        Field("outgoing-locales", _SYMBOLS),
        Field("incoming-locales", _SYMBOLS),
        *_CAPABILITIES,
        _PROPERTIES,
    )),
    BEGIN: ("begin", (
        Field("remote-channel", _USHORT),
        Field("next-outgoing-id", _UINT, mandatory=True),
        Field("incoming-window", _UINT, mandatory=True),
        Field("outgoing-window", _UINT, mandatory=True),
        Field("handle-max", _UINT),
        *_CAPABILITIES,
        _PROPERTIES,
    )),
    ATTACH: ("attach", (
        Field("name", _STRING, mandatory=True),
        Field("handle", _UINT, mandatory=True),
        Field("role", _BOOLEAN, mandatory=True),
        Field("snd-settle-mode", _UBYTE, most=2),
        Field("rcv-settle-mode", _UBYTE, most=1),
        Field("source", _DESCRIBED),
        Field("target", _DESCRIBED),
        Field("unsettled", _MAP),
        Field("incomplete-unsettled", _BOOLEAN),
        Field("initial-delivery-count", _UINT),
        Field("max-message-size", _ULONG),
        *_CAPABILITIES,
        _PROPERTIES,
    )),
    FLOW: ("flow", (
        Field("next-incoming-id", _UINT),
        Field("incoming-window", _UINT, mandatory=True),
        Field("next-outgoing-id", _UINT, mandatory=True),
        Field("outgoing-window", _UINT, mandatory=True),
        Field("handle", _UINT),
        Field("delivery-count", _UINT),
        Field("link-credit", _UINT),
        Field("available", _UINT),
        Field("drain", _BOOLEAN),
        Field("echo", _BOOLEAN),
        _PROPERTIES,
    )),
    TRANSFER: ("transfer", (
        Field("handle", _UINT, mandatory=True),
        Field("delivery-id", _UINT),
        Field("delivery-tag", _BINARY),
        Field("message-format", _UINT),
        Field("settled", _BOOLEAN),
        Field("more", _BOOLEAN),
        Field("rcv-settle-mode", _UBYTE, most=1),
        Field("state", _STATE),
        Field("resume", _BOOLEAN),
        Field("aborted", _BOOLEAN),
        Field("batchable", _BOOLEAN),
    )),
    DISPOSITION: ("disposition", (
        Field("role", _BOOLEAN, mandatory=True),
        Field("first", _UINT, mandatory=True),
        Field("last", _UINT),
        Field("settled", _BOOLEAN),
        Field("state", _STATE),
        Field("batchable", _BOOLEAN),
    )),
    DETACH: ("detach", (Field("handle", _UINT, mandatory=True), Field("closed", _BOOLEAN), _ERROR)),
    END: ("end", (_ERROR,)),
    CLOSE: ("close", (_ERROR,)),
    MECHANISMS: ("sasl-mechanisms", (Field("sasl-server-mechanisms", _SYMBOLS, mandatory=True),)),
    INIT: ("sasl-init", (
        Field("mechanism", _SYMBOL, mandatory=True), Field("initial-response", _BINARY), Field("hostname", _STRING),
    )),
    CHALLENGE: ("sasl-challenge", (Field("challenge", _BINARY, mandatory=True),)),
    RESPONSE: ("sasl-response", (Field("response", _BINARY, mandatory=True),)),
    OUTCOME: ("sasl-outcome", (Field("code", _UBYTE, mandatory=True, most=4), Field("additional-data", _BINARY))),
}  # fmt: skip

_TERMINUS = (
    Field("address", _STRING),
    Field("durable", _UINT, most=2),
    Field("expiry-policy", _SYMBOL),
    Field("timeout", _UINT),
    Field("dynamic", _BOOLEAN),
    Field("dynamic-node-properties", _MAP),
)
_COMPOSITES: dict[int, tuple[str, tuple[Field, ...]]] = {
    ERROR_TYPE: ("error", (
        Field("condition", _SYMBOL, mandatory=True), Field("description", _STRING), Field("info", _MAP),
    )),
    RECEIVED: ("received", (
        Field("section-number", _UINT, mandatory=True), Field("section-offset", _ULONG, mandatory=True),
    )),
    ACCEPTED: ("accepted", ()),
    REJECTED: ("rejected", (_ERROR,)),
    RELEASED: ("released", ()),
    MODIFIED: ("modified", (
        Field("delivery-failed", _BOOLEAN), Field("undeliverable-here", _BOOLEAN), Field("message-annotations", _MAP),
    )),
    DECLARED: ("declared", (_TXN_ID,)),
    TRANSACTIONAL: ("transactional-state", (_TXN_ID, Field("outcome", _OUTCOME))),
    SOURCE: ("source", (
        *_TERMINUS,
        Field("distribution-mode", _SYMBOL),
        Field("filter", _MAP),
        Field("default-outcome", _OUTCOME),
        Field("outcomes", _SYMBOLS),
        Field("capabilities", _SYMBOLS),
    )),
    TARGET: ("target", (*_TERMINUS, Field("capabilities", _SYMBOLS))),
    COORDINATOR: ("coordinator", (Field("capabilities", _SYMBOLS),)),
}  # fmt: skip
_EXPIRY_POLICY, _NODE_PROPERTIES = 2, 5
"""Places of these fields in a terminus."""
_EXPIRY_POLICIES = (b"link-detach", b"session-end", b"connection-close", b"never")
_NODE_PROPERTY_TYPES = {b"lifetime-policy": _DESCRIBED, b"supported-dist-modes": _SYMBOLS}


class Performative(NamedTuple):
    """The encoded fields of a performative, and the offset of its payload in the frame."""

    raw: list[bytes]
    end: int

    def number(self, place: int) -> int | None:
        """The unsigned number or boolean in a field, None if the field is not set."""
        if place >= len(self.raw) or self.raw[place][0] == NULL:
            return None
        return _number(self.raw[place])

    def is_set(self, place: int) -> bool:
        """Return True if a boolean field is present and true."""
        return place < len(self.raw) and self.raw[place] in (b"\x41", b"\x56\x01")


def read(frame: bytes, at: int) -> Performative:
    """Split the list at *at* into encoded fields. Raises `Malformed`."""
    code, begin, end = head(frame, at)
    if code not in _LIST_CODES or end > len(frame):
        raise Malformed("a performative is a list")
    if code == 0x45:
        return Performative([], end)
    width = 1 if code == 0xC0 else 4
    count, at = int.from_bytes(frame[begin : begin + width]), begin + width
    raw: list[bytes] = []
    for _ in range(count):
        stop = decode.extent_of(frame, at, end)
        raw.append(frame[at:stop])
        at = stop
    if at != end:
        raise Malformed("bytes behind the last field of a performative")
    return Performative(raw, end)


def frame_like(frame: bytes, code: int, fields: list[bytes], payload: bytes = b"") -> bytes:
    """A frame on the channel of *frame*, of a performative with these encoded fields."""
    body = encode.described(code, encode.listed(fields)) + payload
    return (len(body) + HEADER_BYTES).to_bytes(4) + b"\x02\x00" + frame[6:8] + body


def bare_attach(frame: bytes, fields: Performative) -> bytes:
    """Return an attach with the name, handle and role of another, but no terminus, which the engine refuses."""
    return frame_like(frame, ATTACH, [*fields.raw[:3], *[b"\x40"] * 6, b"\x43"])


def bare_transfer(frame: bytes, fields: Performative, *, is_first: bool) -> bytes:
    """Return a transfer without payload that replaces one on a closed link: Proton counts it (2.5.6)."""
    items = [*fields.raw[:2], *[b"\x40"] * 8]
    if is_first:
        items[2:4] = b"\xa0\x00", b"\x43"  # delivery-tag and message-format
    for place in filter(fields.is_set, (5, 9)):  # more, aborted
        items[place] = b"\x41"
    return frame_like(frame, TRANSFER, items[:10])


def transaction_in(fields: Performative) -> bytes | None:
    """Return the transaction that a flow names: empty for none, `malformed` for an invalid ID; None without a map."""
    try:
        raw = fields.raw[10] if len(fields.raw) > 10 else encode.NULL  # the properties
        properties = decode.value(raw, plain=True)[0]
    except Malformed:
        return None
    if not isinstance(properties, dict):
        return None
    name = properties.get("txn-id")
    if name is None:
        return b""
    return name if isinstance(name, bytes) and name else b"malformed"


def check(code: int, raw: list[bytes], among: slice = slice(None)) -> None:
    """Check the fields of a performative, or those *among* a range of places. Raises `Invalid`, `Malformed`."""
    _check_fields(*FIELDS[code], raw, among)


def check_terminus(raw: bytes, *, is_source: bool) -> None:
    """Check a source or target. Raises `Invalid`, `Malformed`."""
    if raw[0] == NULL:
        return
    name = "source" if is_source else "target"
    code, items = _check_composite(name, (SOURCE,) if is_source else (TARGET, COORDINATOR), raw)
    if code != COORDINATOR:
        _check_node(name, items)


def _check_composite(what: str, wanted: tuple[int, ...], raw: bytes) -> tuple[int, list[bytes]]:
    """Check a value of a composite type; return its descriptor and its encoded fields."""
    described, at = decode.value(raw, 1)
    code = NAMES.get(described, described)
    if code not in wanted:
        raise Invalid(f"{what} has the descriptor {described!r}")
    return code, _check_fields(*_COMPOSITES[code], read(raw, at).raw)


def _check_fields(name: str, fields: tuple[Field, ...], raw: list[bytes], among: slice = slice(None)) -> list[bytes]:
    """Check the fields *among* those of a composite type; return all of them, null where *raw* has none."""
    if len(raw) > len(fields):
        raise Malformed(f"{name} has {len(fields)} fields, found {len(raw)}")
    items = [*raw, *[b"\x40"] * (len(fields) - len(raw))]
    for field, value in zip(fields[among], items[among], strict=True):
        _check(name, field, value)
    return items


def _check_node(name: str, items: list[bytes]) -> None:
    policy, properties = items[_EXPIRY_POLICY], items[_NODE_PROPERTIES]
    if policy[0] != NULL and content_of(policy) not in _EXPIRY_POLICIES:
        raise Invalid(f"{name} has the unknown expiry-policy {content_of(policy)!r}")
    if properties[0] == NULL:
        return
    for _, key, value in decode.raw_entries(properties, 0):
        if key is None:
            raise Invalid(f"dynamic-node-properties of {name} has a key that is not a symbol")
        wanted = _NODE_PROPERTY_TYPES.get(key)
        if wanted is not None and value[0] != NULL:
            _check_type(f"{key.decode('ascii', 'replace')} of {name}", wanted, value)


def _check(where: str, field: Field, value: bytes) -> None:
    code = value[0]
    if code == NULL:
        if field.mandatory:
            raise Invalid(f"{where} without {field.name}")
        return
    _check_type(f"{field.name} of {where}", field.type, value)
    if field.least or field.most is not None:
        number = _number(value)
        if number < field.least or (field.most is not None and number > field.most):
            raise Invalid(f"{field.name} of {where} is {number}, out of range")


def _check_type(what: str, wanted: Type, value: bytes) -> None:
    code = value[0]
    if code not in wanted.codes:
        raise Invalid(f"{what} is not a {wanted.name} but has the type code 0x{code:02x}")
    if wanted is _STRING:
        try:
            content_of(value).decode()
        except UnicodeDecodeError as error:
            raise Invalid(f"{what} is not UTF-8, as strings must be: {error}") from None
    if code in (0xE0, 0xF0):
        width = 1 if code == 0xE0 else 4
        if value[1 + 2 * width] not in _SYMBOL.codes:
            raise Invalid(f"{what} is not an array of symbols")
    if wanted.provided_by:
        _check_composite(what, wanted.provided_by, value)


def _number(value: bytes) -> int:
    code = value[0]
    return 1 if code == 0x41 else int.from_bytes(value[1:])


def content_of(value: bytes) -> bytes:
    """Return the octets of an encoded value, without its type and length."""
    _, begin, end = extent(value, 0)
    return value[begin:end]
