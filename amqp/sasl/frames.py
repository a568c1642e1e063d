"""The frames of the SASL layer, for clients and servers."""

from __future__ import annotations

from ..codec import encode
from ..codec.primitives import Malformed, descriptor
from ..frames.frame_fields import MECHANISMS, OUTCOME, check, read

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
MAX_SASL_FRAME_BYTES = 512
"""The maximum size of a SASL frame in the specification, which limits the memory for unauthenticated peers."""


def first_frame(held: bytes, start: int = 0) -> tuple[bytes, int, int] | None:
    """The frame at *start* of *held*, its performative's code, and where its fields begin; None if it is incomplete.

    Raises `Malformed` for what is no SASL frame, or too long for one, and `Invalid` for its fields.
    """
    if len(held) < start + 8:
        return None
    size, offset, kind = int.from_bytes(held[start : start + 4]), held[start + 4] * 4, held[start + 5]
    if not 8 <= offset <= size <= MAX_SASL_FRAME_BYTES or kind != 1:
        raise Malformed(f"no SASL frame, but size {size}, data offset {offset}, type {kind}")
    if len(held) < start + size:
        return None
    frame = held[start : start + size]
    code, at = descriptor(frame, offset)
    if MECHANISMS <= code <= OUTCOME:
        check(code, read(frame, at).raw)
    return frame, code, at


def sasl_frame(code: int, *fields: bytes) -> bytes:
    """Return a complete frame with encoded fields."""
    body = encode.described(code, encode.listed(fields))
    return (len(body) + 8).to_bytes(4) + b"\x02\x01\x00\x00" + body
