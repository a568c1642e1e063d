"""Flows that name a transaction: deliveries for their credit are acquired in it (part 4, 4.4.3).

Proton reads the properties of a flow and does not expose them. On a connection with a link to the coordinator, frames
are therefore read on their way to proton, and such a flow is pushed separately: the change of credit that proton then
reports comes from that flow. No peer knows the ID of a transaction before the frame that requests it has been answered.
A flow with one therefore never precedes the first frame whose beginning is found.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from ..codec import decode
from ..codec.primitives import Malformed, descriptor
from ..native.proton_ffi import Pointer
from .resume_transport import Aligning, Push

_FLOW = 0x13
_HEAD = Struct(">I4xHB")
"""A frame's size, how its performative's descriptor is written, and the descriptor, if it is `_SMALL`."""
_SMALL = 0x0053
_HANDLE, _PROPERTIES = 4, 10
"""Positions of the fields handle and properties in a flow."""
_HEADER_BYTES, _LEAST_BYTES = 8, 11
"""The size of a frame header, and the minimum size of a frame with a performative."""
_TXN_ID = "txn-id"

Said = Callable[[bytes | None], None]
"""Called after bytes were pushed: with None, or with the transaction that the flow names, empty for none any more."""


class NamingFlows:
    """All that comes in, from the next frame on."""

    def __init__(self, transport: Pointer, most_bytes: int) -> None:
        """*most_bytes*: the maximum size of a frame with a flow."""
        self._align = Aligning(transport)
        self._most_bytes = most_bytes
        self._held = b""
        """The beginning of a frame that may be such a flow; proton has it."""
        self._skip_bytes = 0
        """The remaining bytes of a frame that is not such a flow."""

    def push(self, data: bytes | memoryview, push: Push, said: Said) -> None:
        """Give *data* to proton, by *push*."""
        begun = self._align.push(data, push)
        data = bytes(data[begun:]) if begun else bytes(data)
        given = len(self._held)
        held = self._held + data if given else data
        at, end = self._skip_bytes, len(held)
        while at + _LEAST_BYTES <= end:
            size, written, code = _HEAD.unpack_from(held, at)
            if not _HEADER_BYTES <= size <= self._most_bytes:
                at = end  # proton ends the connection here
                break
            if (written == _SMALL and code != _FLOW) or size < _LEAST_BYTES:
                at += size
                continue
            if at + size > end:
                break
            name = _named(held[at : at + size])
            if name is not None:
                if given < at:
                    push(held[given:at])
                said(None)
                push(held[max(at, given) : at + size])
                said(name)
                given = at + size
            at += size
        self._skip_bytes = max(0, at - end)
        self._held = held[at:]
        if given < end:
            push(held[given:])


def _named(frame: bytes) -> bytes | None:
    """Return the transaction id in a link's flow: empty without one, `malformed` for an invalid one.

    Returns None for all other frames, and for flows without properties.
    """
    try:
        code, at = descriptor(frame, frame[4] * 4)
        if code != _FLOW:
            return None
        fields: list[Any] = decode.read_items(frame, at)
        if len(fields) <= _PROPERTIES or fields[_HANDLE] is None or not isinstance(fields[_PROPERTIES], dict):
            return None
    except (Malformed, IndexError, TypeError):
        return None  # proton reports it
    name = fields[_PROPERTIES].get(_TXN_ID)
    if name is None:
        return b""
    return name if isinstance(name, bytes) and name else b"malformed"
