"""A publisher: waits for the word to start, sends its messages as fast as it may, and reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...amqp.client.links import SETTLED, UNSETTLED, ClientLink, Outgoing, Receiver, Sender, data_message, data_of
from ...amqp.client.wire import Wire, outcome_of
from ...amqp.frames import performatives as p
from ...base.clock import now_ns
from ...base.errors import BrokerError
from .figures import Report, Times
from .messages import Table
from .plan import Options
from .transactions import Coordinator

READY, START = b"ready", b"start"
_MOST_WAITING_BYTES = 1 << 20


class Stream(Outgoing):
    """The link that messages go out on."""

    def __init__(self, wire: Wire, name: str, address: str, publisher: Publisher, *, settled: bool) -> None:
        super().__init__(wire, name, address)
        self._publisher = publisher
        self.settle_mode = SETTLED if settled else UNSETTLED

    def came_outcome(self, first: int, last: int, settled: bool, state: Any) -> None:
        self._publisher.came_outcome(first, last, state)

    def is_settled(self, number: int) -> bool:
        return self._publisher.is_settled(number)


class Publisher:
    """A publisher of a test, on a wire that it may share. Call `step` after all input is processed."""

    def __init__(self, wire: Wire, options: Options, number: int, address: str, share: Callable[[], float]) -> None:
        """*share*: its share so far of the CPU time that this process took."""
        self.name = f"publisher {number}"
        self.number = number
        self.finished = False
        self.sent = self.settled = self.iteration = 0
        """Counts of the current iteration, and its number."""
        self.total = 0
        """Messages settled in all iterations."""
        self.done: Callable[[Report], None] = lambda report: None
        """Called at the end of each iteration."""
        self._wire = wire
        self._options = options
        self._share = share
        self._confirms = options.confirms
        self._running = False
        self._refused = self._low = 0
        self._step_ns = (
            1e9 * options.all_pubs / options.rate_per_s if options.rate_per_s else options.interval_pub_ms * 1e6
        )
        self._catches_up = bool(options.rate_per_s)
        name = f"{options.base_name}-pub-{number}-{id(self):x}"
        self.stream = Stream(wire, name, address, self, settled=not options.confirms)
        self.stream.durability = options.durability(wire.properties)
        self._start = Receiver(wire, f"{name}-start", options.control("pub_start"), self._came_start)
        self._tell = Sender(wire, f"{name}-done", options.control("pub_done"))
        self._ready = Sender(wire, f"{name}-ready", options.control("ready"))
        self._links: list[ClientLink] = [self.stream, self._start, self._tell, self._ready]
        self._coordinator: Coordinator | None = None
        if options.pub_tx:
            self._coordinator = Coordinator(wire, f"{name}-control")
            self._links.append(self._coordinator.link)
        for link in self._links:
            wire.attach(link)
        self._waiting = False
        self._txn_left = 0
        self._answered = 0
        """Messages of this iteration whose outcome is known, if only as part of a transaction; or that need none."""
        self._committing = 0
        """Messages of transactions whose end is not confirmed."""

    def step(self) -> int:
        """Do what can be done; when, in ns, there may be more to do, 0 if only something that comes can change that."""
        if not self._waiting and not self._running and not self.finished:
            if all(link.attached for link in self._links):
                self._waiting = True
                self._start.allow(1)
                self._ready.post(data_message(READY))  # from here on the word to start is not taken by another
            return 0
        if not self._running:
            return 0
        now = now_ns()
        next_ns = self._send(now)
        if self.sent == self._options.count and self.settled == self._answered == self.sent:
            self._end(now_ns())
        return next_ns

    def report(self, *, partial: bool = False) -> Report:
        """Return the report of the current iteration, or of the last one."""
        ended_ns = now_ns() if self._running else self._ended_ns
        return Report(
            "publisher", self.number, self.iteration, self.settled, self._begun_ns, ended_ns,
            self._share() - self._cpu_s, self._times.encoded(), self._refused, partial=partial,
        )  # fmt: skip

    @property
    def started(self) -> bool:
        return self._running

    def came_outcome(self, first: int, last: int, state: Any) -> None:
        code, _ = outcome_of(state)
        fresh = ~self._known[first : last + 1]
        count = int(np.count_nonzero(fresh))
        self._known[first : last + 1] = True
        if code != p.ACCEPTED:
            self._refused += count
        self._answered += count
        if self._coordinator is not None:
            return
        self._times.add(now_ns() - self._sent_ns[first : last + 1][fresh])
        self.settled += count

    def is_settled(self, number: int) -> bool:
        if self._known[self._low : number + 1].all():
            self._low = max(self._low, number + 1)
            return True
        return False

    def _came_start(self, message: bytes) -> None:
        if data_of(message) != START:
            raise BrokerError(
                self._start.address, "something else than the word to start came", "is --base-name used twice?"
            )
        options, count = self._options, self._options.count
        self._table = Table(
            options.body,
            self.stream.handle,
            self._wire.max_frame,
            self.number,
            self.iteration,
            settled=not self._confirms,
        )
        self._sent_ns = np.zeros(count, np.int64)
        self._known = np.zeros(count, bool)
        self._times = Times()
        self.sent = self.settled = self._answered = self._refused = self._low = 0
        self._cpu_s = self._share()
        self._running = True
        self._waiting = False
        self._begun_ns = self._ended_ns = now_ns()
        self._next_ns = float(self._begun_ns)

    def _send(self, now: int) -> int:
        wire, stream, options = self._wire, self.stream, self._options
        while True:
            unsettled = self.sent - self.settled if self._confirms else 0
            room = min(
                options.count - self.sent, options.window - unsettled, stream.credit, wire.window // self._table.frames
            )
            if self._coordinator is not None:
                room = min(options.count - self.sent, self._room_in_transaction(), stream.credit)
                room = min(room, wire.window // self._table.frames)
            room = min(room, self._table.most)
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
                self.settled += room
        self._wire.send(stream, frames, room, room * self._table.frames, at)

    def _room_in_transaction(self) -> int:
        """Declare and discharge transactions as needed; return how many more messages the open one may take now.

        Messages sent before a discharge are part of it, so their outcomes are not awaited. The next transaction is
        declared with the discharge, and stays empty until that is confirmed, unless commits are asynchronous.
        """
        coordinator, options = self._coordinator, self._options
        assert coordinator is not None
        begin, end = self.settled + self._committing, self.sent
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
            self._table = Table(
                self._options.body, self.stream.handle, self._wire.max_frame, self.number, self.iteration,
                settled=not self._confirms, txn_id=txn_id, most=self._txn_left,
            )  # fmt: skip

    def _committed(self, begin: int, end: int) -> None:
        self._committing -= end - begin
        self.settled += end - begin
        self._times.add(now_ns() - self._sent_ns[begin:end])

    def _end(self, at_ns: int) -> None:
        self._ended_ns = at_ns
        self._running = False
        report = self.report()
        self.total += self.settled
        self.done(report)
        self.iteration += 1
        if self.iteration == self._options.iterations:
            self.finished = True
        else:  # before the report, so that nobody else takes the next word to start
            self._waiting = True
            self._start.allow(1)
        self._tell.post(data_message(report.to_json()))

    def is_idle(self) -> bool:
        """Return whether the peer has received the last message."""
        return self.finished and self._tell.is_settled(1 << 30)
