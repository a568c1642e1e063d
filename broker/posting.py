"""What a client's transaction puts on queues: nothing of it is there before the commit is durable. Core only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..amqp import header
from ..amqp.codec import Malformed
from ..amqp.sections import envelope
from ..base.errors import DiskError, StoreError
from ..channel.words import Content, Delivery, Fragment, TerminalEnd
from ..store.transaction import MAX_HELD_BYTES
from ..store.transaction import Transaction as StoreTransaction
from .entry import Entry
from .gate import Gate, Staged
from .line import Shown
from .memory import ENTRY_BYTES, NO_MEMORY
from .queue import Queue
from .times import TimedEntry, Times, may_have_times, stamped, times_of

if TYPE_CHECKING:
    from .transactions import Controller, Transactions

ROLLBACK = "amqp:transaction:rollback"
UNKNOWN_ID = "amqp:transaction:unknown-id"
TIMEOUT = "amqp:transaction:timeout"

NO_ROOM = "amqp:resource-limit-exceeded"

CAN_FAIL = (StoreError, DiskError)
"""What the store raises when it has done nothing; other errors end the broker."""


class Post(NamedTuple):
    """A message on a queue with the commit."""

    queue: Queue
    content: bytes | Content | None = None
    """None of those that the store has, in its order."""
    held_bytes: int = 0
    """What it counts for on the queue, if it is not stored."""
    times: Times | None = None
    beginning: bytes = b""
    """How it begins, for a queue that wants to know."""
    tagged: Callable[[int], None] | None = None
    """Of a delivery's tag, which nobody is to see: gets the id of the message that keeps it."""


