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
_FIRST, _LAST, _HANDLE, _COUNT, _CREDIT, _DRAIN, _ECHO = 2, 3, 5, 6, 7, 9, 10
"""Groups."""
_TRUE = (b"\x41", b"\x56\x01")
NO_HANDLE = -1


def is_valid_disposition(data: bytes | memoryview, at: int, stop: int) -> bool:
    """Return True if the frame from *at* to *stop* is a usual disposition of an ascending range."""
    found = _DISPOSITION.match(data, at + _HEAD_BYTES, stop)
    if found is None or not _is_complete(data, at, stop, found):
        return False
    last = found.group(_LAST)
    if not last or last == b"\x40":
        return True
    return (int.from_bytes(last[1:]) - int.from_bytes(found.group(_FIRST)[1:])) & 0xFFFFFFFF < 1 << 31


def handle_of_flow(data: bytes | memoryview, at: int, stop: int) -> int | None:
    """Return the handle of a usual flow, `NO_HANDLE` if it is the session's; None for any other frame.

    A flow with `echo` or `drain` is not usual: it may need an answer.
    """
    found = _FLOW.match(data, at + _HEAD_BYTES, stop)
    if found is None or not _is_complete(data, at, stop, found):
        return None
    if found.group(_ECHO) in _TRUE or found.group(_DRAIN) in _TRUE:
        return None
    handle = found.group(_HANDLE)
    return NO_HANDLE if not handle or handle == b"\x40" else int.from_bytes(handle[1:])


def limit_of_flow(data: bytes | memoryview, at: int, stop: int) -> int:
    """Return the delivery-count that ends the credit of a flow with a `handle_of_flow`."""
    found = _FLOW.match(data, at + _HEAD_BYTES, stop)
    return sum([int.from_bytes(raw[1:]) for raw in found.group(_COUNT, _CREDIT) if raw]) if found else 0


def _is_complete(data: bytes | memoryview, at: int, stop: int, found: re.Match[bytes]) -> bool:
    """Return whether the match ends with the frame, and agrees with the size and the count of its list."""
    fields_at = at + _HEAD_BYTES + _FIRST_FIELD
    return (
        found.end() == stop and data[fields_at - 2] == stop - fields_at + 1 and data[fields_at - 1] == found.lastindex
    )
