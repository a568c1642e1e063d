"""Splits long events into parts, of which the last one determines the position in the order (rule 7). Core only.

A member that joins in between has not received the first parts, so they are sent again for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ..group.group import MAX_PAYLOAD_BYTES
from ..group.group_events import Configuration
from ..group.member_id import MemberId
from . import events


class MissedFragment(Exception):
    """A complete event whose beginning was not received."""


class Fragmenter:
    """The unsent payloads of one member."""

    def __init__(self, multicast: Callable[[bytes], bool]) -> None:
        self._multicast = multicast
        self._unsent: deque[bytes] = deque()
        self._begun: list[bytes] = []
        """The parts that were sent of an incomplete event."""

    @property
    def is_waiting(self) -> bool:
        """Return whether the group accepts no more for now."""
        return bool(self._unsent)

    def send(self, event: bytes) -> None:
        if len(event) <= MAX_PAYLOAD_BYTES and not self._unsent:
            if not self._multicast(event):
                self._unsent.append(event)
            return
        self._unsent.extend(events.parts_of(event))
        self.resume()

    def resume(self) -> None:
        """Sends the payloads that the group did not accept before."""
        unsent = self._unsent
        while unsent and self._multicast(unsent[0]):
            payload = unsent.popleft()
            if payload[0] == events.PART:
                if payload[1] & events.LAST:
                    self._begun.clear()
                else:
                    self._begun.append(payload)

    def somebody_joined(self) -> None:
        """Sends the fragments of an unfinished event again, for new members."""
        self._unsent.extendleft(reversed(self._begun))
        self._begun.clear()

    def lost(self) -> None:
        """Drops all unsent events."""
        self._unsent.clear()
        self._begun.clear()


class Reassembly:
    """The received parts of each sender."""

    def __init__(self) -> None:
        self._parts: dict[MemberId, bytearray] = {}

    def add(self, sender: MemberId, part: events.PartEvent) -> bytes | None:
        """Returns the event when it is complete, else None. Raises `Missed`, and `BadEvent`."""
        if part.flags & events.FIRST:
            self._parts[sender] = bytearray()
        parts = self._parts.get(sender)
        if parts is None:
            if part.flags & events.LAST:
                raise MissedFragment
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
        """The size of all incomplete events."""
        return sum(map(len, self._parts.values())) if self._parts else 0

    def configured(self, config: Configuration) -> None:
        """Drops the fragments of members that left."""
        for member in config.left:
            self._parts.pop(member, None)

    def lost(self) -> None:
        self._parts.clear()
