"""The frames of the SASL layer: the same for whoever asks to be let in, and whoever is asked."""

from __future__ import annotations

from . import encode
from .codec import Malformed, descriptor

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
MAX_SASL_FRAME_BYTES = 512
"""As the specification says; so little memory is ever held for a stranger."""
MECHANISMS, INIT, CHALLENGE, RESPONSE, OUTCOME = 0x40, 0x41, 0x42, 0x43, 0x44
"""What a frame is, by its descriptor."""


def first_frame(held: bytes) -> tuple[bytes, int, int] | None:
    """The first frame of *held*, its performative's code, and where the fields begin; None as long as it is not whole.

    Raises `Malformed` for what is no SASL frame, or too long for one.
    """
    if len(held) < 8:
        return None
    size, offset, kind = int.from_bytes(held[:4]), held[4] * 4, held[5]
    if not 8 <= offset <= size <= MAX_SASL_FRAME_BYTES or kind != 1:
        raise Malformed(f"no SASL frame, but size {size}, data offset {offset}, type {kind}")
    if len(held) < size:
        return None
    code, at = descriptor(held[:size], offset)
    return held[:size], code, at


def sasl_frame(code: int, *fields: bytes) -> bytes:
    """A whole frame, of fields that are encoded."""
    body = encode.described(code, encode.listed(fields))
    return (len(body) + 8).to_bytes(4) + b"\x02\x01\x00\x00" + body
