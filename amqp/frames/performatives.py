"""The frames a client of AMQP 1.0 sends, and those it reads: bytes in, values out.

offset  size  of a frame
     0     4  size of all of it
     4     1  where the performative stands, in words of 4 bytes
     5     1  0: AMQP, 1: SASL
     6     2  channel
     8        performative, then what is left is payload
"""

from __future__ import annotations

import struct
from typing import Any

from ..codec import encode
from ..codec.decode import read_items
from ..codec.header import FORMATTED, without_format
from ..codec.primitives import NAMES
from ..codec.types import Described, Uint, Ulong

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SASL_MECHANISMS, SASL_INIT, SASL_CHALLENGE, SASL_RESPONSE, SASL_OUTCOME = range(0x40, 0x45)
SOURCE, TARGET, COORDINATOR = 0x28, 0x29, 0x30
ACCEPTED, REJECTED, RELEASED, MODIFIED = range(0x24, 0x28)
DECLARE, DISCHARGE, DECLARED, TRANSACTIONAL = 0x31, 0x32, 0x33, 0x34
ERROR = 0x1D
HEADER_BYTES = 8
_TRANSFER_BYTES = 96
"""Room for the performative of a transfer, with the id of a transaction."""
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
EMPTY_FRAME = struct.pack(">IBBH", HEADER_BYTES, 2, 0, 0)
"""An empty frame, which only shows that the sender is alive."""
ACCEPTED_STATE = Described(Ulong(ACCEPTED), [])


def described(code: int, *fields: Any) -> Described:
    """A performative, or a part of one; None at its end may be left out."""
    return Described(Ulong(code), [*fields])


def frame(code: int, *fields: Any, payload: bytes = b"", kind: int = 0) -> bytes:
    body = encode.value(described(code, *fields)) + payload
    return struct.pack(">IBBH", HEADER_BYTES + len(body), 2, kind, 0) + body


def parts(size_bytes: int, max_frame: int) -> list[tuple[int, int]]:
    """Return the start and the end of the payload of each transfer of a message, at least one.

    *max_frame*: the peer's limit.
    """
    room = max_frame - HEADER_BYTES - _TRANSFER_BYTES
    return [(at, min(at + room, size_bytes)) for at in range(0, max(size_bytes, 1), room)]


def transfers(handle: int, delivery_id: int, message: bytes, max_frame: int) -> list[bytes]:
    """The frames of a message; their delivery-tag is the delivery-id."""
    number, message_format = delivery_id & 0xFFFFFFFF, 0
    if message.startswith(FORMATTED):
        message_format, message = without_format(message)
    about: tuple[Any, ...] = Uint(number), number.to_bytes(4), Uint(message_format), False
    frames = []
    for begin, end in parts(len(message), max_frame):
        frames.append(frame(TRANSFER, Uint(handle), *about, end < len(message), payload=message[begin:end]))
        about = (None,) * 4
    return frames


def disposition(first: int, last: int, settled: bool, state: Described | None = ACCEPTED_STATE) -> bytes:
    """A receiver's word on deliveries."""
    return frame(DISPOSITION, True, Uint(first), Uint(last), settled, state)


def fields_of(data: bytes, at: int, least: int) -> list[Any]:
    """The fields of the performative whose list stands at *at*; None for what was left out. Raises `Malformed`."""
    found = read_items(data, at)
    return found + [None] * (least - len(found))


def error_text(error: Any) -> str:
    """Return an AMQP error as `name: description`; empty without an error."""
    if not isinstance(error, Described) or not isinstance(error.value, list) or not error.value:
        return ""
    name, text = [*error.value, None][:2]
    return f"{name}: {text}" if text else str(name)


def state_of(state: Any) -> tuple[int, list[Any]]:
    """Return the descriptor and the fields of a delivery state; 0 without a state."""
    if not isinstance(state, Described):
        return 0, []
    kind = state.descriptor
    code = kind if isinstance(kind, int) else NAMES.get(str(kind), -1)
    return code, state.value if isinstance(state.value, list) else []
