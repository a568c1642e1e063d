"""Frames of AMQP 0-9-1: read from bytes as they arrive, and written.

`pamqp` has the methods. The methods of each message (publish, deliver, ack) are read and written here, as pamqp takes
5 us for what these functions do in less than 1; a test compares them.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from pamqp import base, commands, frame

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
TYPES = METHOD, HEADER, BODY, HEARTBEAT
"""Types of frames."""
END = 0xCE
"""The last byte of each frame."""
OVERHEAD_BYTES = 8
LEAST_FRAME_BYTES = 4096
"""The size of frames that each side must accept."""
HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"
_HEAD = struct.Struct(">BHI")
_METHOD_HEAD = struct.Struct(">BHIHH")

PUBLISH, ACK = (60, 40), (60, 80)
DELIVER = 60, 60
_DELIVER = struct.pack(">HH", *DELIVER)
_ACK = struct.pack(">HH", *ACK)


class FrameError(ValueError):
    """Bytes that are no frame, with the reply code of the error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Frame(NamedTuple):
    """A frame: its type, its channel, and its payload."""

    type: int
    channel: int
    payload: bytes


class Publish(NamedTuple):
    """A `basic.publish`."""

    exchange: str
    routing_key: str
    mandatory: bool
    immediate: bool


class FrameReader:
    """Cuts the bytes of one client into frames; it keeps at most one incomplete frame beside what was not read yet."""

    def __init__(self) -> None:
        self.most_bytes = LEAST_FRAME_BYTES
        """The maximum size of a frame; set when it is negotiated."""
        self._held = b""
        self._at = 0

    def feed(self, data: bytes | memoryview) -> None:
        """Add bytes that arrived."""
        self._held = self._held[self._at :] + data if self._at < len(self._held) else bytes(data)
        self._at = 0

    def next(self) -> Frame | None:
        """Return the next frame; None if it is not complete. Raises `FrameError`."""
        held, at = self._held, self._at
        if len(held) - at < _HEAD.size:
            return None
        kind, channel, size = _HEAD.unpack_from(held, at)
        if size + OVERHEAD_BYTES > self.most_bytes:
            raise FrameError(501, f"a frame of {size + OVERHEAD_BYTES} bytes; the limit is {self.most_bytes}")
        end = at + _HEAD.size + size
        if len(held) <= end:
            return None
        if held[end] != END:
            raise FrameError(501, f"a frame ends with {held[end]:#04x}, not with {END:#04x}")
        self._at = end + 1
        return Frame(kind, channel, held[at + _HEAD.size : end])

    @property
    def position(self) -> tuple[int, int]:
        """Return a value that changes when a frame is read."""
        return self._at, len(self._held)

    @property
    def has_frame(self) -> bool:
        """Return whether a complete frame, or an invalid one, waits."""
        held, at = self._held, self._at
        if len(held) - at < _HEAD.size:
            return False
        size = int.from_bytes(held[at + 3 : at + 7])
        return size + OVERHEAD_BYTES > self.most_bytes or len(held) - at >= size + OVERHEAD_BYTES


def method_of(payload: bytes) -> tuple[int, int]:
    """Return the class and the method of the payload of a method frame. Raises `FrameError`."""
    if len(payload) < 4:
        raise FrameError(502, "a method frame has less than 4 bytes")
    return int.from_bytes(payload[:2]), int.from_bytes(payload[2:4])


def read_publish(payload: bytes) -> Publish:
    """Return the `basic.publish` in the payload of a method frame. Raises `FrameError`."""
    try:
        exchange_end = 7 + payload[6]
        key_end = exchange_end + 1 + payload[exchange_end]
        flags = payload[key_end]
        exchange = payload[7:exchange_end].decode()
        return Publish(exchange, payload[exchange_end + 1 : key_end].decode(), bool(flags & 1), bool(flags & 2))
    except (IndexError, UnicodeDecodeError) as error:
        raise FrameError(502, f"basic.publish can't be read: {error}") from error


def read_ack(payload: bytes) -> tuple[int, bool]:
    """Return the delivery-tag and `multiple` of a `basic.ack`. Raises `FrameError`."""
    if len(payload) < 13:
        raise FrameError(502, "basic.ack can't be read: it is too short")
    return int.from_bytes(payload[4:12]), bool(payload[12] & 1)


def read_method(payload: bytes) -> base.Frame:
    """Return a method by pamqp. Raises `FrameError`."""
    class_id, method_id = method_of(payload)
    known: type[base.Frame] | None = commands.INDEX_MAPPING.get(class_id << 16 | method_id)
    if known is None:
        raise FrameError(540, f"there is no method {method_id} of class {class_id}")
    method = known()
    try:
        method.unmarshal(payload[4:])
    except Exception as error:  # pamqp raises what its decoding raises; nothing of it is known before
        raise FrameError(502, f"{known.name} can't be read: {error}") from error
    return method


def write_named(kind: type[base.Frame], channel: int, *arguments: bytes) -> bytes:
    """Return a method of encoded *arguments*: its names have any characters, which pamqp does not allow."""
    return write_frame(METHOD, channel, b"".join((kind.index.to_bytes(4), *arguments)))


def write_method(method: base.Frame, channel: int) -> bytes:
    return frame.marshal(method, channel)


def write_ack(channel: int, delivery_tag: int, *, multiple: bool) -> bytes:
    return _METHOD_HEAD.pack(METHOD, channel, 13, *ACK) + struct.pack(">QBB", delivery_tag, multiple, END)


def write_deliver(
    channel: int, consumer: bytes, delivery_tag: int, redelivered: bool, exchange: bytes, key: bytes
) -> bytes:
    """Return a `basic.deliver`; the consumer's tag, the exchange and the key are encoded short strings."""
    size = 13 + len(consumer) + len(exchange) + len(key)
    return b"".join((
        _METHOD_HEAD.pack(METHOD, channel, size, *DELIVER), consumer, struct.pack(">QB", delivery_tag, redelivered),
        exchange, key, b"\xce",
    ))  # fmt: skip


def write_frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _HEAD.pack(kind, channel, len(payload)) + payload + b"\xce"


def write_body(channel: int, body: bytes, most_bytes: int) -> bytes:
    """Return body frames of at most *most_bytes* each."""
    room = most_bytes - OVERHEAD_BYTES
    if len(body) <= room:
        return write_frame(BODY, channel, body)
    return b"".join([write_frame(BODY, channel, body[at : at + room]) for at in range(0, len(body), room)])
