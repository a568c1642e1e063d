"""Room for bytes on their way between proton and others: not kept, so the engines of a thread share it."""

from __future__ import annotations

from .proton_ffi import ffi


class ScratchBuffer:
    """The scratch buffer of one thread. Its content is valid until the next call of any engine of the thread."""

    def __init__(self, size_bytes: int) -> None:
        """*size_bytes*: of a frame."""
        self.incoming = ffi.new("char[]", size_bytes)
        """The buffer into which proton writes incoming content."""
        self.incoming_bytes = size_bytes
        self.outgoing = bytearray(size_bytes)
        self.outgoing_pointer = ffi.from_buffer("char[]", self.outgoing)

    def grow(self, size_bytes: int) -> None:
        """Enlarge the buffers to *size_bytes*."""
        if size_bytes > self.incoming_bytes:
            self.incoming = ffi.new("char[]", size_bytes)
            self.incoming_bytes = size_bytes
