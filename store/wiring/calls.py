"""The wiring half of a store: calls that are answered later, since SQL takes its time.

All of them are done one after the other, in the order in which they were asked for, on the thread *sql*. *done* gets
the result or the error there, once; a server that went away costs each call its error, and the next one is tried
afresh. Queues that are to be made and wait one behind the other are made in one transaction: a commit takes
milliseconds, and where many clients come at once each would wait for all before it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ...base.errors import CairnError, SqlUnreachable
from ..contract.interface import Done
from ..contract.wiring_rows import Arguments, BindingRow, ConfigRow, ExchangeRow, QueueRow
from .wiring import Wiring

log = logging.getLogger(__name__)
_Found = TypeVar("_Found")
_AT_ONCE = 256
"""Queues that are made in one transaction, at most."""
_Creation = tuple[str, Arguments | None, Done[QueueRow]]


class WiringCalls:
    """The wiring calls of `interface.MessageStore`. Any thread; before `start_sql` they run in the caller's thread."""

    def __init__(self, wiring: Wiring) -> None:
        """Reads all of it."""
        self._wiring = wiring
        self._known = wiring.rows()
        for defect in self._known.defects:
            log.warning("%s", defect, extra={"event": "wiring.invalid-row"})
        if self._known.last_id < self._known.used_id:
            wiring.skip_ids(self._known.used_id)
        self._names = {row.id: row.name for row in self._known.queues}
        self._sql: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._creations: list[_Creation] | None = None
        """Queues to be made, which the last task that waits is about; None if that is another one."""

    def start_sql(self) -> None:
        self._sql = ThreadPoolExecutor(1, "cairnmq-sql")

    def close_sql(self) -> None:
        """Wait for pending calls, and close SQL."""
        if self._sql is not None:
            self._sql.shutdown()

    @property
    def wiring_place(self) -> str:
        """Return the location of the wiring for display."""
        return self._wiring.place

    def queues(self) -> Sequence[QueueRow]:
        return self._known.queues

    def exchanges(self) -> Sequence[ExchangeRow]:
        return self._known.exchanges

    def bindings(self) -> Sequence[BindingRow]:
        return self._known.bindings

    def configs(self) -> Sequence[ConfigRow]:
        return self._known.configs

    def going_queues(self) -> Sequence[QueueRow]:
        return self._known.going

    def keep_homeless(self, on_queue: Mapping[int, int]) -> dict[int, int]:
        """Return the queues of *on_queue* that SQL does not know, by ID. No new queue gets such an ID.

        *on_queue*: the number of messages on each queue, by its ID.
        """
        known = {row.id for row in (*self._known.queues, *self._known.going)}
        homeless = {queue_id: count for queue_id, count in on_queue.items() if queue_id not in known}
        if homeless and max(homeless) > self._known.last_id:
            self._wiring.skip_ids(max(homeless))  # else a new queue would get these messages
        return homeless

    def create_queue(self, name: str, done: Done[QueueRow], arguments: Arguments | None = None) -> None:
        creation = (name, arguments, done)
        if self._sql is None:
            self._create((creation,))
            return
        with self._lock:
            if self._creations is not None and len(self._creations) < _AT_ONCE:
                self._creations.append(creation)
                return
            creations = [creation]
            self._sql.submit(self._create_all, creations)  # raises if SQL is closed: then no call may join these
            self._creations = creations

    def _create_all(self, creations: list[_Creation]) -> None:
        with self._lock:
            if self._creations is creations:
                self._creations = None
        self._create(creations)

    def _create(self, creations: Sequence[_Creation]) -> None:
        try:
            rows = self._wiring.create_queues([(name, arguments) for name, arguments, _ in creations])
        except Exception as error:
            if len(creations) > 1 and not isinstance(error, SqlUnreachable):
                for creation in creations:  # one of them is at fault, perhaps
                    self._create((creation,))
                return
            _warn(error)
            for _, _, done in creations:
                done(error)
            return
        for row, (_, _, done) in zip(rows, creations, strict=True):
            self._names[row.id] = row.name
            done(row)

    def change_queue(self, queue_id: int, arguments: Arguments, done: Done[None]) -> None:
        self._ask(lambda: self._wiring.change_queue(queue_id, arguments), done)

    def begin_destroy_queue(self, queue_id: int, done: Done[None]) -> None:
        def work() -> None:
            self._wiring.begin_destroy_queue(queue_id)
            self._names.pop(queue_id, None)

        self._ask(work, done)

    def finish_destroy_queue(self, queue_id: int, done: Done[None]) -> None:
        self._ask(lambda: self._wiring.finish_destroy_queue(queue_id), done)

    def create_exchange(
        self, name: str, type: str, done: Done[ExchangeRow], arguments: Arguments | None = None
    ) -> None:
        self._ask(lambda: self._wiring.create_exchange(name, type, arguments), done)

    def destroy_exchange(self, exchange_id: int, done: Done[None]) -> None:
        self._ask(lambda: self._wiring.destroy_exchange(exchange_id), done)

    def bind(self, binding: BindingRow, done: Done[None]) -> None:
        self._ask(lambda: self._wiring.bind(binding), done)

    def unbind(self, binding: BindingRow, done: Done[None]) -> None:
        self._ask(lambda: self._wiring.unbind(binding), done)

    def create_config(self, name: str, settings: Arguments, done: Done[None]) -> None:
        self._ask(lambda: self._wiring.create_config(name, settings), done)

    def destroy_config(self, name: str, done: Done[None]) -> None:
        self._ask(lambda: self._wiring.destroy_config(name), done)

    def _ask(self, work: Callable[[], _Found], done: Done[_Found]) -> None:
        def answer() -> None:
            try:
                found = work()
            except Exception as error:
                _warn(error)
                done(error)
            else:
                done(found)

        if self._sql is None:
            answer()
        else:
            with self._lock:
                self._creations = None
                self._sql.submit(answer)


def _warn(error: Exception) -> None:
    event = {"event": "wiring.failed"}
    log.warning("wiring: %s", error, exc_info=not isinstance(error, CairnError), extra=event)
