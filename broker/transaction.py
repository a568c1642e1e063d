"""A client's transaction: what it puts and takes is done together, or not at all. Core only.

What is durable of it is a transaction of the store; what is not (transient messages, queues that are not durable) is
held here, and shown and taken off in the same go. Nothing that was put is on a queue before the commit is durable;
what was taken is locked until then, and still its receiver's.

A transaction that fails is rolled back at once, and says why from then on: to whatever else is tried in it, and to its
discharge. A message that its receiver had settled then goes back to the queue as a delivery that failed; one that it
had not settled is the receiver's as before, which may say something else of it (part 4, 4.4.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ..amqp import header
from ..amqp.codec import Malformed
from ..amqp.proton import ACCEPTED, REJECTED
from ..base.errors import DiskError, StoreError
from ..channel.words import Content, Delivery, Fragment, Outcome, TerminalEnd
from ..store.transaction import MAX_HELD_BYTES, Dequeue, Put, TxState
from ..store.transaction import Transaction as StoreTransaction
from .entry import Entry
from .line import Shown
from .memory import ENTRY_BYTES
from .policy import TOO_OFTEN
from .queue import Queue
from .reading import BEGINNING_BYTES
from .times import TimedEntry, Times, may_have_times, stamped, times_of

if TYPE_CHECKING:
    from .consumer import Consumer
    from .transactions import Controller, Transactions

ROLLBACK = "amqp:transaction:rollback"
UNKNOWN_ID = "amqp:transaction:unknown-id"
TIMEOUT = "amqp:transaction:timeout"

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


class Taken:
    """A message whose outcome depends on a transaction."""

    __slots__ = ("consumer", "delivery", "entry", "failed", "is_final", "queue", "state", "undeliverable")

    def __init__(self, consumer: Consumer, queue: Queue, outcome: Outcome) -> None:
        self.consumer = consumer
        self.queue = queue
        self.delivery, self.entry, self.state, self.failed, self.undeliverable, *_ = outcome
        self.is_final = self.delivery is None
        """Its receiver can say nothing else of it: it has settled it, or its link is gone."""


class Transaction:
    """One transaction. Made by `Transactions`."""

    def __init__(self, owner: Transactions, controller: Controller, id: bytes) -> None:
        self.id = id
        self.controller = controller
        self.inner: StoreTransaction | None = None
        """The store's part, once there is one."""
        self.failure: tuple[str, str] | None = None
        """Why nothing can be done in it any more, as an AMQP error."""
        self.is_discharged = False
        self.is_committed = False
        self.partial = 0
        """Messages of it that have not arrived as a whole."""
        self.asking = 0
        """Messages of it whose queues are being made."""
        self.when_asked: Callable[[], None] | None = None
        """What waits for these."""
        self.size_bytes = 0
        """What it counts for in its connection's limit."""
        self._owner = owner
        self._broker = owner.broker
        self._posts: list[Post] = []
        self._taken: dict[Entry, Taken] = {}
        self._locked: dict[Entry, Queue] = {}
        """Messages that it takes off queues, of one that was prepared before the broker started."""
        self._transient_bytes = 0
        self._counted_bytes = 0

    @property
    def is_open(self) -> bool:
        return self.failure is None and not self.is_prepared

    @property
    def is_prepared(self) -> bool:
        return self.inner is not None and self.inner.state is TxState.PREPARED

    @property
    def operations(self) -> int:
        return len(self._posts) + len(self._taken) + len(self._locked)

    # ---- posting --------------------------------------------------------------------------------------------------

    def post(self, queues: Sequence[Queue], fragments: Sequence[Fragment]) -> None:
        """Whole messages, each for all of *queues*."""
        durable = [queue for queue in queues if queue.queue_id]
        lives = any(queue.policy.message_ttl_ms for queue in queues)
        now_us = self._broker.clock.wall_us()
        run: list[bytes] = []
        for _, content, _ in fragments:
            try:
                head = header.parse(content)
                timed = lives or may_have_times(head)
                if timed:
                    content = stamped(content, head, now_us, always=lives)
            except Malformed as error:
                self.fail(f"a message can't be read: {error}")
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

    def hold(self, queue: Queue, content: bytes | Content, size_bytes: int, times: Times | None) -> None:
        """A message that is not stored."""
        held_bytes = size_bytes + ENTRY_BYTES
        if self._has_room(held_bytes):
            if held_bytes > queue.spare_bytes():
                self.fail("no memory is left for messages that are not durable; see --memory-limit")
                return
            self._posts.append(Post(queue, content, held_bytes, times))
            self._transient_bytes += held_bytes
            self._count()

    def enqueue(self, queue: Queue, message_id: int, times: Times | None, beginning: bytes) -> None:
        """A message that the store has."""
        if self._has_room(self._broker.store.size_of(message_id)):
            self._do(lambda inner, now_us: inner.enqueue(message_id, queue.queue_id, now_us))
            self._posts.append(Post(queue, None, 0, times, beginning))

    def answer(
        self, terminal: TerminalEnd, wanted: Sequence[Delivery], unwanted: Sequence[Delivery], credit: int
    ) -> None:
        """Tell what becomes of posted messages with the commit; *unwanted*: of those nobody wants to hear."""
        if unwanted:
            terminal.release(unwanted, 0)
        if self.failure is None:
            terminal.accept_in(self.id, wanted, credit)
            return
        terminal.reject_in(self.id, wanted, credit, *self.failure)
        if unwanted and self.failure[0] == UNKNOWN_ID:  # there is no other way to tell
            terminal.failure(*self.failure)

    def refuse(
        self, terminal: TerminalEnd, deliveries: Sequence[Delivery], credit: int, condition: str, why: str
    ) -> None:
        """Messages posted in it can't be taken, so it can't be committed."""
        self.fail(why)
        terminal.reject_in(self.id, deliveries, credit, condition, why)

    def fail(self, why: str) -> None:
        """It can't be committed, for that reason."""
        self.roll_back(ROLLBACK, why)

    def _store(self, queues: Sequence[Queue], contents: list[bytes], *, timed: bool = False) -> None:
        """Durable messages, each for all of *queues*, which are durable."""
        if not (queues and contents) or not self._has_room(sum(map(len, contents)) + ENTRY_BYTES * len(contents)):
            return
        full = self._broker.store.full()
        if full:
            self.fail(f"the store is full: {full}")
        elif len(queues) == 1:
            queue, queue_id = queues[0], queues[0].queue_id
            self._do(lambda inner, now_us: inner.put_all(queue_id, contents, now_us))
            if timed or queue.policy.is_shaped:
                self._posts += [_stored_on(queue, content, timed=timed) for content in contents]
            else:
                self._posts += [Post(queue)] * len(contents)
        else:
            for content in contents:
                self._store_on(queues, content, timed=timed)

    def _store_on(self, queues: Sequence[Queue], content: bytes, *, timed: bool) -> None:
        ids = [queue.queue_id for queue in queues]
        self._do(lambda inner, now_us: inner.put_on(ids, content, now_us))
        for queue in queues:
            self._posts.append(_stored_on(queue, content, timed=timed))

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

    # ---- taking ---------------------------------------------------------------------------------------------------

    def take(self, consumer: Consumer, queue: Queue, outcomes: Sequence[Outcome]) -> None:
        """*consumer* was told what is to become of messages that it has; no other open transaction has them."""
        known, fresh = self._taken, list[Outcome]()
        for outcome in outcomes:
            if outcome.tag in known:
                self._take_again(known[outcome.tag], outcome)
            elif outcome.delivery is None or outcome.state:
                fresh.append(outcome)
        if not fresh:
            return
        if self._has_room(ENTRY_BYTES * len(fresh)):
            ids = [one.tag.message_id for one in fresh if one.tag.message_id and _is_final(queue, one.state)]
            if ids:
                self._do(lambda inner, now_us: inner.dequeue_all(ids, queue.queue_id, now_us))
        if self.failure is None:
            for outcome in fresh:
                entry = outcome.tag
                known[entry] = Taken(consumer, queue, outcome)
                self._owner.taken[entry] = self
                queue.locked[entry] = None
                consumer.unsettled.pop(entry, None)
        else:
            for outcome in fresh:
                self._untake(Taken(consumer, queue, outcome))

    def _take_again(self, taken: Taken, outcome: Outcome) -> None:
        if outcome.delivery is None:
            taken.is_final = True
        if outcome.state and outcome.state != taken.state:
            self.fail("the outcome of a message was changed, which is final once it is told")

    def left(self, entry: Entry) -> None:
        """The receiver of a message that was taken in it says nothing more of it."""
        taken = self._taken.get(entry)
        if taken is not None:
            taken.is_final = True

    def _untake(self, taken: Taken) -> None:
        """Nothing becomes of it: it is its receiver's again, or a delivery that failed."""
        entry, queue = taken.entry, taken.queue
        queue.locked.pop(entry, None)
        if entry.gone:
            return
        if not taken.is_final:
            taken.consumer.unsettled[entry] = None
            return
        taken.consumer.unsettled.pop(entry, None)
        entry.acquired = True
        entry.failures += 1
        if queue.has_failed_too_often(entry):
            self._broker.returns.bury(queue, entry, TOO_OFTEN, _nobody_waits)
        else:
            self._broker.returns.give_back(queue, entry, failed=True)
        self._broker.touch(queue)

    # ---- the end --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises `StoreError` if it can't be committed for what the store does not know of."""
        for queue in {*[post.queue for post in self._posts], *[taken.queue for taken in self._taken.values()]}:
            if queue.going:
                raise StoreError(f"queue {queue.name!r}", "it is gone")

    def commit(self, then: Callable[[], None]) -> None:
        """Do all of it; *then* is called when it is durable. Raises one of `CAN_FAIL`, and has done nothing then."""
        self.check()
        lsn = self.inner.commit(self._broker.clock.wall_us()) if self.inner is not None else 0
        self.committed(lsn, then)

    def committed(self, lsn: int, then: Callable[[], None]) -> None:
        """The store has its part of the commit, recorded at *lsn*: do the rest."""
        self.is_committed = True
        self.failure = (UNKNOWN_ID, "the transaction was committed")
        self._owner.over(self)
        shown = self._shown()
        self._drop()
        for taken in self._taken.values():
            if _is_final(taken.queue, taken.state):
                taken.queue.locked.pop(taken.entry, None)
                if not taken.entry.gone:
                    taken.queue.took([taken.entry])
        for entry, queue in self._locked.items():
            queue.locked.pop(entry, None)
            if not entry.gone:
                queue.took([entry])
        self._broker.line.show(lsn, shown, self._durable, then)

    def _shown(self) -> Shown:
        """What is on which queue with the commit."""
        stored = self._stored()
        shown: dict[Queue, list[Entry]] = {}
        for queue, content, held_bytes, times, beginning in self._posts:
            message_id = 0
            if content is None:
                message_id, content = next(stored)
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

    def roll_back(self, condition: str, why: str) -> int:
        """Nothing of it is to be, for that reason; the LSN to wait for. Again has no effect."""
        if self.failure is not None:
            return 0
        lsn = 0
        if self.inner is not None and self.inner.state in (TxState.OPEN, TxState.PREPARED):
            lsn = self.inner.rollback(self._broker.clock.wall_us())
        self.rolled_back(condition, why)
        return lsn

    def rolled_back(self, condition: str, why: str) -> None:
        """The store's part of it was rolled back: do the rest."""
        self.failure = (condition, why)
        self._owner.over(self)
        self._drop()
        held, self._taken = self._taken, {}
        self._owner.settled(held)
        for taken in held.values():
            self._untake(taken)
        for entry, queue in self._locked.items():
            queue.locked.pop(entry, None)
            if not entry.gone:
                queue.give_back(entry)
                self._broker.touch(queue)

    def restored(self, inner: StoreTransaction, queues: dict[int, Queue]) -> None:
        """It is one that was prepared before the broker started."""
        self.inner = inner
        for operation in inner.operations:
            queue = queues.get(operation.queue_id)
            if queue is None:
                continue
            if not isinstance(operation, Dequeue):
                self._posts.append(Post(queue))
            elif (entry := queue.lock(operation.message_id)) is not None:
                self._locked[entry] = queue

    def _stored(self) -> Iterator[tuple[int, bytes | None]]:
        """The ids of the messages that the store has put on queues, in order, and their contents if these are here."""
        if self.inner is None:
            return
        staged = {*self.inner.staged}
        fresh = iter([message_id for message_id in self.inner.message_ids if message_id not in staged])
        for operation in self.inner.operations:
            if isinstance(operation, Put):
                yield next(fresh), operation.content
            elif not isinstance(operation, Dequeue):
                yield operation.message_id, None

    def _drop(self) -> None:
        self._posts = []
        self.controller.size_bytes -= self.size_bytes
        self.size_bytes = self._transient_bytes = 0
        self._count()

    def _durable(self, then: Callable[[], None]) -> None:
        """It is settled where the client has not; what goes back does so when nothing more is heard of it."""
        waiting: dict[Consumer, list[Taken]] = {}
        done: list[Taken] = []
        for taken in self._taken.values():
            if taken.is_final:
                done.append(taken)
            else:
                waiting.setdefault(taken.consumer, []).append(taken)
        self._taken = {}
        self._settled(done)
        for consumer, those in waiting.items():
            deliveries = [(taken.delivery, taken.state, taken.entry) for taken in those]
            consumer.terminal.settle_in(deliveries, partial(self._settled, those))
        then()

    def _settled(self, those: Sequence[Taken]) -> None:
        self._owner.settled([taken.entry for taken in those])
        for taken in those:
            if not _is_final(taken.queue, taken.state):
                taken.queue.locked.pop(taken.entry, None)
                if not taken.entry.gone:
                    outcome = Outcome(None, taken.entry, taken.state, taken.failed, taken.undeliverable)
                    taken.consumer.take_back([outcome])


def _stored_on(queue: Queue, content: bytes, *, timed: bool) -> Post:
    times = times_of(content, queue.policy.message_ttl_ms) if timed else None
    return Post(queue, None, 0, times, content[:BEGINNING_BYTES] if queue.policy.is_shaped else b"")


def _is_final(queue: Queue, state: int) -> bool:
    """Whether the outcome is part of the store's transaction; to dead letters a message is moved by the next one."""
    return state == ACCEPTED or (state == REJECTED and not queue.policy.dead_letter_address)


def _nobody_waits(lsn: int) -> None:
    """For messages that are moved on the broker's own account."""
