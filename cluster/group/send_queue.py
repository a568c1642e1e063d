"""Gathers payloads into frames, sends them when the bus accepts them, and tracks them until they come back.

payloads -> the open batch -> waiting frames -> on the bus -> received again

`in_flight_bytes` counts from the first arrow to the last. The engine has no reliable measure of the bytes in flight, so
this sum limits a member (`WINDOW_BYTES`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from .bus import Bus
from .frame import MAX_EVENTS, Frame, encode, encode_events
from .group import BATCH_BYTES

PER_EVENT_BYTES = 16
"""The overhead that each event counts, so that the window also limits empty events."""


class Outbox:
    def __init__(self, bus: Bus, window_bytes: int, batch_bytes: int = BATCH_BYTES) -> None:
        self._bus = bus
        self._window_bytes = window_bytes
        self._batch_bytes = batch_bytes
        self.view = self.state = 0
        """The configuration in which frames are sent."""
        self.begin(0)

    @property
    def idle(self) -> bool:
        """Return whether no frame waits for the bus."""
        return not self._waiting and not self._batch

    def begin(self, incarnation: int) -> None:
        """Discards everything in flight: it belongs to an incarnation that ended."""
        self.incarnation = incarnation
        self._batch: list[bytes] = []
        self._batch_size = self.in_flight_bytes = 0
        self._waiting: deque[bytes] = deque()
        self._flying: deque[tuple[int, int]] = deque()
        """Numbers and sizes of the events frames that have not come back, including those that wait for the bus."""
        self.last_seq = 0
        """The number of the last frame that was made."""
        self.received = 0
        """The number of the last frame that came back, with all before it."""

    def enqueue(self, payload: bytes) -> bool:
        weight = len(payload) + PER_EVENT_BYTES
        if self.in_flight_bytes + weight > self._window_bytes and self.in_flight_bytes:
            return False
        self._batch.append(payload)
        self._batch_size += len(payload)
        self.in_flight_bytes += weight
        if self._batch_size >= self._batch_bytes or len(self._batch) == MAX_EVENTS:
            self.flush()
        return True

    def flush(self) -> bool:
        """Sends all frames that the bus accepts; returns whether any remain."""
        if self._batch:
            self.last_seq += 1
            self._say_events(self._batch)
            self._flying.append((self.last_seq, self._batch_size + PER_EVENT_BYTES * len(self._batch)))
            self._batch = []
            self._batch_size = 0
        while self._waiting and self._bus.send(self._waiting[0]):
            self._waiting.popleft()
        return bool(self._waiting)

    def say(self, frame: Frame) -> None:
        """Queues a frame about the group itself, which the window does not limit."""
        self._waiting.append(encode(frame))

    def say_where(self) -> None:
        """Queues an events frame without events, so that a member that missed the last frame detects it."""
        self._say_events(())

    def came_back(self, seq: int) -> None:
        self.received = seq
        while self._flying and self._flying[0][0] <= seq:
            self.in_flight_bytes -= self._flying.popleft()[1]

    def _say_events(self, payloads: Sequence[bytes]) -> None:
        frame = encode_events(self.incarnation, self.last_seq, self.received, self.view, self.state, payloads)
        self._waiting.append(frame)
