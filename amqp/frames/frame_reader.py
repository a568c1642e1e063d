"""Reader of frames between socket and proton, for what proton omits: link endpoints that resume (part 2, 2.6.13).

Proton neither shows nor sends the `unsettled` and `incomplete-unsettled` fields of an attach, or the `resume` flag of a
transfer. `Incoming` reads them in the input, which it does not change; `Outgoing` writes them in the output. All frames
of a connection are read until it is opened. After that they are read only if it has resumable links, or its container
is known to have some. Other connections have no cost.

Frames that proton will refuse are ignored: proton reports the error itself.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from ..codec import decode, encode
from ..codec.primitives import Malformed, descriptor
from ..codec.types import Described
from ..links.resume_state import ROLE_RECEIVER, UNKNOWN, Claims, state_code
from .frame_fields import ATTACH, BEGIN, DETACH, END, HEADER_BYTES, MODIFIED, TRANSFER, frame_like, read

_AMQP = b"AMQP"
"""The first bytes of a protocol header. No frame is as long as they would state."""
_UNSETTLED, _INCOMPLETE, _STATE, _RESUME = 7, 8, 7, 8
"""Places of these fields in an attach, and in a transfer."""
_DURABLE_STATE = 2
_FROM_THE_START = b"\x00\x53\x23\xc0\x03\x02\x43\x44"
"""The state `received` at the beginning of the first section, from which a resumed delivery continues."""
_MOST_MAP_ENTRIES = 1 << 16


class Incoming:
    """A reader of incoming frames. It receives all bytes before proton does."""

    def __init__(self, most_bytes: int, *, skip_bytes: int = 0) -> None:
        """Frames begin with the next byte, or *skip_bytes* behind it. *most_bytes*: of a frame."""
        self._resumed: dict[str, dict[bytes, None]] = {}
        """The delivery tags of transfers with the flag `resume`, in order, by link name."""
        self._claims: dict[tuple[str, bool], deque[Claims]] = {}
        self._resuming: dict[tuple[int, int], str] = {}
        """Channel and handle of the links on which a client sends, and may resume; their names."""
        self._most_bytes = most_bytes
        self._skip_bytes = skip_bytes
        self._held = b""

    def feed(self, data: bytes | memoryview) -> None:
        """The next bytes. The engine has asked for all it wants to know of those before."""
        self._claims.clear()
        if self._resumed:
            self._keep_last()
        held = self._held + bytes(data)
        at, end = 0, len(held)
        if self._skip_bytes:
            at = min(self._skip_bytes, end)
            self._skip_bytes -= at
        while at + HEADER_BYTES <= end:
            size = int.from_bytes(held[at : at + 4])
            if not HEADER_BYTES <= size <= self._most_bytes:
                at = end  # proton ends the connection here
                break
            if at + size > end:
                break
            if size > HEADER_BYTES:
                self._look(held[at : at + size])
            at += size
        self._held = held[at:]

    def claims(self, name: str, *, receives: bool) -> Claims:
        """Take the claims of the next attach with this name, from a peer that *receives* or sends."""
        found = self._claims.get((name, receives))
        if not found:
            return UNKNOWN
        claims = found.popleft()
        if not found:
            del self._claims[name, receives]
        return claims

    def is_resumed(self, name: str, tag: bytes) -> bool:
        """Return whether the client resumes the delivery with this tag on the link *name*."""
        return tag in self._resumed.get(name, ())

    def is_complete(self, name: str, tag: bytes) -> None:
        """Forget a delivery that has arrived completely."""
        self._resumed.get(name, {}).pop(tag, None)

    def _keep_last(self) -> None:
        """Keep the last delivery of each attached link: more of it may arrive, without the flag."""
        there = {*self._resuming.values()}
        self._resumed = {name: {next(reversed(tags)): None} for name, tags in self._resumed.items()
                         if tags and name in there}  # fmt: skip

    def _look(self, frame: bytes) -> None:
        try:
            code, at = descriptor(frame, frame[4] * 4)
            if code == TRANSFER:
                self._transfer(frame, at)
            elif code in (ATTACH, DETACH, BEGIN, END):
                self._link(code, frame, decode.read_items(frame, at))
        except (Malformed, IndexError, TypeError):
            return

    def _link(self, code: int, frame: bytes, fields: list[Any]) -> None:
        channel = int.from_bytes(frame[6:8])
        if code == ATTACH:
            self._attach(channel, fields + [None] * (_INCOMPLETE + 1 - len(fields)))
        elif code == DETACH:
            self._resuming.pop((channel, fields[0]), None)
        else:
            for place in [place for place in self._resuming if place[0] == channel]:
                del self._resuming[place]

    def _attach(self, channel: int, fields: list[Any]) -> None:
        name, handle, receives = fields[0], fields[1], fields[2] is ROLE_RECEIVER
        states: dict[bytes, int] = {}
        failures: dict[bytes, tuple[bool, bool]] = {}
        complete = not fields[_INCOMPLETE]
        if isinstance(fields[_UNSETTLED], dict):
            for tag, state in fields[_UNSETTLED].items():
                if len(states) == _MOST_MAP_ENTRIES or not isinstance(tag, bytes):
                    complete = False
                    break
                states[tag] = state_code(state)
                if states[tag] == MODIFIED and isinstance(state.value, list):
                    failed, undeliverable = [*state.value, None, None][:2]
                    failures[tag] = failed is True, undeliverable is True
        self._claims.setdefault((name, receives), deque()).append(Claims(states, complete, failures))
        target = fields[6].value if isinstance(fields[6], Described) else []
        if not receives and len(target) > 1 and target[1] == _DURABLE_STATE:
            self._resuming[channel, handle] = name

    def _transfer(self, frame: bytes, at: int) -> None:
        if not self._resuming:
            return
        raw = read(frame, at).raw
        if len(raw) <= _RESUME or raw[_RESUME] not in (b"\x41", b"\x56\x01"):
            return
        handle, tag = (decode.complete(raw[place]) for place in (0, 2))
        name = self._resuming.get((int.from_bytes(frame[6:8]), handle))
        if name is not None and isinstance(tag, bytes):
            self._resumed.setdefault(name, {})[tag] = None


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
            elif self.resumed and held[at + 8 : at + 11] == b"\x00\x53\x14":
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
        """Add the flag, and the position where the message restarts, to the first transfer of a resumed delivery."""
        raw, end = read(frame, 11)
        tag = decode.complete(raw[2]) if len(raw) > 2 else None
        if tag not in self.resumed:
            return frame
        self.resumed.remove(tag)
        raw += [encode.NULL] * (_RESUME + 1 - len(raw))
        raw[_STATE], raw[_RESUME] = _FROM_THE_START, encode.boolean(True)
        return frame_like(frame, TRANSFER, raw, frame[end:])
