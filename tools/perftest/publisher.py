"""A publisher: waits for the word to start, sends its messages as fast as it may, and reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...amqp.client.links import SETTLED, UNSETTLED, Outgoing, data_of
from ...amqp.client.wire import Wire, outcome_of
from ...amqp.frames import performatives as p
from ...base.clock import now_ns
from ...base.errors import BrokerError
from .client import START, LoadClient
from .messages import Table
from .plan import Options

_MOST_WAITING_BYTES = 1 << 20


class Stream(Outgoing):
    """The link that messages go out on."""

    def __init__(self, wire: Wire, name: str, address: str, publisher: Publisher, *, settled: bool) -> None:
        super().__init__(wire, name, address)
        self._publisher = publisher
        self.settle_mode = SETTLED if settled else UNSETTLED

    def came_outcome(self, first: int, last: int, state: Any) -> None:
        self._publisher.came_outcome(first, last, state)

    def is_settled(self, number: int) -> bool:
        return self._publisher.is_settled(number)


class Publisher(LoadClient):
    """A publisher of a test."""

    role = "publisher"

    def __init__(self, wire: Wire, options: Options, number: int, address: str, share: Callable[[], float]) -> None:
        name = f"{options.base_name}-pub-{number}-{id(self):x}"
        self.stream = Stream(wire, name, address, self, settled=not options.confirms)
        super().__init__(wire, options, number, share, self.stream, "pub_start", options.pub_tx)
        self.sent = 0
        """Messages of the current iteration that were sent."""
        self._confirms = options.confirms
        self._low = 0
        self._step_ns = (
            1e9 * options.all_pubs / options.rate_per_s if options.rate_per_s else options.interval_pub_ms * 1e6
        )
        self._catches_up = bool(options.rate_per_s)
        self._txn_left = 0
        self._answered = 0
        """Messages of this iteration whose outcome is known, if only as part of a transaction; or that need none."""
        self._committing = 0
        """Messages of transactions whose end is not confirmed."""

    def came_outcome(self, first: int, last: int, state: Any) -> None:
        code, _ = outcome_of(state)
        fresh = ~self._known[first : last + 1]
        count = int(np.count_nonzero(fresh))
        self._known[first : last + 1] = True
        if code != p.ACCEPTED:
            self._wrong["refused"] += count
        self._answered += count
        if self._coordinator is not None:
            return
        self._times.add(now_ns() - self._sent_ns[first : last + 1][fresh])
        self.messages += count

    def is_settled(self, number: int) -> bool:
        if self._known[self._low : number + 1].all():
            self._low = max(self._low, number + 1)
            return True
        return False

    def _step(self) -> int:
        next_ns = self._send(now_ns())
        if self.sent == self._options.count and self.messages == self._answered == self.sent:
            self._ended_ns = now_ns()
            self._end()
        return next_ns

    def _came_word(self, message: bytes) -> None:
        if data_of(message) != START:
            raise BrokerError(
                self._words.address, "something else than the word to start came", "is --base-name used twice?"
            )
        self._reset()
        self._table = self._new_table()
        self._sent_ns = np.zeros(self._options.count, np.int64)
        self._known = np.zeros(self._options.count, bool)
        self.sent = self._answered = self._low = 0
        self._running = True
        self._next_ns = float(self._begun_ns)

    def _new_table(self, txn_id: bytes = b"", **more: int) -> Table:
        return Table(
            self._options.body, self.stream.handle, self._wire.max_frame, self.number, self.iteration,
            settled=not self._confirms, txn_id=txn_id, **more,
        )  # fmt: skip

    def _send(self, now: int) -> int:
        wire, stream, options = self._wire, self.stream, self._options
        while True:
            if self._coordinator is not None:
                room = self._room_in_transaction()
            else:
                room = options.window - (self.sent - self.messages if self._confirms else 0)
            frames = wire.window // self._table.frames
            room = min(room, options.count - self.sent, stream.credit, frames, self._table.most)
            if self._step_ns:
                due = int((now - self._next_ns) / self._step_ns) + 1 if now >= self._next_ns else 0
                room = min(room, due if self._catches_up else min(due, 1))
            if room <= 0 or wire.waiting_bytes > _MOST_WAITING_BYTES:
                break
            if self._catches_up:
                times = (self._next_ns + self._step_ns * np.arange(room)).astype(np.int64)
            else:
                now = now_ns()
                times = np.full(room, now, np.int64)
            self._put(room, times)
            if self._step_ns:
                self._next_ns = self._next_ns + room * self._step_ns if self._catches_up else now + self._step_ns
        if self._step_ns and self.sent < options.count:
            return int(self._next_ns)
        return 0

    def _put(self, room: int, times: Any) -> None:
        stream, at = self.stream, self.sent
        frames = self._table.fill(self._wire.next_id, at, times)
        self._sent_ns[at : at + room] = times
        stream.credit -= room
        stream.delivery_count += room
        self.sent += room
        if self._coordinator is not None:
            self._txn_left -= room
        if not self._confirms:
            self._known[at : at + room] = True
            self._answered += room
            if self._coordinator is None:
                self.messages += room
        self._wire.send(stream, frames, room, room * self._table.frames, at)

    def _room_in_transaction(self) -> int:
        """Declare and discharge transactions as needed; return how many more messages the open one may take now.

        Messages sent before a discharge are part of it, so their outcomes are not awaited. The next transaction is
        declared with the discharge, and stays empty until that is confirmed, unless commits are asynchronous.
        """
        coordinator, options = self._coordinator, self._options
        assert coordinator is not None
        begin, end = self.messages + self._committing, self.sent
        if coordinator.txn_id and not self._txn_left and begin < end:
            self._committing += end - begin
            coordinator.commit(lambda: self._committed(begin, end))
        if coordinator.idle and self.sent < options.count:
            coordinator.declare(self._declared)
        may = options.async_commit or not self._committing
        return self._txn_left if coordinator.txn_id and may else 0

    def _declared(self, txn_id: bytes) -> None:
        self._txn_left = min(self._options.pub_tx, self._options.count - self.sent)
        if not self._table.move_to(txn_id):
            self._table = self._new_table(txn_id, most=self._txn_left)

    def _committed(self, begin: int, end: int) -> None:
        self._committing -= end - begin
        self.messages += end - begin
        self._times.add(now_ns() - self._sent_ns[begin:end])
