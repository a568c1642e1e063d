"""Encoded types of AMQP 1.0 part 4: a coordinator's requests, and the state of a delivery in a transaction.

descriptor  list               fields
      0x31  declare            global-id
      0x32  discharge          txn-id, fail
      0x33  declared           txn-id
      0x34  transactional-state  txn-id, outcome

Pure: bytes in, values out. Descriptors may also be symbols, as in the requests of proton's Python client.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import decode, encode
from . import primitives as codec
from .primitives import Malformed
from .types import Described

DECLARED = 0x33
TRANSACTIONAL = 0x34

_DECLARE, _DISCHARGE = 0x31, 0x32
_AMQP_VALUE, _FIRST_SECTION, _LAST_SECTION = 0x77, 0x70, 0x78
_ERROR = 0x1D
_REJECTED, _MODIFIED = 0x25, 0x27
_NULL = b"\x40"


class Declare(NamedTuple):
    """A client begins a transaction."""

    global_id: bytes = b""
    """The global ID of a distributed transaction; empty for a local one."""


class Discharge(NamedTuple):
    """A client ends a transaction."""

    txn_id: bytes
    fail: bool = False
    """True to roll the transaction back."""


class State(NamedTuple):
    """A transactional state: what becomes of a delivery with the commit."""

    txn_id: bytes
    outcome: int = 0
    """The code of the outcome; 0 without one."""
    failed: bool = False
    undeliverable: bool = False
    error: tuple[str, str, bytes] | None = None
    """Condition, description and encoded info of a rejection."""
    annotations: bytes = b""
    """The annotations of the outcome modified, as an encoded map."""


def read_request(message: bytes) -> Declare | Discharge:
    """Decode the request in a message to the coordinator. Raises `Malformed`."""
    at = 0
    while at < len(message):
        section, at = codec.descriptor(message, at)
        if section == _AMQP_VALUE:
            return _read_body(message, at)
        if not _FIRST_SECTION <= section <= _LAST_SECTION:
            raise Malformed(f"a message has no section 0x{section:02x}")
        at = codec.extent(message, at)[2]
    raise Malformed("a coordinator takes declare and discharge, as an AMQP value")


def _read_body(message: bytes, at: int) -> Declare | Discharge:
    kind, at = codec.descriptor(message, at)
    fields, _ = codec.read_list(message, at)
    if kind == _DECLARE:
        global_id, *more = fields or [None]
        if isinstance(global_id, str):
            global_id = global_id.encode()
        if more or (global_id is not None and not (isinstance(global_id, bytes) and global_id)):
            raise Malformed("a declare has the field global-id only: binary or a string here, and not empty")
        return Declare(global_id or b"")
    if kind == _DISCHARGE:
        txn_id, fail, *more = fields + [None] * (2 - len(fields))
        if more or not isinstance(txn_id, bytes) or not isinstance(fail, bool | None):
            raise Malformed("a discharge has the fields txn-id, a binary, and fail, a boolean")
        return Discharge(txn_id, fail is True)
    raise Malformed(f"a coordinator takes declare and discharge, not 0x{kind:02x}")


def read_state(fields: bytes) -> State:
    """The list of a transactional state. Raises `Malformed`."""
    code, at, end = codec.extent(fields, 0)
    txn_id, at = codec.read(fields[:end], at + (1 if code == 0xC0 else 4))
    if not isinstance(txn_id, bytes):
        raise Malformed("a transactional state names its transaction by a binary")
    if fields[at:end] in (b"", _NULL):
        return State(txn_id)
    outcome, at = codec.descriptor(fields[:end], at)
    if outcome not in (_MODIFIED, _REJECTED):
        return State(txn_id, outcome)
    first, second, third, *_ = [*decode.read_items(fields[:end], at), None, None, None]
    if outcome == _MODIFIED:
        return State(txn_id, outcome, first is True, second is True, annotations=encode.value(third) if third else b"")
    if not isinstance(first, Described):
        return State(txn_id, outcome)
    fields_of_error: list[Any] = [*first.value, None, None]
    condition, description, info = fields_of_error[:3]
    error = str(condition), str(description or ""), encode.value(info) if info else b""
    return State(txn_id, outcome, error=error)


def write_state(txn_id: bytes, outcome: int, condition: str = "", description: str = "", info: bytes = b"") -> bytes:
    """The list of a transactional state; with *condition* the outcome is one that carries an error."""
    fields = encode.symbol(condition), encode.string(description), info or encode.NULL
    error = encode.described(_ERROR, encode.listed(fields))
    state = encode.described(outcome, encode.listed((error,) if condition else ()))
    return encode.listed((encode.binary(txn_id), state))


def write_id(txn_id: bytes) -> bytes:
    """The list of the outcome `declared`, and of the state of a delivery that has no outcome in its transaction yet."""
    return encode.listed((encode.binary(txn_id),))
