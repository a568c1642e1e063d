"""Frames that came in, as tables: a run of frames that look alike is looked at once.

A broker sends messages of one size in frames of one size that differ in delivery id, tag and payload, and outcomes in a
transaction in a frame each, that differ in the delivery's id. The first frame of such a run is taken apart field by
field; those behind it are compared with it, column by column, by numpy. That is what makes the load generator cheap: a
message costs it a microsecond or less.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..codec.primitives import Cut, Malformed, descriptor, extent, read
from . import performatives as p

DATA = 0x75
_MOST_FIELDS = 6
"""Handle, delivery id, delivery tag, format, settled, more: the rest does not matter here."""
_TRANSFER = b"\x00\x53\x14"
_DISPOSITION = b"\x00\x53\x15"
_LISTS = {0xC0: 3, 0xD0: 9}
"""Bytes before the first field, by the code of a list."""
_NULL, _UINT = 0x40, 0x70


class Transfer(NamedTuple):
    """The head of a transfer frame."""

    handle: int
    delivery_id: int | None
    settled: bool
    more: bool
    id_at: int
    """The offset of the delivery id's number in the frame, and its width in bytes."""
    id_width: int
    tag_at: int
    tag_end: int
    payload_at: int
    aborted: bool


def read_transfer(frame: bytes | memoryview) -> Transfer:
    """Raises `Malformed`."""
    _, at = descriptor(frame, frame[4] * 4)
    code, begin, end = extent(frame, at)
    if code not in (0x45, 0xC0, 0xD0):
        raise Malformed("a transfer is a list")
    width = 1 if code == 0xC0 else 4
    count = int.from_bytes(frame[begin : begin + width]) if code != 0x45 else 0
    at = begin + width
    found: list[object] = [None] * 10
    id_at = id_width = tag_at = tag_end = 0
    body = frame[:end]
    for number in range(min(count, 10)):
        if number > _MOST_FIELDS and body[at] == 0:  # a delivery state
            at = extent(body, descriptor(body, at)[1])[2]
            continue
        _, start, stop = extent(body, at)
        found[number], _ = read(body, at)
        if number == 1:
            id_at, id_width = start, stop - start
        elif number == 2:
            tag_at, tag_end = start, stop
        at = stop
    handle, delivery_id = found[0], found[1]
    if not isinstance(handle, int) or not isinstance(delivery_id, int | None):
        raise Malformed("a transfer names its link and delivery by numbers")
    return Transfer(
        handle, delivery_id, found[4] is True, found[5] is True, id_at, id_width, tag_at, tag_end, end, found[9] is True
    )


def body_of(message: bytes | memoryview) -> tuple[int, int]:
    """Return the start and the end of the bytes in a message's data section. Raises `Malformed` if it has none."""
    at = 0
    while at < len(message):
        section, start = descriptor(message, at)
        _, begin, end = extent(message, start)
        if section == DATA:
            return begin, end
        at = end
    raise Malformed("a message without a data section")


class Run(NamedTuple):
    """Consecutive messages on one link."""

    handle: int
    first_id: int
    messages: int
    settled: bool
    bodies: NDArray[np.uint8]
    """The bodies, one per row; a view of the buffer in which they arrived."""
    size_bytes: int
    """The size of all frames of the run."""


def read_run(data: memoryview, head: Transfer, size: int) -> Run | None:
    """The run that begins with the whole frame of *size* bytes at the beginning of *data*, whose head is *head*.

    None if it is not one message of one data section in one frame.
    """
    if head.more or head.delivery_id is None or head.aborted:
        return None
    try:
        begin, end = body_of(data[head.payload_at : size])
    except (Malformed, Cut):
        return None
    begin, end = begin + head.payload_at, end + head.payload_at
    if end != size:
        return None
    most = len(data) // size
    rows = np.frombuffer(data, np.uint8, most * size).reshape(most, size)
    count = 1
    if most > 1 and head.id_width in (1, 4):
        like = rows[:, :begin] == rows[0, :begin]
        like[:, head.id_at : head.id_at + head.id_width] = True
        like[:, head.tag_at : head.tag_end] = True
        alike = like.all(axis=1)
        column = rows[:, head.id_at : head.id_at + head.id_width]
        ids = np.ascontiguousarray(column).view(f">u{head.id_width}").reshape(most).astype(np.int64)
        alike &= ids == head.delivery_id + np.arange(most)
        count = most if alike.all() else int(alike.argmin())
    return Run(head.handle, head.delivery_id, count, head.settled, rows[:count, begin:end], count * size)


def is_transfer(frame: bytes | memoryview) -> bool:
    return frame[p.HEADER_BYTES : p.HEADER_BYTES + 3] == _TRANSFER


def is_disposition(frame: bytes | memoryview) -> bool:
    return frame[p.HEADER_BYTES : p.HEADER_BYTES + 3] == _DISPOSITION


def outcomes_alike(data: memoryview, size: int) -> int:
    """Return the number of dispositions that report one outcome for consecutive deliveries.

    They are frames of *size* bytes at the beginning of *data*, of which the first is complete. Returns 1 also if the
    first one covers several deliveries.
    """
    most = len(data) // size
    at = p.HEADER_BYTES + len(_DISPOSITION)
    at += _LISTS.get(data[at], size) + 1  # behind the role
    if most < 2 or at + 6 > size or data[4] != 2 or data[at] != _UINT:
        return 1
    has_last = data[at + 5] == _UINT
    if (not has_last and data[at + 5] != _NULL) or (has_last and data[at + 6 : at + 10] != data[at + 1 : at + 5]):
        return 1
    rows = np.frombuffer(data, np.uint8, most * size).reshape(most, size)
    ids = np.ascontiguousarray(rows[:, at + 1 : at + 5]).view(">u4").reshape(most).astype(np.int64)
    like = rows == rows[0]
    like[:, at + 1 : at + 5] = True
    if has_last:
        like[:, at + 6 : at + 10] = rows[:, at + 6 : at + 10] == rows[:, at + 1 : at + 5]
    alike = like.all(axis=1) & (ids == ids[0] + np.arange(most))
    return most if alike.all() else int(alike.argmin())
