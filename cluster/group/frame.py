"""Encodes and decodes the frames of the group, each one multicast.

    offset  size  field
        0     4  crc32c       of every byte after this field
        4     3  magic        "CMg"
        7     1  version      of this format
        8     1  kind         1 hello, 2 welcome, 3 events, 4 lost, 5 refusal, 6 expulsion
        9     1  zero
       10     2  count        of events, or of members in a welcome
       12     8  incarnation  of the sender
       20     8  seq          events: the frame's number in this incarnation, from 1; without events: the last number
                              lost: the missing number
       28     8  received     the last of its own events frames that the sender received, with all before it
       36     8  view         the sender's configuration when it made the frame
       44     8  state        the hash of the history of that configuration; view and state are 0 outside of a group
       52        body

    hello    ring node u32, ring seq u64, digest of the members u64, last view u64, configured members u32, flags u8;
             UTF-8: the configuration that all members must share (`config_check`)
    welcome  node u32, pid u32, incarnation u64 of the admitted member; position u64, flags u8; view and state in the
             header are those of the configuration that admitted it;
             count times: node u32, pid u32, incarnation u64, next seq u64 (0: its frames are no longer accepted)
    events   count sizes u32, then the payloads
    lost     no body
    refusal  node u32, pid u32, incarnation u64 of the refused process; UTF-8: the reason
    expulsion
             node u32, pid u32, incarnation u64 of the silent member; its next seq u64, as received by the sender

All integers are little-endian. A hello is valid only in the ring, and among the members, that its sender knew, so a
late hello has no effect. Decoding is pure; `BadFrame` carries the reason.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from crc32c import crc32c

from .bus import BusAddress, RingId
from .group import MAX_PAYLOAD_BYTES, GroupError
from .member_id import MemberId

VERSION = 3
MAGIC = b"CMg"
HELLO, WELCOME, EVENTS, LOST, REFUSAL, EXPULSION = 1, 2, 3, 4, 5, 6
FORCED = 1
"""The flag of a hello, and of a group, that an operator declared large enough."""
LARGEST = 1 << 62
"""The limit of all counts: a forged count cannot make receivers count beyond the size of a frame."""
MAX_EVENTS = 0xFFFF
MAX_MEMBERS = 1024
MAX_TEXT_BYTES = 4096
"""The maximum length of a text in a frame."""

_HEAD = struct.Struct("<I3sBBBHQQQQQ")
_HELLO = struct.Struct("<IQQQIB")
_WELCOME = struct.Struct("<IIQQB")
_ENTRY = struct.Struct("<IIQQ")
_TARGET = struct.Struct("<IIQ")
HEAD_BYTES = _HEAD.size


class BadFrame(GroupError):
    """The bytes are not a valid frame."""

    def __init__(self, reason: str) -> None:
        super().__init__("cluster group", f"invalid frame: {reason}")


class OtherVersion(BadFrame):
    """A frame of another version of CairnMQ."""

    def __init__(self, version: int) -> None:
        self.version = version
        super().__init__(f"it uses version {version} of the group's frames; this member uses version {VERSION}")
        self.reason = self.reason.removeprefix("invalid frame: ")


@dataclass(frozen=True, slots=True)
class HelloFrame:
    """A request of the sender to join the group."""

    incarnation: int
    ring: RingId
    digest: int
    view: int
    configured: int
    forced: bool
    agreed: str = ""


@dataclass(slots=True)
class Seat:
    """A member, as another member sees it."""

    member: MemberId
    next_seq: int = 1
    """The number of its next events frame; 0 when its frames are no longer accepted."""


@dataclass(frozen=True, slots=True)
class WelcomeFrame:
    """The admission of *target*, with the state of the group at the position of its hello, *target* included."""

    incarnation: int
    target: MemberId
    view: int
    state: int
    position: int
    forced: bool
    entries: tuple[Seat, ...]


@dataclass(frozen=True, slots=True)
class EventsFrame:
    incarnation: int
    seq: int
    received: int
    view: int
    state: int
    payloads: list[bytes]


@dataclass(frozen=True, slots=True)
class LostFrame:
    """The departure of the sender: its events frame *seq* did not come back to it, and a later one did."""

    incarnation: int
    seq: int


@dataclass(frozen=True, slots=True)
class RefusalFrame:
    """The refusal of *target* by the group of the sender."""

    incarnation: int
    target: MemberId
    reason: str


@dataclass(frozen=True, slots=True)
class ExpulsionFrame:
    """The expulsion of a silent member; void if the member sent a frame that the sender had not received."""

    incarnation: int
    target: MemberId
    next_seq: int


Frame = HelloFrame | WelcomeFrame | EventsFrame | LostFrame | RefusalFrame | ExpulsionFrame


def next_state(before: int, view: int, position: int, members: Iterable[MemberId]) -> int:
    """Returns the hash of a configuration and of all before it. A member with another hash received other events."""
    text = f"{before} {view} {position} {' '.join(map(str, members))}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def digest(members: Iterable[BusAddress]) -> int:
    """Returns a 64-bit hash of a set of members."""
    text = ",".join(f"{node}/{pid}" for node, pid in sorted(members))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def encode(frame: Frame) -> bytes:
    match frame:
        case EventsFrame():
            return encode_events(frame.incarnation, frame.seq, frame.received, frame.view, frame.state, frame.payloads)
        case HelloFrame():
            flags = FORCED if frame.forced else 0
            body = _HELLO.pack(*frame.ring, frame.digest, frame.view, frame.configured, flags)
            body += _text(frame.agreed)
            return _sealed(HELLO, 0, frame.incarnation, 0, 0, 0, 0, body)
        case WelcomeFrame():
            head = _WELCOME.pack(*frame.target, frame.position, FORCED if frame.forced else 0)
            body = head + b"".join(_ENTRY.pack(*entry.member, entry.next_seq) for entry in frame.entries)
            return _sealed(WELCOME, len(frame.entries), frame.incarnation, 0, 0, frame.view, frame.state, body)
        case LostFrame():
            return _sealed(LOST, 0, frame.incarnation, frame.seq, 0, 0, 0, b"")
        case RefusalFrame():
            return _sealed(REFUSAL, 0, frame.incarnation, 0, 0, 0, 0, _TARGET.pack(*frame.target) + _text(frame.reason))
        case ExpulsionFrame():
            body = _ENTRY.pack(*frame.target, frame.next_seq)
            return _sealed(EXPULSION, 0, frame.incarnation, 0, 0, 0, 0, body)


def encode_events(incarnation: int, seq: int, received: int, view: int, state: int, payloads: Sequence[bytes]) -> bytes:
    """Encodes an events frame, the only frequent kind."""
    count = len(payloads)
    body = struct.pack(f"<{count}I", *map(len, payloads)) + b"".join(payloads)
    return _sealed(EVENTS, count, incarnation, seq, received, view, state, body)


def _sealed(
    kind: int, count: int, incarnation: int, seq: int, received: int, view: int, state: int, body: bytes
) -> bytes:
    rest = _HEAD.pack(0, MAGIC, VERSION, kind, 0, count, incarnation, seq, received, view, state)[4:] + body
    return crc32c(rest).to_bytes(4, "little") + rest


class _Header(NamedTuple):
    """The fields of the header behind the fixed ones."""

    kind: int
    parts: int
    incarnation: int
    seq: int
    received: int
    view: int
    state: int


class _Format(NamedTuple):
    """The format of one kind of frame."""

    fields: tuple[str, ...]
    """The header fields that the kind uses besides `incarnation`; the others are 0."""
    counts: range
    """The range of valid values of `count`."""
    fixed_bytes: int
    """The size of the body without the counted items."""
    counted_bytes: int
    """The size of one counted item."""
    is_open: bool
    """True if more bytes follow: a text, or payloads."""
    read: Callable[[_Header, bytes], Frame]


def decode(data: bytes) -> Frame:
    """Returns the frame that *data* encodes; raises `BadFrame` if it is invalid."""
    header = _header(data)
    form = _FORMATS.get(header.kind)
    extra_bytes = len(data) - HEAD_BYTES
    if form is not None:
        extra_bytes -= form.fixed_bytes + header.parts * form.counted_bytes
    if form is None or header.parts not in form.counts or extra_bytes < 0 or (extra_bytes and not form.is_open):
        raise BadFrame(f"kind {header.kind} with {header.parts} parts and {len(data) - HEAD_BYTES} bytes")
    if any(getattr(header, name) for name in _FIELDS if name not in form.fields):
        raise BadFrame(f"kind {header.kind} with fields of another kind")
    return form.read(header, data)


def _header(data: bytes) -> _Header:
    if len(data) < HEAD_BYTES:
        raise BadFrame(f"{len(data)} bytes are fewer than the {HEAD_BYTES} of a header")
    crc, magic, version, kind, zero, *fields = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise BadFrame("wrong magic")
    if version != VERSION:
        raise OtherVersion(version)
    if crc != crc32c(memoryview(data)[4:]):
        raise BadFrame(f"wrong checksum over {len(data)} bytes")
    header = _Header(kind, *fields)
    if zero or not header.incarnation or max(header.seq, header.received, header.view) > LARGEST:
        raise BadFrame("a header field is out of range")
    return header


def _events(header: _Header, data: bytes) -> EventsFrame:
    _, count, incarnation, seq, received, view, state = header
    size = len(data) - HEAD_BYTES
    sizes = struct.unpack_from(f"<{count}I", data, HEAD_BYTES)
    if 4 * count + sum(sizes) != size:
        raise BadFrame(f"{count} events of {sum(sizes)} bytes in {size}")
    if count and max(sizes) > MAX_PAYLOAD_BYTES:
        raise BadFrame(f"an event of {max(sizes)} bytes exceeds the limit of {MAX_PAYLOAD_BYTES}")
    at = HEAD_BYTES + 4 * count
    payloads = []
    for each in sizes:
        payloads.append(data[at : at + each])
        at += each
    return EventsFrame(incarnation, seq, received, view, state, payloads)


def _refusal(header: _Header, data: bytes) -> RefusalFrame:
    target = MemberId(*_TARGET.unpack_from(data, HEAD_BYTES))
    return RefusalFrame(header.incarnation, target, _read_text(data, HEAD_BYTES + _TARGET.size))


def _expulsion(header: _Header, data: bytes) -> ExpulsionFrame:
    *fields, next_seq = _ENTRY.unpack_from(data, HEAD_BYTES)
    if next_seq > LARGEST:
        raise BadFrame("a number of an expulsion is out of range")
    return ExpulsionFrame(header.incarnation, MemberId(*fields), next_seq)


def _hello(header: _Header, data: bytes) -> HelloFrame:
    ring_node, ring_seq, members, last_view, configured, flags = _HELLO.unpack_from(data, HEAD_BYTES)
    if flags & ~FORCED or not configured or last_view > LARGEST:
        raise BadFrame("a hello has unknown flags, no configured members, or a number out of range")
    agreed = _read_text(data, HEAD_BYTES + _HELLO.size)
    return HelloFrame(
        header.incarnation, RingId(ring_node, ring_seq), members, last_view, configured, bool(flags), agreed
    )


def _text(text: str) -> bytes:
    return text.encode()[:MAX_TEXT_BYTES]


def _read_text(data: bytes, at: int) -> str:
    if len(data) - at > MAX_TEXT_BYTES:
        raise BadFrame(f"a text of {len(data) - at} bytes exceeds the limit of {MAX_TEXT_BYTES}")
    try:
        return data[at:].decode()
    except UnicodeDecodeError as error:
        raise BadFrame(f"its text is invalid UTF-8: {error.reason}") from None


def _welcome(header: _Header, data: bytes) -> WelcomeFrame:
    node, pid, target, position, flags = _WELCOME.unpack_from(data, HEAD_BYTES)
    if flags & ~FORCED:
        raise BadFrame("a welcome has unknown flags")
    entries = tuple(
        Seat(MemberId(*fields[:3]), fields[3])
        for fields in _ENTRY.iter_unpack(memoryview(data)[HEAD_BYTES + _WELCOME.size :])
    )
    if position > LARGEST or any(entry.next_seq > LARGEST for entry in entries):
        raise BadFrame("a number of a welcome is out of range")
    target_id = MemberId(node, pid, target)
    return WelcomeFrame(header.incarnation, target_id, header.view, header.state, position, bool(flags), entries)


_NONE = range(1)
_FIELDS = ("seq", "received", "view", "state")
_FORMATS = {
    HELLO: _Format((), _NONE, _HELLO.size, 0, True, _hello),
    WELCOME: _Format(("view", "state"), range(1, MAX_MEMBERS + 1), _WELCOME.size, _ENTRY.size, False, _welcome),
    EVENTS: _Format(_FIELDS, range(MAX_EVENTS + 1), 0, 4, True, _events),
    LOST: _Format(("seq",), _NONE, 0, 0, False, lambda header, data: LostFrame(header.incarnation, header.seq)),
    REFUSAL: _Format((), _NONE, _TARGET.size, 0, True, _refusal),
    EXPULSION: _Format((), _NONE, _ENTRY.size, 0, False, _expulsion),
}
"""The format of each kind."""
