"""Long events go in parts, of which the last one fixes the place in the order (rule 7). Core only.

A member that comes meanwhile has not heard the first ones, so they are said again for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from . import events
from .group import MAX_PAYLOAD_BYTES, MemberId


class Missed(Exception):
    """An event came to its end, and its beginning was not heard."""


class Saying:
    """What is to be said, in payloads."""

    def __init__(self, multicast: Callable[[bytes], bool]) -> None:
        self._multicast = multicast
        self._unsent: deque[bytes] = deque()
        self._begun: list[bytes] = []
        """Parts that were said of an event that is not at its end."""

    @property
    def waits(self) -> bool:
        return bool(self._unsent)

    def say(self, event: bytes) -> None:
        if len(event) <= MAX_PAYLOAD_BYTES and not self._unsent:
            if not self._multicast(event):
                self._unsent.append(event)
            return
        self._unsent.extend(events.parts_of(event))
        self.go_on()

    def go_on(self) -> None:
        """Say what could not be said before."""
        unsent = self._unsent
        while unsent and self._multicast(unsent[0]):
            payload = unsent.popleft()
            if payload[0] == events.PART:
                if payload[1] & events.LAST:
                    self._begun.clear()
                else:
                    self._begun.append(payload)

    def somebody_came(self) -> None:
        """Who has not heard what there was before."""
        self._unsent.extendleft(reversed(self._begun))
        self._begun.clear()

    def lost(self) -> None:
        self._unsent.clear()
        self._begun.clear()


class Hearing:
    """Parts of each sender."""

    def __init__(self) -> None:
        self._parts: dict[MemberId, bytearray] = {}

    def heard(self, sender: MemberId, part: events.Part) -> bytes | None:
        """The event, once it is whole. Raises `Missed`, and `BadEvent`."""
        if part.flags & events.FIRST:
            self._parts[sender] = bytearray()
        parts = self._parts.get(sender)
        if parts is None:
            if part.flags & events.LAST:
                raise Missed
            return None
        parts += part.data
        if len(parts) > events.MAX_EVENT_BYTES:
            del self._parts[sender]
            raise events.BadEvent(f"longer than {events.MAX_EVENT_BYTES} bytes")
        if not part.flags & events.LAST:
            return None
        return bytes(self._parts.pop(sender))

    @property
    def size_bytes(self) -> int:
        """Of what is not whole."""
        return sum(map(len, self._parts.values())) if self._parts else 0

    def left(self, member: MemberId) -> None:
        self._parts.pop(member, None)

    def lost(self) -> None:
        self._parts.clear()
