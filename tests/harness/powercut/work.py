"""A workload: one thread that makes all kinds of requests of a broker to its store, until the power is cut.

`Work` records its operations and their confirmations in the `History`. The random choices are reproducible by seed;
with the store's threads, the flush that a cut hits is not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

from cairnmq.base.errors import CairnError, JournalError
from cairnmq.journal.format.record import MAX_PAYLOAD_BYTES
from cairnmq.store.contract.wiring_rows import QueueRow
from cairnmq.store.journaled.store import JournalStore
from tests.harness.powercut.history import History, Wrong

DEADLINE_S = 180.0
_MANY = 80
"""The number of messages on all queues above which dequeues are more frequent than enqueues."""
_SIZES = (0, 1, 60, 200, 500, 1500, 4096, 10_000, 40_000)
_TIME_US = 1_700_000_000_000_000


class Work:
    """A workload on a newly opened store, for one thread."""

    def __init__(
        self, store: JournalStore, history: History, random: Random, power: Callable[[], bool], *, threads: bool
    ) -> None:
        """Run a workload on *store*. *power*: returns whether the power is on.

        Confirmations after a cut are ignored: a file system without a disk may report success for an earlier sync.
        """
        self.store = store
        self.failure: JournalError | None = None
        self._history = history
        self._random = random
        self._power = power
        self._threads = threads
        self._refusal: Exception | None = None
        """The error with which SQL refused to create a queue."""
        self._last_lsn, self._durable_lsn = 0, store.durable_lsn
        self._staged: list[tuple[int, list[bytes]]] = []
        self._changed = threading.Condition()
        self._notices = 0
        if threads:
            store.start(self._told, self._failed)
        else:
            store.run_inline(self._told)

    def step(self) -> None:
        """Run one random operation. Raises `CairnError` once the store fails."""
        if not self._history.queues:
            self._create_queue()
            self._await(lambda: bool(self._history.queues) or self._refusal is not None)
        if self._refusal is not None:
            raise self._refusal
        random, many = self._random, sum(map(len, self._history.now.values())) > _MANY
        do = random.choices(
            (self.put, self._put_all, self._stage, self._append, self._take, self._create_queue, self.settle,
             self._mark, self._read, self._flood),
            (2, 1, 1, 4, 12, 0.3, 2, 0.5, 0.5, 0.1) if many else (6, 2, 2, 5, 5, 0.5, 3, 0.5, 0.5, 0.5),
        )[0]  # fmt: skip
        do()
        if random.random() < 0.25:
            self._kick()

    def settle(self) -> None:
        """Wait until all operations are confirmed, or the store has failed."""
        while self._durable_lsn <= self._last_lsn and self.failure is None:
            before = self._notices  # two notices may have the same LSN; a kick takes effect only after the flusher's
            self._kick()
            self._await_news(before)
        self._pass_on()

    def check_it_says_no(self) -> None:
        """Check that a put on a disk without power is not confirmed."""
        if not self._history.queues:
            return
        confirmed_lsn = 0
        try:
            self.put()
            confirmed_lsn = self._last_lsn
            self.settle()
        except CairnError:
            pass
        if 0 < confirmed_lsn < self._durable_lsn:
            raise Wrong("alarm", f"LSN {confirmed_lsn} was confirmed when the power had gone")

    # ---- operations -----------------------------------------------------------------------------------------------

    def put(self) -> None:
        content = self._content()
        queue_id = self._queue()
        message_id, lsn = self.store.put(queue_id, content, _TIME_US)
        self._is_put(message_id, content, [queue_id], lsn)

    def _put_all(self) -> None:
        queue_id = self._queue()
        contents = [self._random.randbytes(self._random.randrange(300)) for _ in range(self._random.randrange(1, 30))]
        message_ids, lsn = self.store.put_all(queue_id, contents, _TIME_US)
        for message_id, content in zip(message_ids, contents, strict=True):
            self._is_put(message_id, content, [queue_id], lsn)

    def _flood(self) -> None:
        """Put messages that together are larger than a container."""
        for _ in range(self._random.choice((12, 30))):
            content = self._random.randbytes(self._random.randrange(40_000, MAX_PAYLOAD_BYTES))
            queue_id = self._queue()
            message_id, lsn = self.store.put(queue_id, content, _TIME_US)
            self._is_put(message_id, content, [queue_id], lsn)
            if self._random.random() < 0.5:
                self._kick()

    def _stage(self) -> None:
        pieces = [self._content() for _ in range(self._random.randrange(2, 5))]
        message_id = self.store.stage(pieces[0], _TIME_US)
        self._history.contents[message_id] = b"".join(pieces)
        self._staged.append((message_id, pieces[1:]))

    def _append(self) -> None:
        if not self._staged:
            return
        at = self._random.randrange(len(self._staged))
        message_id, pieces = self._staged[at]
        if pieces:
            piece = pieces.pop(0)
            self.store.append_content(message_id, piece, _TIME_US, last=not pieces)
            return
        del self._staged[at]
        if self._random.random() < 0.1:
            self.store.destroy(message_id, _TIME_US)
            return
        for queue_id in {self._queue(), self._queue()}:
            lsn = self.store.enqueue(message_id, queue_id, _TIME_US)
            self._is_put(message_id, self._history.contents[message_id], [queue_id], lsn)

    def _take(self) -> None:
        """Dequeue one message, or several in a row as a consumer does."""
        if not self._history.now:
            return
        queue_id = self._random.choice(sorted(self._history.now))
        ids = self._history.now[queue_id]
        begin = 0 if self._random.random() < 0.7 else self._random.randrange(len(ids))
        for message_id in ids[begin : begin + self._random.choice((1, 1, 3, 20))]:
            lsn = self.store.dequeue(message_id, queue_id, _TIME_US)
            self._history.did(lsn, "dequeue", message_id, queue_id)
            self._last_lsn = lsn

    def _create_queue(self) -> None:
        name = f"q{len(self._history.asked)}"
        self._history.asked.add(name)

        def done(made: QueueRow | Exception) -> None:
            with self._changed:
                if isinstance(made, QueueRow):
                    self._history.queues[made.id] = made.name
                else:
                    self._refusal = made
                self._changed.notify_all()

        self.store.create_queue(name, done)

    def _mark(self) -> None:
        """Write the durability mark, as an idle log does."""
        self.store.journal.writer.write_mark()

    def _read(self) -> None:
        """Settle, then read a random message and check its content."""
        ids = [message_id for message_ids in self._history.now.values() for message_id in message_ids]
        self.settle()
        if ids and self.failure is None:
            message_id = self._random.choice(ids)
            self._history.check_content(message_id, content_of(self.store, message_id))

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _content(self) -> bytes:
        size = self._random.choice(_SIZES)
        if self._random.random() < 0.01:
            size = 2 * MAX_PAYLOAD_BYTES
        return self._random.randbytes(self._random.randrange(size // 2, size + 1))

    def _queue(self) -> int:
        return self._random.choice(sorted(self._history.queues))

    def _is_put(self, message_id: int, content: bytes, queue_ids: list[int], lsn: int) -> None:
        self._history.contents[message_id] = content
        for queue_id in queue_ids:
            self._history.did(lsn, "enqueue", message_id, queue_id)
        self._last_lsn = lsn

    def _await_news(self, notices: int) -> None:
        self._await(lambda: self._notices != notices or self.failure is not None)

    def _await(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            if not self._changed.wait_for(condition, DEADLINE_S):
                raise AssertionError(f"the store's threads did nothing for {DEADLINE_S} s")

    def _kick(self) -> None:
        self._pass_on()
        self.store.kick()

    def _pass_on(self) -> None:
        if self.store.durable_lsn < self._durable_lsn:
            self.store.became_durable(self._durable_lsn)

    def _told(self, durable_lsn: int) -> None:
        with self._changed:
            self._notices += 1
            if self._power():
                self._history.confirm(durable_lsn)
            self._durable_lsn = max(self._durable_lsn, durable_lsn)
            self._changed.notify_all()

    def _failed(self, failure: JournalError) -> None:
        with self._changed:
            self.failure = failure
            self._changed.notify_all()


def content_of(store: JournalStore, message_id: int) -> bytes:
    return b"".join(store.load_piece(message_id, number) for number in range(store.piece_count(message_id)))
