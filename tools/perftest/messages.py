"""The messages of a load, hundreds at a time: a table whose rows are frames, of which only some columns differ.

A message is a header, perhaps application properties, and one data section of *size* bytes, little-endian:

offset  size  field
     0     4  publisher
     4     4  iteration
     8     8  sequence, from 0 in each iteration
    16     8  when it was sent, or was due to be, in ns since 1970
    24  rest  the same bytes in every message; with unique data, words of 8 bytes that follow from the three numbers

So a subscriber knows every byte that must come, and finds what was lost, came twice, out of order or altered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...amqp.codec import encode
from ...amqp.codec.types import Uint
from ...amqp.frames import performatives as p

NUMBERS = np.dtype([("publisher", "<u4"), ("iteration", "<u4"), ("sequence", "<u8"), ("at_ns", "<u8")])
MIN_BYTES = NUMBERS.itemsize
_ODD = np.uint64(0x9E3779B97F4A7C15)
_ID_MARK = b"\x70\xf1\xf2\xf3\xf4\xa0\x04\xf1\xf2\xf3\xf4"
"""Delivery id and tag of a template."""
_BURST_BYTES = 256 << 10
_MOST_BURST = 500

Bytes2 = NDArray[np.uint8]
Numbers = np.ndarray
"""An array of the dtype `NUMBERS`."""


class Body(NamedTuple):
    """The common part of all messages of a load."""

    size_bytes: int
    durable: bool = False
    headers: int = 0
    unique: bool = False

    def prefix(self) -> bytes:
        """Return the part of a message before the bytes of its body."""
        entries = {f"hdr{number}": f"hdr{number}" for number in range(self.headers)}
        properties = encode.described(0x74, encode.value(entries)) if entries else b""
        size = self.size_bytes
        head = bytes((0xA0, size)) if size < 256 else b"\xb0" + size.to_bytes(4)
        return b"\x00\x53\x70\xc0\x02\x01" + encode.boolean(self.durable) + properties + b"\x00\x53\x75" + head

    def filler(self) -> Bytes2:
        """Return the bytes behind the numbers of a message."""
        size = self.size_bytes - MIN_BYTES
        return np.resize(np.arange(256, dtype=np.uint8) * 31 + 7, size).astype(np.uint8)

    def fillers(self, numbers: Numbers) -> Bytes2:
        """Return the bytes behind the numbers of each of several messages."""
        size = self.size_bytes - MIN_BYTES
        if not self.unique:
            return np.broadcast_to(self.filler(), (len(numbers), size))
        words = np.arange(size // 8 + 1, dtype=np.uint64)
        publishers = numbers["publisher"].astype(np.uint64) << np.uint64(48)
        lanes = publishers ^ numbers["iteration"].astype(np.uint64) << np.uint64(40)
        seeds = (numbers["sequence"].astype(np.uint64) ^ lanes) * _ODD
        return (seeds[:, None] + words * _ODD).astype("<u8").view(np.uint8)[:, :size]


class Table:
    """Transfer frames of messages to one link, filled in a burst at a time."""

    def __init__(
        self, body: Body, handle: int, max_frame: int, publisher: int, iteration: int, *, settled: bool,
        txn_id: bytes = b"", most: int = _MOST_BURST,
    ) -> None:  # fmt: skip
        self._body = body
        payload = body.prefix() + bytes(body.size_bytes)
        self.frames, parts = _split(payload, handle, max_frame, settled, txn_id)
        """The number that one message takes."""
        self.message_bytes = sum(len(head) + size for head, _, size in parts)
        self.most = max(1, min(most, _MOST_BURST, _BURST_BYTES // self.message_bytes))
        """Messages in a burst."""
        raw, self._places = b"", []
        """Parts of the payload: place in the row, place in the payload, size."""
        for head, at, size in parts:
            raw += head
            self._places.append((len(raw), at, size))
            raw += payload[at : at + size]
        self._id_at = raw.index(_ID_MARK) + 1
        self._txn_at = slice(len(parts[0][0]) - len(txn_id), len(parts[0][0]))
        """The transaction's id ends the first performative."""
        self._begin = len(payload) - body.size_bytes
        self._rows: Bytes2 = np.tile(np.frombuffer(raw, np.uint8), (self.most, 1))
        self._numbers = np.zeros(self.most, NUMBERS)
        self._numbers["publisher"], self._numbers["iteration"] = publisher, iteration
        self._put(self._begin + MIN_BYTES, body.fillers(self._numbers))

    def move_to(self, txn_id: bytes) -> bool:
        """Put the frames in another transaction; False if its id is not as long, so that they would not fit."""
        at = self._txn_at
        if not txn_id or len(txn_id) != at.stop - at.start:
            return False
        self._rows[:, at] = np.frombuffer(txn_id, np.uint8)
        return True

    def fill(self, first_id: int, sequence: int, at_ns: NDArray[np.int64]) -> memoryview:
        """The frames of so many messages as there are times; valid until the next call."""
        number = len(at_ns)
        rows, numbers = self._rows[:number], self._numbers[:number]
        ids = (np.arange(first_id, first_id + number) & 0xFFFFFFFF).astype(">u4").view(np.uint8).reshape(number, 4)
        at = self._id_at
        rows[:, at : at + 4] = ids
        rows[:, at + 6 : at + 10] = ids
        numbers["sequence"] = np.arange(sequence, sequence + number)
        numbers["at_ns"] = at_ns
        self._put(self._begin, numbers.view(np.uint8).reshape(number, MIN_BYTES))
        if self._body.unique:
            self._put(self._begin + MIN_BYTES, self._body.fillers(numbers))
        return rows.data.cast("B")

    def _put(self, begin: int, columns: Bytes2) -> None:
        """Write *columns* of the payload, from *begin* on, wherever its parts stand."""
        number, size = columns.shape
        for place, at, length in self._places:
            low, high = max(begin, at), min(begin + size, at + length)
            if low < high:
                self._rows[:number, place + low - at : place + high - at] = columns[:, low - begin : high - begin]


