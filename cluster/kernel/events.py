"""The events that members exchange about queues, each one payload of the group, or several if it is long.

All begin with their kind, one byte; numbers are little-endian. A name is a u16 and so many bytes of UTF-8.

| kind | event | then |
|---|---|---|
| 1 | enqueue (and create) | flags u8: 1 timed; queues u16, messages u32; names; sizes u32, bit 31: lasts; contents |
| 2 | dequeue (accept, expiry, overflow) | reason u8; name; count u32; positions u64 |
| 3 | release | name; count u32; positions u64; count bytes: 1 if its delivery failed |
| 4 | move (reject, dead-letter, expiry) | reason u8; name; position u64; targets u16; their names; lasts u8; content |
| 5 | ack | for each sender node u32, pid u32, incarnation u64, number u64: durable batches up to that number |
| 6 | control | JSON: all infrequent events |
| 7 | part | of a longer event: flags u8, 1 first, 2 last; bytes |
| 8 | update_front | id u32; name; count u32; positions u64, failures u32, sizes u32 with bit 31; contents |
| 9 | transaction | of each part its size u32, and an event of kind 1, 2 or 4: all of them are applied, or none |
| 10 | digests | id u32; number u32; name; count u32; positions u64, failures u32; digests, 32 bytes each |
| 11 | amend (release, with annotations of the receiver) | name; position u64; u8: 1 if its delivery failed; content |

Decoding is pure. `BadEvent` carries the reason; all members decode the same bytes, so all of them ignore such an event.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...amqp.codec import header
from ...amqp.codec.primitives import Malformed
from ...base.errors import CairnError
from ...store.contract.dequeue_reason import DequeueReason
from ..group.group import MAX_PAYLOAD_BYTES
from ..group.member_id import MemberId
from .control_messages import flaw

VERSION = 8
"""The version of all events; rises with each change that an older member would interpret differently."""
ENQUEUE, DEQUEUE, RELEASE, MOVE, ACK, CONTROL, PART, UPDATE_FRONT, TRANSACTION, DIGESTS, AMEND = range(1, 12)
TIMED = 1
FIRST, LAST = 1, 2
LASTS = 1 << 31
DIGEST_BYTES = 32
"""The size of a digest of a content, by BLAKE2b."""
MAX_EVENT_BYTES = 1 << 30
"""The maximum size of a long event that receivers reassemble."""
_ACKED = struct.Struct("<IIQQ")
_PART_BYTES = MAX_PAYLOAD_BYTES - 2

Message = tuple[bytes, bool]
"""A content, and whether the message is durable."""


class BadEvent(CairnError):
    """The bytes are not a valid event."""

    def __init__(self, reason: str) -> None:
        super().__init__("cluster event", reason, "check that all members run the same version")


class EnqueueEvent(NamedTuple):
    names: list[str]
    messages: Sequence[Message]
    timed: bool


class DequeueEvent(NamedTuple):
    reason: DequeueReason
    name: str
    positions: tuple[int, ...]


class ReleaseEvent(NamedTuple):
    name: str
    positions: tuple[int, ...]
    failed: bytes


class AmendEvent(NamedTuple):
    """A message that its receiver returns with other annotations, and so with another content."""

    name: str
    position: int
    failed: bool
    content: bytes


class MoveEvent(NamedTuple):
    reason: DequeueReason
    name: str
    position: int
    targets: list[str]
    message: Message


class AckEvent(NamedTuple):
    numbers: dict[MemberId, int]


class ControlEvent(NamedTuple):
    """The event's JSON object, with the field `what`."""

    about: dict[str, Any]


class PartEvent(NamedTuple):
    flags: int
    data: bytes


class FrontEvent(NamedTuple):
    update: int
    name: str
    positions: tuple[int, ...]
    failures: tuple[int, ...]
    """0 if it was not delivered; else one more than the number of failed deliveries."""
    messages: list[Message]


class DigestsEvent(NamedTuple):
    """Durable messages that a joining member may have itself."""

    update: int
    number: int
    """The number of these digests in the transfer, which the answer repeats."""
    name: str
    positions: tuple[int, ...]
    failures: tuple[int, ...]
    """The delivery counts, as in `FrontEvent`."""
    digests: list[bytes]


class TransactionEvent(NamedTuple):
    """A transaction of a client."""

    parts: Sequence[EnqueueEvent | DequeueEvent | MoveEvent]