class Posting:
    """Of a `Transaction`: the messages in it, stored by a transaction of the store's, or held here."""

    def __init__(self, owner: Transactions, controller: Controller, id: bytes) -> None:
        self.id = id
        self.controller = controller
        self.inner: StoreTransaction | None = None
        """The store's part, once there is one."""
        self.failure: tuple[str, str] | None = None
        """Why nothing can be done in it any more, as an AMQP error."""
        self._refusal = ""
        """The AMQP error of the message that it fails for, until that is told."""
        self.size_bytes = 0
        """What it counts for in its connection's limit."""
        self._owner = owner
        self._broker = owner.broker
        self._posts: list[Post] = []
        self._transient_bytes = 0
        self._counted_bytes = 0
        self._staged: dict[Gate, Staged] = {}

    def roll_back(self, condition: str, why: str) -> int:
        """Nothing of it is to be, for that reason; the LSN to wait for. Again has no effect."""
        raise NotImplementedError

    def staged_at(self, gate: Gate) -> Staged | None:
        """What it will put on the queue with that gate."""
        return self._staged.get(gate)

    def stage(self, gate: Gate, content: bytes, size_bytes: int) -> None:
        """The gate has let in a message for it, of so many bytes; *content* may be the beginning of it."""
        if self.failure is None:
            gate.stage(self._staged.setdefault(gate, Staged()), content, size_bytes)

    def post(self, queues: Sequence[Queue], fragments: Sequence[Fragment]) -> None:
        """Whole messages, each for all of *queues*."""
        durable = [queue for queue in queues if queue.queue_id]
        lives = any(queue.policy.message_ttl_ms for queue in queues)
        now_us = self._broker.clock.wall_us()
        run: list[bytes] = []
        for _, content, _ in fragments:
            try:
                head = header.parse(content)
                timed = lives or may_have_times(content, head)
                if timed:
                    content = stamped(content, head, now_us, always=lives)
            except Malformed as error:
                self.fail(f"a message can't be read: {error}", "amqp:decode-error")
                break
            if head.durable and not timed and len(durable) == len(queues):
                run.append(content)
                continue
            self._store(durable, run)
            run = []
            self._post_one(queues, durable if head.durable else [], content)
        self._store(durable, run)
        self._count()

    def _post_one(self, queues: Sequence[Queue], lasting: Sequence[Queue], content: bytes) -> None:
        """A message that is stored for some of its queues, or has times."""
        self._store(lasting, [content], timed=True)
        for queue in queues:
            if queue not in lasting:
                self.hold(queue, content, len(content), times_of(content, queue.policy.message_ttl_ms))

    def hold(
        self, queue: Queue, content: bytes | Content, size_bytes: int, times: Times | None, beginning: bytes = b""
    ) -> None:
        """A message that is not stored."""
        held_bytes = size_bytes + ENTRY_BYTES
        if self._has_room(held_bytes):
            if held_bytes > queue.spare_bytes():
                self.fail(NO_MEMORY, NO_ROOM)
                return
            self._posts.append(Post(queue, content, held_bytes, times, beginning))
            self._transient_bytes += held_bytes
            self._count()

    def enqueue(self, queue: Queue, message_id: int, times: Times | None, beginning: bytes) -> None:
        """A message that the store has."""
        if self._has_room(self._broker.store.size_of(message_id)):
            self._do(lambda inner, now_us: inner.enqueue(message_id, queue.queue_id, now_us))
            self._posts.append(Post(queue, None, 0, times, beginning))

    def remember(self, queue: Queue, tag: bytes, then: Callable[[int], None]) -> None:
        """Keep a delivery's tag on *queue*, with the commit; *then* gets its message's id."""
        if self._has_room(len(tag) + ENTRY_BYTES):
            self._do(lambda inner, now_us: inner.put(queue.queue_id, tag, now_us))
            self._posts.append(Post(queue, tagged=then))

    def answer(
        self, terminal: TerminalEnd, wanted: Sequence[Delivery], unwanted: Sequence[Delivery], credit: int
    ) -> None:
        """Tell what becomes of posted messages with the commit; *unwanted*: of those nobody wants to hear."""
        if unwanted:
            terminal.release(unwanted, 0)
        if self.failure is None:
            terminal.accept_in(self.id, wanted, credit)
            return
        condition, why = self.failure  # and outside a transaction, what could not be taken would be refused as
        terminal.reject_in(self.id, wanted, credit, self._refusal or condition, why)
        self._refusal = ""
        if unwanted and self.failure[0] == UNKNOWN_ID:  # there is no other way to tell
            terminal.failure(*self.failure)

    def refuse(
        self, terminal: TerminalEnd, deliveries: Sequence[Delivery], credit: int, condition: str, why: str
    ) -> None:
        """Messages posted in it can't be taken, so it can't be committed."""
        self.fail(why)
        terminal.reject_in(self.id, deliveries, credit, condition, why)

    def fail(self, why: str, refusal: str = "") -> None:
        """It can't be committed, for that reason. *refusal*: the AMQP error of the message that is being posted."""
        if self.failure is None:
            self._refusal = refusal
        self.roll_back(ROLLBACK, why)

    def _store(self, queues: Sequence[Queue], contents: list[bytes], *, timed: bool = False) -> None:
        """Durable messages, each for all of *queues*, which are durable."""
        if not (queues and contents) or not self._has_room(sum(map(len, contents)) + ENTRY_BYTES * len(contents)):
            return
        store, many = self._broker.store, len(queues) > 1  # then each is stored, and put on each of them by the commit
        full = store.full(sum(map(len, contents)), len(contents) * (1 + len(queues))) if many else store.full()
        if full:
            self.fail(f"the store is full: {full}", NO_ROOM)
        elif len(queues) == 1:
            queue, queue_id = queues[0], queues[0].queue_id
            self._do(lambda inner, now_us: inner.put_all(queue_id, contents, now_us))
            if timed or queue.policy.looks_inside:
                self._posts += [stored_on(queue, content, timed=timed) for content in contents]
            else:
                self._posts += [Post(queue)] * len(contents)
        else:
            for content in contents:
                self._store_on(queues, content, timed=timed)

    def _store_on(self, queues: Sequence[Queue], content: bytes, *, timed: bool) -> None:
        ids = [queue.queue_id for queue in queues]
        self._do(lambda inner, now_us: inner.put_on(ids, content, now_us))
        for queue in queues:
            self._posts.append(stored_on(queue, content, timed=timed))

    def _has_room(self, size_bytes: int) -> bool:
        if self.failure is not None:
            return False
        most = self._owner.limits.size_bytes
        if self.controller.size_bytes + size_bytes > most:
            self.fail(f"the open transactions of a connection may have {most} bytes together")
            return False
        self.size_bytes += size_bytes
        self.controller.size_bytes += size_bytes
        return True

    def _count(self) -> None:
        """Count what it holds in memory."""
        held_bytes = self._transient_bytes
        if self.inner is not None and not self.inner.xid and self.failure is None:
            held_bytes += min(self.inner.held_bytes, MAX_HELD_BYTES)
        self._broker.memory.used_bytes += held_bytes - self._counted_bytes
        self._counted_bytes = held_bytes

    def _do(self, operation: Callable[[StoreTransaction, int], None]) -> None:
        now_us = self._broker.clock.wall_us()
        if self.inner is None:
            self.inner = self._broker.store.transactions.begin(now_us)
        try:
            operation(self.inner, now_us)
        except CAN_FAIL as error:
            self.fail(str(error))

    def _shown(self) -> Shown:
        """What is on which queue with the commit."""
        stored = self.inner.stored() if self.inner is not None else iter(())
        shown: dict[Queue, list[Entry]] = {}
        for queue, content, held_bytes, times, beginning, tagged in self._posts:
            message_id = 0
            if content is None:
                message_id, content = next(stored)
                if tagged is not None:
                    tagged(message_id)
                    continue
                held_bytes = ENTRY_BYTES + (len(content) if content is not None else 0)
            position = next(queue.positions)
            if times is None:
                entry = Entry(message_id, position, content, held_bytes)
            else:
                queue.begin_timing()
                entry = TimedEntry(message_id, position, content, held_bytes, times)
            if beginning:
                entry.beginning = beginning
            shown.setdefault(queue, []).append(entry)
        return list(shown.items())

    def _unstage(self, gates: Sequence[Gate]) -> None:
        """What it put on their queues is there, or will never be."""
        for gate in gates:
            gate.unstage(self._staged.pop(gate))

    def _drop(self) -> None:
        self._posts = []
        self._unstage([*self._staged])
        self.controller.size_bytes -= self.size_bytes
        self.size_bytes = self._transient_bytes = 0
        self._count()


def stored_on(queue: Queue, content: bytes, *, timed: bool) -> Post:
    """A message that the store puts on *queue*."""
    times = times_of(content, queue.policy.message_ttl_ms) if timed else None
    return Post(queue, None, 0, times, envelope(content) if queue.policy.looks_inside else b"")