def _split(
    payload: bytes, handle: int, max_frame: int, settled: bool, txn_id: bytes
) -> tuple[int, list[tuple[bytes, int, int]]]:
    """The frames of a message: what stands before the payload, and which part of the payload follows."""
    parts: list[tuple[bytes, int, int]] = []
    for at, end in p.parts(len(payload), max_frame):
        first, more, size = not parts, end < len(payload), end - at
        fields = [encode.value(Uint(handle)), *([encode.NULL] * 4)]
        if first:
            fields = [fields[0], _ID_MARK[:5], _ID_MARK[5:], b"\x43", encode.boolean(settled)]
        fields.append(encode.boolean(more))
        if txn_id and first:
            fields += [encode.NULL, encode.value(p.described(p.TRANSACTIONAL, txn_id))]
        performative = encode.described(p.TRANSFER, encode.listed(fields))
        complete = p.HEADER_BYTES + len(performative) + size
        parts.append((complete.to_bytes(4) + b"\x02\x00\x00\x00" + performative, at, size))
    return len(parts), parts


class MessageCheck:
    """Takes arrived messages apart, and compares them with what they must be."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._filler = body.filler()

    def numbers(self, bodies: Bytes2) -> tuple[Numbers, int]:
        """The numbers in these bodies, a row each, and how many of them are not whole."""
        if bodies.shape[1] != self._body.size_bytes:
            return np.zeros(0, NUMBERS), len(bodies)
        numbers = np.ascontiguousarray(bodies[:, :MIN_BYTES]).view(NUMBERS).reshape(len(bodies))
        rest = bodies[:, MIN_BYTES:]
        expected = self._body.fillers(numbers) if self._body.unique else self._filler
        same = (rest == expected).all(axis=1)
        wrong = len(same) - int(np.count_nonzero(same))
        return (numbers[same] if wrong else numbers), wrong
