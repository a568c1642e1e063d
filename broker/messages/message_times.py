"""The times of messages: when one expires, and when its delivery may begin.

A message expires by its header's `ttl`, its properties' `absolute-expiry-time`, or its queue's `message-ttl-ms`,
whichever is earliest; clients write a `ttl` of 0, or an absolute time up to 1970, for no limit. It is held back until
its annotation `x-opt-delivery-time` (milliseconds since 1970), or for `x-opt-delivery-delay` (milliseconds). A message
with a relative time is annotated with `x-opt-enqueued-time`, so that a restart can compute the rest.

A dead-lettered message loses its own times, since it should be inspected: only the target queue limits its time there.
A message that an operator moves keeps them, less the elapsed time.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ...amqp.codec import sections
from ...amqp.codec.decode import extent_of
from ...amqp.codec.header import Header, parse
from ...amqp.codec.primitives import Malformed
from ...amqp.codec.types import Timestamp
from ...amqp.ports import Content
from .death_history import LAST_REASON, WRITTEN_BY_BROKER
from .entry import Entry, rewritten

ENQUEUED, DELIVERY_TIME, DELIVERY_DELAY = "x-opt-enqueued-time", "x-opt-delivery-time", "x-opt-delivery-delay"
_PROPERTIES = b"\x00Ss"
_SHORT_LIST = b"\x00Ss\xc0"
_EXPIRY = 8
"""The place of `absolute-expiry-time` in the properties."""
_TOO_FEW = bytes((_EXPIRY,))
_NULL, _TIMESTAMP = 0x40, 0x83
MOST_MS = 1 << 52
"""The latest time; later ones count as this one."""


class Times(NamedTuple):
    """The times of a message in microseconds since 1970; 0 for none."""

    due_us: int
    expires_us: int


class TimedEntry(Entry):
    """An entry of a message with a time."""

    __slots__ = ("due_us", "expires_us")

    def __init__(
        self, message_id: int, position: int, content: bytes | Content | None, held_bytes: int, times: Times
    ) -> None:
        super().__init__(message_id, position, content, held_bytes)
        self.due_us, self.expires_us = times

    def marked(self, content: bytes | Content, now_us: int) -> bytes | Content:
        """Return *content* with a header that shows a redelivery, and the rest of the time to live (3.2.1)."""
        content = super().marked(content, now_us)
        return rewritten(content, partial(_reduced, now_ms=now_us // 1000)) if self.expires_us else content


def due_us_of(entry: Entry) -> int:
    """Return the delivery time of a message in microseconds since 1970; 0 without one."""
    return entry.due_us if isinstance(entry, TimedEntry) else 0


def may_have_times(content: bytes, head: Header) -> bool:
    """Return whether a message may have times: a time to live, an absolute time, or annotations."""
    return head.ttl_ms is not None or (head.annotated and tells_times(content, head))


def tells_times(content: bytes, head: Header) -> bool:
    """Return whether an `annotated` message may have times.

    Properties without an absolute time are common, and excluded fast.
    """
    at = head.size_bytes
    if content.startswith(_SHORT_LIST, at) and content[at + 5 : at + 6] <= _TOO_FEW:
        return False
    return not content.startswith(_PROPERTIES, at) or expiry_ms(content, at + 3) is not None


def expiry_ms(content: bytes, at: int) -> int | None:
    """Return the `absolute-expiry-time` of the properties at *at*; None if it is missing, or they are incomplete."""
    if content[at : at + 1] == b"\xc0" and len(content) >= at + 3:
        size, count, first = content[at + 1], content[at + 2], at + 3
        end = at + 2 + size
    elif content[at : at + 1] == b"\xd0" and len(content) >= at + 9:
        size, count = int.from_bytes(content[at + 1 : at + 5]), int.from_bytes(content[at + 5 : at + 9])
        first, end = at + 9, at + 5 + size
    else:
        return None
    if count <= _EXPIRY or end > len(content):
        return None
    if count == _EXPIRY + 2 and content[end - 10] == _NULL and content[end - 18] != _TIMESTAMP == content[end - 9]:
        return None  # a creation time is the last field, and there is nothing before it: as JMS clients send
    try:
        for _ in range(_EXPIRY):
            first = extent_of(content, first, end)
    except Malformed:
        return None
    if content[first : first + 1] != bytes((_TIMESTAMP,)) or first + 9 > end:
        return None
    return int.from_bytes(content[first + 1 : first + 9], signed=True)


def stamped(content: bytes, head: Header, now_us: int, *, always: bool) -> bytes:
    """Return *content* as it is stored: annotated if it has times, or *always*, without a death history of its sender.

    Raise `Malformed`.
    """
    if always or head.ttl_ms is not None:
        return sections.annotated(content, {ENQUEUED: Timestamp(now_us // 1000)}, without=WRITTEN_BY_BROKER)
    reported = sections.annotations_of(content, sections.find(content, sections.MESSAGE_ANNOTATIONS))
    if DELIVERY_TIME in reported or DELIVERY_DELAY in reported:
        return sections.annotated(content, {ENQUEUED: Timestamp(now_us // 1000)}, without=WRITTEN_BY_BROKER)
    if not WRITTEN_BY_BROKER.isdisjoint(reported):
        return sections.annotated(content, {}, without=WRITTEN_BY_BROKER)
    return content


def carried(content: bytes, now_us: int, *, always: bool) -> bytes:
    """Return *content*, which was `stamped` on another queue, with the rest of its times. Raise `Malformed`.

    *always*: the target queue has a time, too, which begins now.
    """
    head = parse(content)
    if not (always or may_have_times(content, head)):
        return content
    reported = sections.annotations_of(content, sections.find(content, sections.MESSAGE_ANNOTATIONS))
    delay_ms = _number(reported.get(DELIVERY_DELAY))
    if not (always or head.ttl_ms is not None or delay_ms or DELIVERY_TIME in reported):
        return content
    now_ms = now_us // 1000
    begin_ms = _number(reported.get(ENQUEUED)) or now_ms
    if head.ttl_ms:
        head_left = head._replace(ttl_ms=_left_ms(head.ttl_ms, now_ms - begin_ms))
        content = sections.header_section(head_left) + content[head.size_bytes :]
    entries = {ENQUEUED: Timestamp(now_ms)}
    if delay_ms and DELIVERY_TIME not in reported:
        entries[DELIVERY_TIME] = Timestamp(begin_ms + delay_ms)
    return sections.annotated(content, entries)


def _reduced(content: bytes, now_ms: int) -> bytes:
    """Return *content*, or its beginning, with a time to live that is reduced by the time since it was `stamped`."""
    try:
        head = parse(content)
        if not head.ttl_ms:
            return content
        reported = sections.annotations_of(content, sections.find(content, sections.MESSAGE_ANNOTATIONS))
    except Malformed:
        return content
    head = head._replace(ttl_ms=_left_ms(head.ttl_ms, now_ms - (_number(reported.get(ENQUEUED)) or now_ms)))
    return sections.header_section(head) + content[parse(content).size_bytes :]


def _left_ms(ttl_ms: int, elapsed_ms: int) -> int:
    """Return the rest of a time to live, at least 1, as 0 stands for no limit."""
    return max(1, ttl_ms - max(0, elapsed_ms))


def times_of(content: bytes, queue_ttl_ms: int) -> Times | None:
    """Return the times of a message that was `stamped`, or None; *content* may be its beginning."""
    try:
        head = parse(content)
        if not may_have_times(content, head):
            return None
        absolute_ms = expiry_ms(content, sections.find(content, sections.PROPERTIES))
        reported = sections.annotations_of(content, sections.find(content, sections.MESSAGE_ANNOTATIONS))
    except Malformed:
        return None
    begin_ms = _number(reported.get(ENQUEUED))
    due_ms, ends_ms = 0, list[int]()
    if absolute_ms is not None and absolute_ms > 0 and LAST_REASON not in reported:
        ends_ms.append(min(absolute_ms, MOST_MS))
    if begin_ms:
        ends_ms += [begin_ms + ttl_ms for ttl_ms in (head.ttl_ms, queue_ttl_ms) if ttl_ms]
        due_ms, delay_ms = _number(reported.get(DELIVERY_TIME)), _number(reported.get(DELIVERY_DELAY))
        due_ms = due_ms or (begin_ms + delay_ms if delay_ms else 0)
    if not ends_ms and due_ms <= begin_ms:
        return None
    return Times(due_ms * 1000, min(ends_ms, default=0) * 1000)


def _number(of: object) -> int:
    return min(int(of), MOST_MS) if isinstance(of, int) and of > 0 else 0
