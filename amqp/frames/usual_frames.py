"""Patterns of the flows and dispositions that clients usually send, to recognize valid ones without decoding them.

A pattern accepts only what the field tables of `frame_fields` accept: an AMQP list with a one-byte size, fields in
their compact or full encodings, trailing fields left out. Everything else is decoded field by field.
"""

from __future__ import annotations

import re

from .frame_fields import DISPOSITION, FLOW

_UINT = rb"\x43|\x52.|\x70.{4}"
_BOOLEAN = rb"\x41|\x42|\x56[\x00\x01]"
_NULL = rb"|\x40"
_OUTCOME = rb"\x40|\x00\x53[\x24\x26\x27](?:\x45|\xc0\x01\x00)"
_HEAD_BYTES = 8
"""The size of the header of a frame without extended header."""
_FIRST_FIELD = 6
"""Offset in a performative: descriptor, list code, size and count come before it."""


def _pattern(code: int, mandatory: list[bytes], optional: list[bytes]) -> re.Pattern[bytes]:
    """Return the pattern of a performative: a group per field, *optional* ones may be missing from the end."""
    rest = b""
    for field in reversed(optional):
        rest = rb"(?:(" + field + _NULL + b")" + rest + b")?"
    fields = b"".join(b"(" + field + b")" for field in mandatory)
    return re.compile(rb"\x00\x53" + bytes([code]) + rb"\xc0.." + fields + rest, re.DOTALL)


_DISPOSITION = _pattern(DISPOSITION, [_BOOLEAN, _UINT], [_UINT, _BOOLEAN, _OUTCOME, _BOOLEAN])
_FLOW = _pattern(FLOW, [_UINT + _NULL, _UINT, _UINT, _UINT], [_UINT, _UINT, _UINT, _UINT, _BOOLEAN, _BOOLEAN])
_TRUE = (b"\x41", b"\x56\x01")
_ACCEPTED = b"\x00\x53\x24"
NO_HANDLE = -1


def accepted_by(data: bytes | memoryview, at: int, stop: int) -> int | None:
    """Return how many deliveries the frame from *at* to *stop* settles as accepted, of those that this side sent.

    0 for a disposition with another effect; None if the frame is no usual disposition of an ascending range.
    """
    found = _DISPOSITION.match(data, at + _HEAD_BYTES, stop)
    if found is None or not _is_complete(data, at, stop, found):
        return None
    role, first, last, settled, state = found.group(1, 2, 3, 4, 5)
    count = 1
    if last and last != b"\x40":
        count += (int.from_bytes(last[1:]) - int.from_bytes(first[1:])) & 0xFFFFFFFF
        if count > 1 << 31:
            return None
    return count if role in _TRUE and settled in _TRUE and state and state[:3] == _ACCEPTED else 0


def flow_of(data: bytes | memoryview, at: int, stop: int) -> tuple[int, int] | None:
    """Return the handle of a usual flow, `NO_HANDLE` if it is the session's; None for any other frame.

    Also returns the delivery-count that ends its credit. A flow with `echo` or `drain` may need an answer: not usual.
    """
    found = _FLOW.match(data, at + _HEAD_BYTES, stop)
    if found is None or not _is_complete(data, at, stop, found):
        return None
    handle, *counts, drain, echo = found.group(5, 6, 7, 9, 10)
    if echo in _TRUE or drain in _TRUE:
        return None
    limit = sum([int.from_bytes(raw[1:]) for raw in counts if raw])
    return NO_HANDLE if not handle or handle == b"\x40" else int.from_bytes(handle[1:]), limit


def _is_complete(data: bytes | memoryview, at: int, stop: int, found: re.Match[bytes]) -> bool:
    """Return whether the match ends with the frame, and agrees with the size and the count of its list."""
    fields_at = at + _HEAD_BYTES + _FIRST_FIELD
    return (
        found.end() == stop and data[fields_at - 2] == stop - fields_at + 1 and data[fields_at - 1] == found.lastindex
    )
