"""The times of messages: when one expires, and before when it is not delivered.

A message expires by its header's `ttl`, or its queue's `message-ttl-ms`, whichever is sooner. It is held back until
its annotation `x-opt-delivery-time` (milliseconds since 1970), or `x-opt-delivery-delay` (milliseconds from now), says.
So that a restart knows since when it counts, such a message is annotated with `x-opt-enqueued-time`.
"""

from __future__ import annotations

from typing import NamedTuple

from ..amqp import sections
from ..amqp.codec import Malformed
from ..amqp.header import Header, parse
from ..amqp.values import Timestamp
from ..channel.words import Content
from .entry import Entry

ENQUEUED, DELIVERY_TIME, DELIVERY_DELAY = "x-opt-enqueued-time", "x-opt-delivery-time", "x-opt-delivery-delay"
MOST_MS = 1 << 52
"""Beyond it a time is for ever."""


class Times(NamedTuple):
    """In microseconds since 1970; 0 for no such time."""

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


def may_have_times(head: Header) -> bool:
    """Whether it is worth a closer look: there is a time to live, or there are annotations."""
    return head.annotated or head.ttl_ms is not None


def stamped(content: bytes, head: Header, now_us: int, *, always: bool) -> bytes:
    """*content*, annotated if it has times, or in any case. Raises `Malformed`."""
    if always or head.ttl_ms is not None:
        return sections.annotated(content, {ENQUEUED: Timestamp(now_us // 1000)})
    told = sections.annotations_of(content, sections.find(content, sections.MESSAGE_ANNOTATIONS))
    if DELIVERY_TIME in told or DELIVERY_DELAY in told:
        return sections.annotated(content, {ENQUEUED: Timestamp(now_us // 1000)})
    return content


def times_of(content: bytes, queue_ttl_ms: int) -> Times | None:
    """The times of a message that was `stamped`, or None; *content* may be the beginning of one."""
    try:
        head = parse(content)
        if not may_have_times(head):
            return None
        told = sections.annotations_of(content, sections.find(content, sections.MESSAGE_ANNOTATIONS))
    except Malformed:
        return None
    begin_ms = _number(told.get(ENQUEUED))
    if not begin_ms:
        return None
    lives_ms = min([ttl_ms for ttl_ms in (head.ttl_ms, queue_ttl_ms or None) if ttl_ms is not None], default=None)
    due_ms = _number(told.get(DELIVERY_TIME))
    delay_ms = _number(told.get(DELIVERY_DELAY))
    due_ms = due_ms or (begin_ms + delay_ms if delay_ms else 0)
    if lives_ms is None and due_ms <= begin_ms:
        return None
    return Times(due_ms * 1000, 0 if lives_ms is None else (begin_ms + lives_ms) * 1000)


def _number(of: object) -> int:
    return min(int(of), MOST_MS) if isinstance(of, int) and of > 0 else 0
