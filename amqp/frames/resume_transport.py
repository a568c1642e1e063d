"""Output of proton, taken before it is sent, because frames of it are read, changed or added.

Proton does not send the `unsettled` and `incomplete-unsettled` fields of an attach, or the `resume` flag and the
`message-format` of a transfer (part 2, 2.6.13, 2.7.5). `Outgoing` writes them in the output of connections that need
them. `FrameCheck` reads them in
the input.
"""

from __future__ import annotations

from collections import deque

from ..codec import decode, encode
from ..codec.header import without_format
from ..native.proton_ffi import LOCAL_UNINIT, Pointer, lib
from ..native.scratch_buffer import ScratchBuffer
from .frame_fields import ATTACH, HEADER_BYTES, TRANSFER, frame_like, read

_AMQP = b"AMQP"
"""The first bytes of a protocol header. No frame is as long as they would state."""
_UNSETTLED, _INCOMPLETE = 7, 8
_TAG, _FORMAT, _MORE, _STATE, _RESUME = 2, 3, 5, 7, 8
"""Places of these fields in an attach, and in a transfer."""
_TRUE = b"\x41"
_FROM_THE_START = b"\x00\x53\x23\xc0\x03\x02\x43\x44"
"""The state `received` at the beginning of the first section, from which a resumed delivery continues."""


class Outgoing:
    """A writer of outgoing frames: proton's bytes go in by `feed`, and come out as `ready`."""

    def __init__(self, most_bytes: int) -> None:
        """Frames begin with the next byte. *most_bytes*: of a frame the peer takes."""
        self.ready: list[bytes] = []
        self.unsettled: dict[tuple[str, bool], dict[bytes, bytes]] = {}
        """By link name, and whether this side receives on it: tags and states for the next attach of this side."""
        self.incomplete: set[tuple[str, bool]] = set()
        """Links whose attach had no room for all of their unsettled deliveries."""
        self.resumed: set[bytes] = set()
        """Tags of deliveries whose next transfer gets the flag `resume`; no two links of this side share a tag."""
        self.formats: dict[bytes, int] = {}
        """Message-formats other than 0 of deliveries whose last transfer was not written, by tag."""
        self._most_bytes = most_bytes
        self._held = b""

    def feed(self, data: bytes) -> None:
        held = self._held + data
        at, begin, end = 0, 0, len(held)
        while at + 4 <= end:
            is_header = held.startswith(_AMQP, at)
            size = HEADER_BYTES if is_header else int.from_bytes(held[at : at + 4])
            if at + size > end:
                break
            change = None
            if is_header:
                pass
            elif self.unsettled and held[at + 8 : at + 11] == b"\x00\x53\x12":
                change = self._attach
            elif (self.resumed or self.formats) and held[at + 8 : at + 11] == b"\x00\x53\x14":
                change = self._transfer
            if change is not None:
                if begin < at:
                    self.ready.append(held[begin:at])
                self.ready.append(change(held[at : at + size]))
                begin = at + size
            at += size
        if begin < at:
            self.ready.append(held[begin:at])
        self._held = held[at:]

    def note_format(self, tag: bytes, content: bytes) -> bytes:
        """Write the message-format of a delivery that begins with *content* in its transfers; return its wire form."""
        message_format, content = without_format(content)
        if message_format:
            self.formats[tag] = message_format
        return content

    def _attach(self, frame: bytes) -> bytes:
        raw = read(frame, 11).raw
        key = decode.complete(raw[0]), raw[2] == b"\x41"
        states = self.unsettled.pop(key, None)
        if not states:
            return frame
        raw += [encode.NULL] * (_INCOMPLETE + 1 - len(raw))
        room = self._most_bytes - len(frame) - 64
        entries: list[bytes] = []
        for tag, state in states.items():
            entry = encode.binary(tag) + state
            room -= len(entry)
            if room < 0:
                raw[_INCOMPLETE] = encode.boolean(True)
                self.incomplete.add(key)
                break
            entries.append(entry)
        raw[_UNSETTLED] = encode.mapped_entries(entries)
        return frame_like(frame, ATTACH, raw)

    def _transfer(self, frame: bytes) -> bytes:
        """Add the message-format of the delivery.

        Add the flag, and the position where the message restarts, to the first transfer of a resumed delivery.
        """
        raw, end = read(frame, 11)
        tag = decode.complete(raw[_TAG]) if len(raw) > _TAG else None
        if tag not in self.resumed and tag not in self.formats:
            return frame
        raw += [encode.NULL] * (_RESUME + 1 - len(raw))
        if message_format := self.formats.get(tag):
            raw[_FORMAT] = encode.uint(message_format)
            if raw[_MORE] != _TRUE:
                del self.formats[tag]
        if tag in self.resumed:
            self.resumed.remove(tag)
            raw[_STATE], raw[_RESUME] = _FROM_THE_START, encode.boolean(True)
        return frame_like(frame, TRANSFER, raw, frame[end:])


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
