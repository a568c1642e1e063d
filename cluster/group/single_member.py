"""A group of one broker: a multicast event is delivered at the next step, without encoding."""

from __future__ import annotations

import os

from .group import MAX_PAYLOAD_BYTES, GroupError
from .group_events import Configuration, Event, EventBatch, Quorum
from .member import random_incarnation
from .member_id import MemberId


class SingleMemberGroup:
    """A `Group` that needs no engine."""

    def __init__(self, node: int = 1) -> None:
        self.me: MemberId | None = None
        self.in_flight_bytes = 0
        self._node = node
        self._events: list[Event] = []
        self._payloads: list[bytes] = []
        self._position = self._seq = 0
        self._joined = False
        self._event_fd: int | None = None

    def join(self, name: str) -> None:
        if self._joined:
            raise GroupError(f"cluster group {name}", "it was already joined", "make a new one")
        self._joined = True
        me = self.me = MemberId(self._node, os.getpid(), random_incarnation())
        self._events += [Quorum(True), Configuration(1, (me,), (me,), (), primary=True, founded=True, position=0)]
        self._ring()

    def close(self) -> None:
        self.me = None
        self._events.clear()
        self._payloads.clear()
        self.in_flight_bytes = 0
        if self._event_fd is not None:
            os.close(self._event_fd)
            self._event_fd = None

    def multicast(self, payload: bytes) -> bool:
        """Accepts every event: the caller itself receives it at its next step."""
        if len(payload) > MAX_PAYLOAD_BYTES:
            reason = f"an event of {len(payload)} bytes exceeds the limit of {MAX_PAYLOAD_BYTES}"
            raise GroupError("cluster group", reason)
        if self.me is None:
            return False
        if not self._payloads:
            self._ring()
        self._payloads.append(payload)
        self.in_flight_bytes += len(payload)
        return True

    def flush(self) -> None:
        pass

    def step(self) -> list[Event]:
        if self._event_fd is not None and (self._events or self._payloads):
            os.eventfd_read(self._event_fd)
        events, self._events = self._events, []
        if self._payloads and self.me:
            self._seq += 1
            events.append(EventBatch(self.me, self._position, self._payloads, self._seq))
            self._position += len(self._payloads)
            self._payloads = []
            self.in_flight_bytes = 0
        return events

    def fileno(self) -> int:
        if self._event_fd is None:
            self._event_fd = os.eventfd(1 if self._events or self._payloads else 0, os.EFD_NONBLOCK)
        return self._event_fd

    def wait_s(self) -> float | None:
        return 0.0 if self._events or self._payloads else None

    def nodes(self) -> tuple[int, ...]:
        return (self._node,)

    def take_signs(self) -> set[MemberId]:
        return set()

    def expel(self, member: MemberId) -> None:
        pass

    def force(self) -> None:
        pass

    def _ring(self) -> None:
        if self._event_fd is not None:
            os.eventfd_write(self._event_fd, 1)
