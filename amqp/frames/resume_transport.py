"""Bytes beside proton: read on their way to it, and taken from it before they are sent.

On a connection with links that resume, `frames` reads and changes the frames themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ..native.proton_ffi import LOCAL_UNINIT, Pointer, lib
from ..native.scratch_buffer import ScratchBuffer
from .frame_reader import Incoming, Outgoing

Push = Callable[[bytes | memoryview], None]
_AMQP_HEADER_BYTES = 8


class Aligning:
    """Finds where frames begin in what comes in the middle of a connection."""

    def __init__(self, transport: Pointer, *, is_new: bool = False) -> None:
        self._transport = transport
        self._aligned = is_new
        """A frame begins where the next bytes do, or was found to have begun before."""

    def push(self, data: bytes | memoryview, push: Push) -> int:
        """Pass the part of *data* before the first frame that begins in it to proton; return its size."""
        at = 0
        if not self._aligned:  # byte by byte to the end of a frame, which proton counts
            count = lib.pn_transport_get_frames_input(self._transport)
            while at < len(data) and not self._aligned:
                push(bytes(data[at : at + 1]))
                at += 1
                self._aligned = lib.pn_transport_get_frames_input(self._transport) != count
        return at


class ReadAlong:
    """A reader of input on its way to proton, from the beginning of a connection, or from the next frame on."""

    def __init__(self, transport: Pointer, most_bytes: int, *, is_new: bool) -> None:
        """*most_bytes*: the maximum size of an incoming frame."""
        self.frames = Incoming(most_bytes, skip_bytes=_AMQP_HEADER_BYTES if is_new else 0)
        self._align = Aligning(transport, is_new=is_new)

    def push(self, data: bytes | memoryview, push: Push) -> None:
        """Read *data*, then pass it to proton by *push*."""
        at = self._align.push(data, push)
        if at < len(data):
            self.frames.feed(data[at:])
            push(data[at:])


class TakenOutput:
    """Output that was taken from proton before it is sent, because frames of it are read, changed or added.

    Most connections never have any: theirs goes from proton to the socket.
    """

    def __init__(self, transport: Pointer, scratch: ScratchBuffer) -> None:
        self.frames: Outgoing | None = None
        """Changes what is taken; set on a connection with links that resume."""
        self._transport = transport
        self._scratch = scratch
        self.ready: deque[bytes] = deque()
        """Output taken from proton, which counts it as sent, and not yet written to the socket."""

    def begin_changes(self, most_bytes: int) -> None:
        """Read and change all frames from the next one on; *most_bytes*: of a frame.

        Before the open of this side, there is no output but the AMQP header. Proton then forgets endpoints that wait
        to be opened if its output is asked for.
        """
        if not lib.pn_connection_state(lib.pn_transport_connection(self._transport)) & LOCAL_UNINIT:
            self.take()
        self.frames = Outgoing(most_bytes)

    def output(self) -> memoryview:
        """The next bytes to send, empty if nothing is taken now."""
        if self.frames is not None:
            while not self.ready and (data := self._next()):
                self.add(data)
        return memoryview(self.ready[0]) if self.ready else memoryview(b"")

    def consumed(self, size_bytes: int) -> None:
        """Remove sent bytes from `output`."""
        rest = self.ready[0][size_bytes:]
        if rest:
            self.ready[0] = rest
        else:
            self.ready.popleft()

    def take(self) -> None:
        """Take all pending output of proton. Then a frame is complete, and proton has processed all endpoints."""
        while data := self._next():
            self.add(data)

    def read(self) -> bytes:
        """Return the output of proton since `take`; the caller adds it, or a replacement."""
        data = b""
        while more := self._next():
            data += more
        return data

    def add(self, data: bytes) -> None:
        """Send *data* after everything that was taken."""
        if self.frames is None:
            if data:
                self.ready.append(data)
        else:
            self.frames.feed(data)
            self.ready.extend(self.frames.ready)
            self.frames.ready.clear()

    def _next(self) -> bytes:
        pending = lib.pn_transport_pending(self._transport)
        if pending <= 0:
            return b""
        out = self._scratch.outgoing
        size = max(0, lib.pn_transport_peek(self._transport, self._scratch.outgoing_pointer, min(pending, len(out))))
        lib.pn_transport_pop(self._transport, size)
        return bytes(memoryview(out)[:size])
