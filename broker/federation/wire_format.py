"""The messages from an upstream queue to a downstream: its changes, each message a step or a part of one.

A message is one data section of binary. It begins with 26 bytes, and events follow; numbers are little-endian.

    offset  size  field
        0     1  version   1
        1     1  flags     1: the step ends here, and is applied in one transaction; 2: the copy is complete;
                           4: nothing new except the time; 8: until a message with 2, the copy is not consistent
        2     8  place     the LSN behind the step, in the source's log; or, for a queue of a cluster, the epoch and in
                           the low 40 bits the number behind its last event
       10     8  after     of a copy that is begun: messages at positions up to it were sent; 2**64 - 1 when all were,
                           but for a queue of a cluster the last position of all messages sent
       18     8  as_of     the source's clock at that place, in microseconds since 1970

    kind  event
    1  put: message id u64, size u32, content
    2  piece of a content: message id u64, size u32, bytes
    3  put of a content that was sent in pieces: message id u64
    4  take: reason u8, count u32, message ids u64
    5  purge: count u32, ids u64 of the messages that stay
    6  line: the ID of the queue's history: size u16, text
    7  keep: first u64, last u64, count u32, count times from u64, to u64: of the ids from the first to the last,
       only those in these ranges stay

Message ids are the source's; for a queue of a cluster they are positions, which are equal on all its members. Decoding
is pure; `BadStep` carries the reason.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...amqp.codec.primitives import Malformed, descriptor, read
from ...base.errors import CairnError
from ...store.contract.dequeue_reason import DequeueReason

VERSION = 1
END, COMPLETE, TIME, BETWEEN = 1, 2, 4, 8
ALL = (1 << 64) - 1
"""The value of `after` for a complete copy: all content of the queue has arrived."""
_HEAD = struct.Struct("<BBQQQ")
_PUT, _PIECE, _PUT_PIECES, _TAKE, _PURGE, _LINE, _KEEP = range(1, 8)
_SIZED = struct.Struct("<BQI")
_ID = struct.Struct("<BQ")
_TAKEN = struct.Struct("<BBI")
_KEPT = struct.Struct("<BI")
_NAMED = struct.Struct("<BH")
_SPAN = struct.Struct("<BQQI")
_DATA = 0x75


class BadStep(CairnError):
    """The bytes are no such message."""

    def __init__(self, reason: str) -> None:
        super().__init__("a step of a followed queue", reason, "see that both brokers run the same version")


class Head(NamedTuple):
    """The head of each message."""

    flags: int
    place: int
    after: int
    as_of_us: int


class Put(NamedTuple):
    message_id: int
    content: bytes


class Piece(NamedTuple):
    message_id: int
    content: bytes


class PutPieces(NamedTuple):
    message_id: int


class Take(NamedTuple):
    reason: DequeueReason
    message_ids: Sequence[int]


class Purge(NamedTuple):
    kept: Sequence[int]


class Line(NamedTuple):
    text: str


class Keep(NamedTuple):
    first: int
    last: int
    ranges: Sequence[tuple[int, int]]
    """The first and last ID of each range, both included; in order."""


Event = Put | Piece | PutPieces | Take | Purge | Line | Keep


def encode(event: Event) -> bytes:
    if isinstance(event, Put):
        return _SIZED.pack(_PUT, event.message_id, len(event.content)) + event.content
    if isinstance(event, Piece):
        return _SIZED.pack(_PIECE, event.message_id, len(event.content)) + event.content
    if isinstance(event, PutPieces):
        return _ID.pack(_PUT_PIECES, event.message_id)
    if isinstance(event, Take):
        return _TAKEN.pack(_TAKE, event.reason, len(event.message_ids)) + array("Q", event.message_ids).tobytes()
    if isinstance(event, Line):
        return _NAMED.pack(_LINE, len(event.text.encode())) + event.text.encode()
    if isinstance(event, Keep):
        flat = array("Q", [bound for one in event.ranges for bound in one])
        return _SPAN.pack(_KEEP, event.first, event.last, len(event.ranges)) + flat.tobytes()
    return _KEPT.pack(_PURGE, len(event.kept)) + array("Q", event.kept).tobytes()


def message(head: Head, events: Sequence[bytes]) -> bytes:
    """Return the AMQP message of encoded events."""
    body = b"".join((_HEAD.pack(VERSION, *head), *events))
    return b"\x00\x53\x75\xb0" + len(body).to_bytes(4) + body


def decode(content: bytes) -> tuple[Head, list[Event]]:
    """Decode an AMQP message. Raises `BadStep`."""
    try:
        code, at = descriptor(content, 0)
        body, end = read(content, at)
        if code != _DATA or not isinstance(body, bytes) or end != len(content):
            raise BadStep("it is not one data section")
        version, *head = _HEAD.unpack_from(body)
        if version != VERSION:
            raise BadStep(f"of version {version}")
        return Head(*head), [*_events(body)]
    except (Malformed, struct.error, ValueError) as error:
        raise BadStep(str(error)) from error


def _events(body: bytes) -> Iterator[Event]:
    at = _HEAD.size
    while at < len(body):
        kind = body[at]
        if kind in (_PUT, _PIECE):
            _, message_id, size = _SIZED.unpack_from(body, at)
            at += _SIZED.size + size
            content = body[at - size : at]
            yield Put(message_id, content) if kind == _PUT else Piece(message_id, content)
        elif kind == _PUT_PIECES:
            yield PutPieces(_ID.unpack_from(body, at)[1])
            at += _ID.size
        elif kind == _TAKE:
            _, reason, count = _TAKEN.unpack_from(body, at)
            at += _TAKEN.size + 8 * count
            yield Take(DequeueReason(reason), _ids(body, at - 8 * count, count))
        elif kind == _PURGE:
            _, count = _KEPT.unpack_from(body, at)
            at += _KEPT.size + 8 * count
            yield Purge(_ids(body, at - 8 * count, count))
        elif kind == _LINE:
            _, size = _NAMED.unpack_from(body, at)
            at += _NAMED.size + size
            yield Line(body[at - size : at].decode())
        elif kind == _KEEP:
            _, first, last, count = _SPAN.unpack_from(body, at)
            at += _SPAN.size + 16 * count
            flat = _ids(body, at - 16 * count, 2 * count)
            yield Keep(first, last, [*zip(flat[::2], flat[1::2], strict=True)])
        else:
            raise BadStep(f"an event of kind {kind}")
        if at > len(body):
            raise BadStep("it is cut off")


def _ids(body: bytes, at: int, count: int) -> Sequence[int]:
    return struct.unpack_from(f"<{count}Q", body, at)
