"""What goes through a connection on which links resume: read on its way to proton, and written on its way from it.

`frames` knows what stands in the frames; here it is known where they begin.
"""

from __future__ import annotations

from collections.abc import Callable

from .frames import Incoming, Outgoing
from .proton import Pointer, ffi, lib

Push = Callable[[bytes | memoryview], None]
_AMQP_HEADER_BYTES = 8
_PEEK_BYTES = 64 << 10


class Aligning:
    """Finds where frames begin in what comes in the middle of a connection."""

    def __init__(self, transport: Pointer, *, is_new: bool = False) -> None:
        self._transport = transport
        self._aligned = is_new
        """A frame begins where the next bytes do, or was found to have begun before."""

    def push(self, data: bytes | memoryview, push: Push) -> int:
        """Give proton as much of *data* as stands before the first frame to begin in it; how much that was."""
        at = 0
        if not self._aligned:  # byte by byte to the end of a frame, which proton counts
            count = lib.pn_transport_get_frames_input(self._transport)
            while at < len(data) and not self._aligned:
                push(bytes(data[at : at + 1]))
                at += 1
                self._aligned = lib.pn_transport_get_frames_input(self._transport) != count
        return at


class ReadAlong:
    """What comes in. From the beginning of a connection, or from the next frame on."""

    def __init__(self, transport: Pointer, most_bytes: int, *, is_new: bool) -> None:
        """*most_bytes*: of a frame."""
        self.frames = Incoming(most_bytes, skip_bytes=_AMQP_HEADER_BYTES if is_new else 0)
        self._align = Aligning(transport, is_new=is_new)

    def push(self, data: bytes | memoryview, push: Push) -> None:
        """Give *data* to proton, by *push*, and look at it before."""
        at = self._align.push(data, push)
        if at < len(data):
            self.frames.feed(data[at:])
            push(data[at:])


class WriteAlong:
    """What goes out, from the next frame on."""

    def __init__(self, transport: Pointer, most_bytes: int) -> None:
        """*most_bytes*: of a frame, if the client has not said."""
        self.frames = Outgoing(int(lib.pn_transport_get_remote_max_frame(transport)) or most_bytes)
        self._transport = transport
        self._buffer = bytearray(_PEEK_BYTES)
        self._pointer = ffi.from_buffer("char[]", self._buffer)
        self._ready = self.frames.ready
        while data := self._take():  # where proton has no more to say, a frame has ended
            self._ready.append(data)

    def output(self) -> memoryview:
        """The next bytes to send, empty if there are none now."""
        while not self._ready:
            data = self._take()
            if not data:
                return memoryview(b"")
            self.frames.feed(data)
        return memoryview(self._ready[0])

    def write_out(self) -> None:
        """Look at all that proton has to say now."""
        while data := self._take():
            self.frames.feed(data)

    def consumed(self, size_bytes: int) -> None:
        """So much of `output` was sent."""
        self._ready[0] = self._ready[0][size_bytes:]
        if not self._ready[0]:
            del self._ready[0]

    def is_waiting(self) -> bool:
        """Whether there is something that proton does not know to be unsent."""
        return bool(self._ready)

    def _take(self) -> bytes:
        pending = lib.pn_transport_pending(self._transport)
        if pending <= 0:
            return b""
        size = max(0, lib.pn_transport_peek(self._transport, self._pointer, min(pending, _PEEK_BYTES)))
        lib.pn_transport_pop(self._transport, size)
        return bytes(self._buffer[:size])

