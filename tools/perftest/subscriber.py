"""A subscriber: reports that it is ready, takes its quota, checks every message, settles, and reports."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ...amqp.client.links import SETTLED, UNSETTLED, Receiver, data_of
from ...amqp.client.wire import Wire
from ...amqp.frames import performatives as p
from ...amqp.frames.frame_runs import Run, body_of
from ...base.clock import now_ns
from .client import NEXT, LoadClient
from .messages import MessageCheck, Numbers
from .plan import SHARED, Options
from .transactions import Coordinator


class Intake(Receiver):
    """The link on which messages arrive."""

    in_runs = True

    def __init__(self, wire: Wire, name: str, address: str, subscriber: Subscriber, *, settled: bool) -> None:
        super().__init__(wire, name, address, lambda message: None, settle=SETTLED if settled else UNSETTLED)
        self._subscriber = subscriber

    def came_run(self, run: Run) -> None:
        self.took(run.messages)
        self._subscriber.came(run.first_id, run.messages, run.bodies, settled=run.settled)

    def came(self, delivery_id: int, message: bytes, settled: bool) -> None:
        self.took(1)
        begin, end = body_of(message)
        bodies = np.frombuffer(message, np.uint8)[begin:end].reshape(1, end - begin)
        self._subscriber.came(delivery_id, 1, bodies, settled=settled)


class Subscriber(LoadClient):
    """A subscriber of a test."""

    role = "subscriber"

    def __init__(self, wire: Wire, options: Options, number: int, address: str, share: Callable[[], float]) -> None:
        name = f"{options.base_name}-sub-{number}-{id(self):x}"
        self.intake = Intake(wire, name, address, self, settled=not options.sub_ack and not options.sub_tx)
        super().__init__(wire, options, number, share, self.intake, "sub_iteration", options.sub_tx)
        self._exact = options.mode != SHARED or options.subs == 1
        """Everything its publishers send comes here."""
        self._reading = MessageCheck(options.body)
        self._owed: list[tuple[int, int]] = []
        """First and last ids of what is not settled yet."""
        self._owed_count = 0

    @property
    def started(self) -> bool:
        return self._running and self.messages > 0

    def came(self, first_id: int, count: int, bodies: Any, *, settled: bool) -> None:
        """Process arrived messages."""
        now = now_ns()
        numbers, wrong = self._reading.numbers(bodies)
        if not self.messages:
            self._begun_ns = max(self._since_ns, int(numbers["at_ns"][0]) if len(numbers) else now)
        self.messages += count
        self._ended_ns = now
        self._wrong["altered"] += wrong
        if len(numbers):
            self._times.add(now - numbers["at_ns"].astype(np.int64))
            self._look(numbers)
        if not settled:
            last = first_id + count - 1
            if self._owed and self._owed[-1][1] == first_id - 1:
                self._owed[-1] = self._owed[-1][0], last
            else:
                self._owed.append((first_id, last))
            self._owed_count += count
        if self._options.interval_sub_ms:
            time.sleep(count * self._options.interval_sub_ms / 1000)

    def _step(self) -> int:
        self._acknowledge()
        is_committed = self._coordinator is None or not self._coordinator.committing
        if self.messages >= self._options.quota and not self._owed_count and is_committed:
            if self._exact:
                self._wrong["lost"] = sum(int(np.count_nonzero(~seen)) for seen in self._seen.values())
            self._end()
        else:
            self._replenish()
        return 0

    def _look(self, numbers: Numbers) -> None:
        """Record the numbers of arrived messages, and whether they are in order."""
        foreign = numbers["iteration"] != self.iteration
        foreign |= numbers["sequence"] >= self._options.count
        if foreign.any():
            self._wrong["altered"] += int(np.count_nonzero(foreign))
            numbers = numbers[~foreign]
        publishers = numbers["publisher"]
        for publisher in (
            [publishers[0]] if len(numbers) and (publishers == publishers[0]).all() else np.unique(publishers)
        ):
            self._follow(int(publisher), numbers["sequence"][publishers == publisher].astype(np.int64))

    def _follow(self, publisher: int, sequences: Any) -> None:
        seen = self._seen.get(publisher)
        if seen is None:
            seen = self._seen[publisher] = np.zeros(self._options.count, bool)
        before = np.empty_like(sequences)
        before[0], before[1:] = self._lasts.get(publisher, -1), sequences[:-1]
        back = int(np.count_nonzero(sequences <= before))
        again = int(np.count_nonzero(seen[sequences]))
        if back:
            again = len(sequences) - int(np.count_nonzero(~seen[np.unique(sequences)]))
        seen[sequences] = True
        self._wrong["duplicated"] += again
        self._wrong["reordered"] += max(0, back - again)
        self._lasts[publisher] = int(sequences[-1])

    def _reset(self) -> None:
        super()._reset()
        self._granted = 0
        self._seen: dict[int, Any] = {}
        self._lasts: dict[int, int] = {}
        self._since_ns = self._begun_ns

    def _begin(self) -> None:
        self._reset()
        self._running = True
        self._grant(min(self._options.credit, self._options.quota))

    def _grant(self, more: int) -> None:
        if more > 0:
            self._granted += more
            self.intake.allow(more)

    def _replenish(self) -> None:
        """Credit comes back as messages are settled, so that there are never more in hand, nor beyond the quota."""
        options = self._options
        held = self._granted - self.messages + self._owed_count
        missing = min(options.credit - held, options.quota - self._granted)
        if missing * 4 >= min(options.credit, options.quota - self._granted) or (
            missing > 0 and self.intake.credit == 0
        ):
            self._grant(missing)

    def _acknowledge(self) -> None:
        options, complete = self._options, self.messages >= self._options.quota
        if self._coordinator is not None:
            self._retire(self._coordinator, complete=complete)
        elif self._owed_count and (self._owed_count >= options.sub_ack or complete):
            for first, last in self._owed:
                self._wire.send_frames(p.disposition(first, last, True))
            self._owed.clear()
            self._owed_count = 0

    def _retire(self, coordinator: Coordinator, *, complete: bool) -> None:
        options = self._options
        may = options.async_commit or not coordinator.committing
        while self._owed_count and (self._owed_count >= options.sub_tx or complete) and may:
            if coordinator.idle:
                coordinator.declare(lambda txn_id: None)
            if not coordinator.txn_id:
                return
            ranges = self._take(options.sub_tx)
            state = p.described(p.TRANSACTIONAL, coordinator.txn_id, p.ACCEPTED_STATE)
            for first, last in ranges:
                self._wire.send_frames(p.disposition(first, last, False, state))
            coordinator.commit(lambda those=ranges: self._settle(those))  # type: ignore[misc]
            may = options.async_commit

    def _take(self, most: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        while self._owed and most:
            first, last = self._owed.pop(0)
            some = min(most, last - first + 1)
            found.append((first, first + some - 1))
            if first + some <= last:
                self._owed.insert(0, (first + some, last))
            most -= some
            self._owed_count -= some
        return found

    def _settle(self, ranges: list[tuple[int, int]]) -> None:
        for first, last in ranges:
            self._wire.send_frames(p.disposition(first, last, True))

    def _came_word(self, message: bytes) -> None:
        if data_of(message) == NEXT:
            self._begin()
