"""Messages that identify themselves: a number, a body derived from it, and a header with the delivery marks."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from cairnmq.amqp.codec import header

_BODY = b"\x00\x53\x75\xb0"


class Letter(NamedTuple):
    """The parts of a numbered message that a client checks."""

    number: int
    size_bytes: int
    is_marked: bool
    """True if the header indicates a possible earlier delivery."""
    is_complete: bool
    """True if the content equals the content that was sent."""


def written(number: int, size_bytes: int, durable: bool = True) -> bytes:
    """Return the bytes of a message whose header indicates no earlier delivery."""
    head = b"\x00\x53\x70\xc0\x06\x04" + (b"\x41" if durable else b"\x42") + b"\x50\x04\x40\x41"
    body = number.to_bytes(4) + _filling(number, size_bytes)
    return head + _BODY + len(body).to_bytes(4) + body


def read(content: Any) -> Letter:
    """Parse a numbered message. *content*: bytes, or an object that is read in pieces."""
    data = content if isinstance(content, bytes) else b"".join(map(content.piece, range(content.pieces)))
    head = header.parse(data)
    at = data.index(_BODY) + 8
    number, filling = int.from_bytes(data[at : at + 4]), data[at + 4 :]
    (length,) = struct.unpack_from(">I", data, at - 4)
    is_complete = length == len(data) - at and filling == _filling(number, len(filling))
    return Letter(number, len(filling), not head.first_acquirer or head.delivery_count > 0, is_complete)


def _filling(number: int, size_bytes: int) -> bytes:
    word = (number * 2_654_435_761 & 0xFFFFFFFF).to_bytes(4)
    return (word * (size_bytes // 4 + 1))[:size_bytes]