Event = (
    EnqueueEvent | DequeueEvent | ReleaseEvent | AmendEvent | MoveEvent | AckEvent
    | ControlEvent | PartEvent | FrontEvent | TransactionEvent | DigestsEvent
)  # fmt: skip


def enqueue(names: Sequence[str], messages: Sequence[Message], timed: bool) -> bytes:
    sizes = [len(content) | LASTS if lasts else len(content) for content, lasts in messages]
    head = struct.pack("<BBHI", ENQUEUE, TIMED if timed else 0, len(names), len(messages))
    contents = [content for content, _ in messages]
    return b"".join([head, *map(_name, names), struct.pack(f"<{len(sizes)}I", *sizes), *contents])


def dequeue(reason: DequeueReason, name: str, positions: Sequence[int]) -> bytes:
    count = len(positions)
    return b"".join([bytes([DEQUEUE, reason]), _name(name), struct.pack(f"<I{count}Q", count, *positions)])


def release(name: str, positions: Sequence[int], failed: Sequence[int]) -> bytes:
    count = len(positions)
    return b"".join([bytes([RELEASE]), _name(name), struct.pack(f"<I{count}Q", count, *positions), bytes(failed)])


def amend(name: str, position: int, failed: bool, content: bytes) -> bytes:
    return b"".join([bytes([AMEND]), _name(name), struct.pack("<Q?", position, failed), content])


def move(reason: DequeueReason, name: str, position: int, targets: Sequence[str], message: Message) -> bytes:
    content, lasts = message
    head = struct.pack("<QH", position, len(targets))
    return b"".join([bytes([MOVE, reason]), _name(name), head, *map(_name, targets), bytes([lasts]), content])


def ack(numbers: Mapping[MemberId, int]) -> bytes:
    return bytes([ACK]) + b"".join([_ACKED.pack(*sender, number) for sender, number in numbers.items()])


def control(what: str, **about: Any) -> bytes:
    return bytes([CONTROL]) + json.dumps({"what": what, **about}, separators=(",", ":")).encode()


def update_front(
    update: int, name: str, positions: Sequence[int], failures: Sequence[int], messages: Sequence[Message]
) -> bytes:
    count = len(positions)
    sizes = [len(content) | LASTS if lasts else len(content) for content, lasts in messages]
    numbers = struct.pack(f"<I{count}Q{count}I{count}I", count, *positions, *failures, *sizes)
    contents = [content for content, _ in messages]
    return b"".join([struct.pack("<BI", UPDATE_FRONT, update), _name(name), numbers, *contents])


def digests(
    update: int, number: int, name: str, positions: Sequence[int], failures: Sequence[int], found: Sequence[bytes]
) -> bytes:
    count = len(positions)
    numbers = struct.pack(f"<I{count}Q{count}I", count, *positions, *failures)
    return b"".join([struct.pack("<BII", DIGESTS, update, number), _name(name), numbers, *found])


def transaction(parts: Sequence[EnqueueEvent | DequeueEvent | MoveEvent]) -> bytes:
    pieces = [bytes([TRANSACTION])]
    for part in parts:
        if isinstance(part, EnqueueEvent):
            encoded = enqueue(*part)
        else:
            encoded = dequeue(*part) if isinstance(part, DequeueEvent) else move(*part)
        pieces += [len(encoded).to_bytes(4, "little"), encoded]
    return b"".join(pieces)


def parts_of(event: bytes) -> Iterator[bytes]:
    """Returns the payloads of one event: itself, or parts, of which the last one determines its position (rule 7)."""
    if len(event) <= MAX_PAYLOAD_BYTES:
        yield event
        return
    for at in range(0, len(event), _PART_BYTES):
        flags = (FIRST if not at else 0) | (LAST if at + _PART_BYTES >= len(event) else 0)
        yield bytes((PART, flags)) + event[at : at + _PART_BYTES]


def decode(data: bytes) -> Event:
    """Returns the complete event that *data* encodes; raises `BadEvent` if it is invalid."""
    try:
        return _decode(data)
    except (struct.error, ValueError, IndexError, OverflowError, RecursionError, Malformed) as error:
        raise BadEvent(f"{len(data)} bytes are no valid event: {error}") from None


