"""Transfers that repeat the one before them: compared as encoded, instead of decoded and checked field by field."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from .frame_fields import NULL, Performative

RUN_FRAMES = 40
"""Frames that a read must have room for before a run is compared at once: below that numpy takes longer."""
MOST_PERFORMATIVE_BYTES = 512
"""The largest performative of a transfer that is processed before its payload, and with which others are compared."""
_FIELDS = 4
"""Fields of a transfer that has a message-format."""
_SETTLED = 4
"""The place of this field."""
_TAG_LENGTHS = {0xA0: 2, 0xB0: 5}
"""Encodings of delivery tags: bytes of type code and length."""


class Layout(NamedTuple):
    """A transfer that carries a whole delivery, as a pattern that the next ones are compared with.

    | bytes of the frame | compared |
    |---|---|
    | size | no |
    | data offset to the code of delivery-id: `head` | yes |
    | value of delivery-id | no |
    | type and length of delivery-tag: `tag_head` | yes |
    | value of delivery-tag | no |
    | everything up to the payload: `tail` | yes |
    """

    head: bytes
    tag_at: int
    """Offset of `tag_head` in the frame."""
    tag_head: bytes
    tail_at: int
    tail: bytes
    end: int
    """Offset of the payload."""
    unpack: Callable[[memoryview, int], tuple[int, bytes, bytes, bytes]]
    """Returns the size, and what is compared, of the frame at an offset: without a copy of what was read."""
    half: Any
    """The half of the link that it was sent on, as `FrameCheck` knows it."""
    is_settled: bool


def layout_of(frame: bytes, fields: Performative, half: Any = None) -> Layout | None:
    """Return the layout of a transfer that was checked; None if delivery-id or delivery-tag have unusual encodings."""
    raw = fields.raw
    if len(raw) < _FIELDS or frame[4] != 2 or raw[1][0] == NULL or raw[2][0] not in _TAG_LENGTHS:
        return None
    id_at = fields.end - sum(map(len, raw)) + len(raw[0])
    tag_at = id_at + len(raw[1])
    tail_at = tag_at + len(raw[2])
    head, tag_head, tail = frame[4 : id_at + 1], raw[2][: _TAG_LENGTHS[raw[2][0]]], frame[tail_at : fields.end]
    sizes = len(head), len(raw[1]) - 1, len(tag_head), len(raw[2]) - len(tag_head), len(tail)
    unpack = Struct(">I{}s{}x{}s{}x{}s".format(*sizes)).unpack_from
    return Layout(head, tag_at, tag_head, tail_at, tail, fields.end, unpack, half, fields.is_set(_SETTLED))


def repeats(data: memoryview, at: int, size: int, layout: Layout) -> bool:
    """Return True if the frame at *at*, whose performative is complete, has this layout."""
    if size < layout.end:
        return False
    _, head, tag_head, tail = layout.unpack(data, at)
    return head == layout.head and tag_head == layout.tag_head and tail == layout.tail


def run(data: memoryview, at: int, most: int, size: int, layout: Layout) -> int:
    """Return the number of consecutive frames of *size* bytes that repeat *layout*, from *at* on, at most *most*."""
    rows = np.frombuffer(data, np.uint8, most * size, at).reshape(most, size)[:, : layout.end]
    differs = rows != rows[0]
    differs[:, 4 + len(layout.head) : layout.tag_at] = False
    differs[:, layout.tag_at + len(layout.tag_head) : layout.tail_at] = False
    other = differs.any(axis=1)
    first = int(other.argmax())
    return first if other[first] else most


def payload_at(data: memoryview, at: int, end: int) -> int:
    """Return the end of the performative, of a transfer at *at* that is complete before *end*; else 0."""
    if at + 20 > end or data[at + 4] != 2 or data[at + 8 : at + 11].tobytes() != b"\x00\x53\x14":
        return 0
    code = data[at + 11]
    size = data[at + 12] + 2 if code == 0xC0 else int.from_bytes(data[at + 12 : at + 16]) + 5
    is_complete = code in (0xC0, 0xD0) and size <= MOST_PERFORMATIVE_BYTES and at + 11 + size <= end
    return at + 11 + size if is_complete else 0
