"""A started store and its owner: the only thread that calls the store and receives durability notices."""

from __future__ import annotations

import time
from queue import SimpleQueue

from cairnmq.base.clock import SystemClock
from cairnmq.base.errors import JournalError
from cairnmq.recovery.recover import open_store
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.contract.wiring_rows import QueueRow

from .table import BenchError

_HEARD_S = 60.0


class Running:
    """A started store in *path* with one queue."""

    def __init__(self, path: str, options: StoreOptions) -> None:
        self.store, _ = open_store(path, SystemClock(), options)
        rows: list[QueueRow | Exception] = []
        self.store.create_queue("bench", rows.append)
        [row] = rows
        assert isinstance(row, QueueRow)
        self.queue_id = row.id
        self._notices: SimpleQueue[int | JournalError] = SimpleQueue()
        self.store.start(self._notices.put, self._notices.put)

    def hear(self) -> int:
        """Wait for the next durability notice, process the notice as an owner, and return the durable LSN."""
        notice = self._notices.get(timeout=_HEARD_S)
        if isinstance(notice, JournalError):
            raise BenchError(str(notice))
        self.store.became_durable(notice)
        self.store.kick()
        return notice

    def settle(self, lsn: int) -> None:
        """Wait until the record at *lsn* is durable."""
        while self.store.durable_lsn <= lsn:
            self.hear()

    def close(self) -> None:
        self.store.close()


def now_us() -> int:
    return time.time_ns() // 1000
