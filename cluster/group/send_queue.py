"""Gathers the payloads of a member into frames, sends these when the bus takes them, and counts them until they return.

payloads -> the open batch -> waiting frames -> on the bus -> heard again

`in_flight_bytes` counts from the first arrow to the last. The engine has no honest measure of its own of how much is
under way, so that sum is what bounds a member (`WINDOW_BYTES`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from .bus import Bus
from .frame import MAX_EVENTS, Frame, encode, encode_events
from .group import BATCH_BYTES

PER_EVENT_BYTES = 16
"""So that the window bounds empty events, too."""


class Outbox:
    def __init__(self, bus: Bus, window_bytes: int, batch_bytes: int = BATCH_BYTES) -> None:
        self._bus = bus
        self._window_bytes = window_bytes
        self._batch_bytes = batch_bytes
        self._batch: list[bytes] = []
        self._batch_size = 0
        self._waiting: deque[bytes] = deque()
        self._flying: deque[tuple[int, int]] = deque()
        """Number and weight of the events frames that did not come back yet, also of waiting ones."""
        self.incarnation = 0
        self.view = self.state = 0
        """What is said is said in this configuration."""
        self.in_flight_bytes = 0
        self.last_seq = 0
        """Of the last frame that was made."""
        self.heard = 0
        """The last that came back, with all before it."""

    @property
    def idle(self) -> bool:
        """Return whether no frame waits for the bus."""
        return not self._waiting and not self._batch

    def begin(self, incarnation: int) -> None:
        """Forget what was under way: it was of an incarnation that is over."""
        self._batch.clear()
        self._waiting.clear()
        self._flying.clear()
        self._batch_size = self.in_flight_bytes = self.last_seq = self.heard = 0
        self.incarnation = incarnation

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
        """Send all that the bus takes; whether anything is left."""
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
        """Something about the group itself; no window holds it back."""
        self._waiting.append(encode(frame))

    def say_where(self) -> None:
        """An events frame without events: whoever missed the last one notices."""
        self._say_events(())

    def came_back(self, seq: int) -> None:
        self.heard = seq
        while self._flying and self._flying[0][0] <= seq:
            self.in_flight_bytes -= self._flying.popleft()[1]

    def _say_events(self, payloads: Sequence[bytes]) -> None:
        frame = encode_events(self.incarnation, self.last_seq, self.heard, self.view, self.state, payloads)
        self._waiting.append(frame)
