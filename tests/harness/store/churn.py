"""A store with a constant flow of messages, so that containers are reclaimed."""

from __future__ import annotations

from pathlib import Path

from cairnmq.analytics.scan.files import open_log
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.recovery.recover import open_store
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.journaled.store import JournalStore
from tests.harness.store.stores import NOW_US, queue

SMALL = 16 << 10


class Churn:
    """A store in small containers, through which messages pass."""

    def __init__(self, path: Path, archive: Path | None = None) -> None:
        self.path = path
        self.options = StoreOptions(
            container_bytes=SMALL, min_container_bytes=SMALL, reserve_bytes=2 * SMALL,
            archive_dir=str(archive) if archive else None,
        )  # fmt: skip
        self.store = self.open()
        self.queue = queue(self.store)

    def open(self) -> JournalStore:
        store = open_store(str(self.path), ManualClock(), self.options)[0]
        store.run_inline(store.became_durable)
        return store

    def pass_through(self, containers: int) -> int:
        """Enqueue and dequeue messages until *containers* more containers are begun; return the durable LSN."""
        journal = self.store.journal
        last = journal.next_lsn // SMALL + containers
        while journal.next_lsn // SMALL < last:
            message_id = self.store.put(self.queue, bytes(3000), NOW_US)[0]
            self.store.dequeue(message_id, self.queue, NOW_US)
            self.store.kick()
        return journal.writer.durable_lsn

    def missing_from(self, lsn: int) -> int:
        """Return how many bytes of the log from *lsn* on are missing, even from the history."""
        self.store.journal.writer.write_mark()
        log = open_log(str(self.path), history=True)
        return sum(gap.end_lsn - gap.first_lsn for gap in log.missing(lsn, log.durable_lsn))