def _decode(data: bytes) -> Event:
    kind = data[0]
    if kind == ACK:
        return AckEvent({MemberId(*found[:3]): found[3] for found in _ACKED.iter_unpack(memoryview(data)[1:])})
    if kind == ENQUEUE:
        _, flags, queues, count = struct.unpack_from("<BBHI", data)
        names, at = _names(data, 8, queues)
        _check(count <= len(data))
        sizes = struct.unpack_from(f"<{count}I", data, at)
        return EnqueueEvent(names, _messages(data, at + 4 * count, sizes), bool(flags & TIMED))
    if kind in (DEQUEUE, RELEASE):
        (name,), at = _names(data, 1 if kind == RELEASE else 2, 1)
        (count,) = struct.unpack_from("<I", data, at)
        end = at + 4 + 8 * count
        _check(end + (count if kind == RELEASE else 0) == len(data))
        positions = struct.unpack_from(f"<{count}Q", data, at + 4)
        if kind == DEQUEUE:
            return DequeueEvent(DequeueReason(data[1]), name, positions)
        return ReleaseEvent(name, positions, data[end:])
    if kind == AMEND:
        (name,), at = _names(data, 1, 1)
        position, failed = struct.unpack_from("<Q?", data, at)
        return AmendEvent(name, position, failed, _content(data[at + 9 :]))
    if kind == MOVE:
        (name,), at = _names(data, 2, 1)
        position, count = struct.unpack_from("<QH", data, at)
        targets, at = _names(data, at + 10, count)
        return MoveEvent(DequeueReason(data[1]), name, position, targets, (_content(data[at + 1 :]), bool(data[at])))
    if kind == CONTROL:
        about = json.loads(data[1:])
        if wrong := flaw(about):
            raise BadEvent(wrong)
        return ControlEvent(about)
    if kind == PART:
        return PartEvent(data[1], data[2:])
    if kind == UPDATE_FRONT:
        (update,) = struct.unpack_from("<I", data, 1)
        (name,), at = _names(data, 5, 1)
        (count,) = struct.unpack_from("<I", data, at)
        _check(16 * count <= len(data))
        positions = struct.unpack_from(f"<{count}Q", data, at + 4)
        failures = struct.unpack_from(f"<{count}I", data, at + 4 + 8 * count)
        sizes = struct.unpack_from(f"<{count}I", data, at + 4 + 12 * count)
        return FrontEvent(update, name, positions, failures, _messages(data, at + 4 + 16 * count, sizes))
    if kind == TRANSACTION:
        return TransactionEvent([*_transacted(data)])
    if kind == DIGESTS:
        update, number = struct.unpack_from("<II", data, 1)
        (name,), at = _names(data, 9, 1)
        (count,) = struct.unpack_from("<I", data, at)
        end = at + 4 + 12 * count
        _check(end + DIGEST_BYTES * count == len(data))
        positions = struct.unpack_from(f"<{count}Q", data, at + 4)
        failures = struct.unpack_from(f"<{count}I", data, at + 4 + 8 * count)
        found = [data[each : each + DIGEST_BYTES] for each in range(end, len(data), DIGEST_BYTES)]
        return DigestsEvent(update, number, name, positions, failures, found)
    raise BadEvent(f"of kind {kind}")


def _transacted(data: bytes) -> Iterator[EnqueueEvent | DequeueEvent | MoveEvent]:
    _check(len(data) > 1)
    at = 1
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        end = at + 4 + size
        _check(end <= len(data))
        _check(size > 0 and data[at + 4] != TRANSACTION)
        part = _decode(data[at + 4 : end])
        if not isinstance(part, EnqueueEvent | DequeueEvent | MoveEvent):
            raise BadEvent("a part of a transaction is not an operation on a queue")
        yield part
        at = end


def _messages(data: bytes, at: int, sizes: Sequence[int]) -> list[Message]:
    messages: list[Message] = []
    for size in sizes:
        length = size & ~LASTS
        messages.append((_content(data[at : at + length]), size >= LASTS))
        at += length
    _check(at == len(data))
    return messages


def _content(data: bytes) -> bytes:
    """Checks the content of a message as far as it is checked when a client sends it."""
    header.parse(data)
    return data


def _name(name: str) -> bytes:
    encoded = name.encode()
    return len(encoded).to_bytes(2, "little") + encoded


def _names(data: bytes, at: int, count: int) -> tuple[list[str], int]:
    names: list[str] = []
    for _ in range(count):
        (size,) = struct.unpack_from("<H", data, at)
        _check(at + 2 + size <= len(data))
        names.append(data[at + 2 : at + 2 + size].decode())
        at += 2 + size
    return names, at


def _check(right: bool) -> None:
    if not right:
        raise BadEvent("its sizes are inconsistent")
