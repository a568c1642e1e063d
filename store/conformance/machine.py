"""The machine that makes up histories: operations on queues, messages and transactions, with crashes in between.

An *operation* changes the store and the model. After each one, the content that would be expected if it were the last
one that lasts is recorded. After a crash, the content of the store must equal one of these records, and none from
before the last time at which everything was durable. Whole transactions are one operation, so there are many of them;
some stay open, and continue later. A part of `conformance`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ...base.errors import MessageLocked, StoreError, TransactionEnded, TransactionTimedOut
from ..contract.wiring_rows import QueueRow
from .model import ADD, NEW, TAKE, Lasting, Model, Op, StoreMaker, Tx, observe, without_queue
from .subject import asked

_T = TypeVar("_T")
_PICK = st.integers(0, 255)
_CONTENT = st.one_of(
    st.binary(max_size=20), st.builds(lambda byte, size: bytes([byte]) * size, _PICK, st.sampled_from([5000, 70_000]))
)
_NAMES = ("a", "b", "c")
Work = tuple[str, int, bytes]
"""The operation of a transaction, the choice of an existing queue or message, and the content of a new one."""
_WORK = st.tuples(st.sampled_from([NEW, ADD, TAKE, TAKE]), _PICK, _CONTENT)


class StoreMachine(RuleBasedStateMachine):
    """A random history of operations on a store of a `StoreMaker`."""

    def __init__(self, maker: StoreMaker) -> None:
        super().__init__()
        self.maker = maker
        self.now_us = 1000
        self.xids = 0
        self.top_id = 0
        """The highest id of a message that was ever durable."""
        self.durable_lsn = 0
        self._open(Model())
        self._create("a")

    def _open(self, model: Model) -> None:
        self.model = model
        self.store = self.maker.open()
        self.store.run_inline(self.store.became_durable)
        self.store.kick()
        assert self.store.durable_lsn >= self.durable_lsn, "LSNs keep rising"
        self.last_lsn = 0
        self.since = [model.lasting()]

    def _call(self, lsn: int = 0) -> None:
        """Something was done that lasts from *lsn* on."""
        self.last_lsn = max(self.last_lsn, lsn)
        self.since.append(self.model.lasting())

    def _pick(self, among: Sequence[_T], pick: int) -> _T:
        return among[pick % len(among)]

    def _refused(self, error: type[StoreError], call: Callable[[], object]) -> None:
        try:
            call()
        except error:
            return
        raise AssertionError(f"it was not refused with {error.__name__}")

    def _create(self, name: str) -> None:
        row = asked(lambda done: self.store.create_queue(name, done))
        assert isinstance(row, QueueRow), row
        self.model.names[row.id] = name
        self.model.on.setdefault(row.id, [])

    @rule(name=st.sampled_from(_NAMES))
    def create_queue(self, name: str) -> None:
        self._create(name)

    @precondition(lambda self: self._going())
    @rule(pick=_PICK, how=st.sampled_from(["crash", "to its end", "to its end", "not at all", "not at all"]))
    def destroy_queue(self, pick: int, how: str) -> None:
        """Destroy a queue; a crash occurs after SQL has recorded the deletion, and before the messages are deleted."""
        if how == "not at all":
            return
        queue_id = self._pick(self._going(), pick)
        answers: list[Exception | None] = []
        self.kick()  # SQL is durable at once: an outcome that it rests on must not be lost
        self.store.begin_destroy_queue(queue_id, answers.append)
        self.since = [without_queue(one, queue_id) for one in self.since]
        if how == "crash" and self.maker.can_crash:
            del self.model.names[queue_id], self.model.on[queue_id]
            self._crash()
            return
        self.store.purge(queue_id, self.now_us, is_final=True)
        for tx in [tx for tx in self.model.open if any(op.queue_id == queue_id for op in tx.ops)]:
            self.model.rolled_back(tx)
            self._refused(TransactionEnded, lambda tx=tx: tx.txn.commit(self.now_us))  # type: ignore[misc]
        del self.model.names[queue_id], self.model.on[queue_id]
        self.model.sweep()
        self._call()
        self.kick()
        self.store.finish_destroy_queue(queue_id, answers.append)
        assert answers == [None, None], answers

    def _going(self) -> list[int]:
        """The queues that may be destroyed."""
        busy = {op.queue_id for ops in self.model.prepared.values() for op in ops}
        return sorted(set(self.model.names) - busy)

    @precondition(lambda self: self.model.names)
    @rule(pick=_PICK, kept=st.just([]) | st.just([]) | st.lists(_PICK, max_size=3))
    def purge(self, pick: int, kept: list[int]) -> None:
        queue_id = self._pick(sorted(self.model.names), pick)
        on = self.model.on[queue_id]
        keep = {self._pick(list(on), one) for one in kept} if on else set()
        lsn = self.store.purge(queue_id, self.now_us, keep=keep)
        self.model.purge(queue_id, keep)
        self._call(lsn)

    @precondition(lambda self: self.model.names)
    @rule(pick=_PICK, content=_CONTENT)
    def put_message(self, pick: int, content: bytes) -> None:
        queue_id = self._pick(sorted(self.model.names), pick)
        message_id, lsn = self.store.put(queue_id, content, self.now_us)
        self._arrived([message_id], [content], queue_id, lsn)

    @precondition(lambda self: self.model.names)
    @rule(pick=_PICK, contents=st.lists(_CONTENT, min_size=1, max_size=6))
    def put_all(self, pick: int, contents: list[bytes]) -> None:
        queue_id = self._pick(sorted(self.model.names), pick)
        ids, lsn = self.store.put_all(queue_id, contents, self.now_us)
        assert len(ids) == len(contents)
        self._arrived(list(ids), contents, queue_id, lsn)

    def _arrived(self, ids: list[int], contents: list[bytes], queue_id: int, lsn: int) -> None:
        assert ids == sorted(set(ids))
        assert ids[0] > self.top_id, "ids rise, and are never used again"
        self.model.contents |= dict(zip(ids, contents, strict=True))
        for message_id in ids:
            self.model.place(message_id, queue_id)
        self._call(lsn)

    @rule(content=_CONTENT)
    def stage(self, content: bytes) -> None:
        message_id = self.store.stage(content, self.now_us)
        assert message_id > self.top_id
        self.model.growing[message_id] = content
        self._call()

    @precondition(lambda self: self.model.growing)
    @rule(pick=_PICK, content=_CONTENT, last=st.booleans())
    def append_content(self, pick: int, content: bytes, last: bool) -> None:
        growing = self.model.growing
        message_id = self._pick(sorted(growing), pick)
        if self.model.names:
            queue_id = min(self.model.names)
            self._refused(StoreError, lambda: self.store.enqueue(message_id, queue_id, self.now_us))
        self.store.append_content(message_id, content, self.now_us, last=last)
        growing[message_id] += content
        if last:
            self.model.contents[message_id] = growing.pop(message_id)
            self.model.staged.add(message_id)
        self._call()

    @precondition(lambda self: self._enqueuable())
    @rule(pick=_PICK)
    def enqueue(self, pick: int) -> None:
        message_id, queue_id = self._pick(self._enqueuable(), pick)
        lsn = self.store.enqueue(message_id, queue_id, self.now_us)
        self.model.place(message_id, queue_id)
        self._call(lsn)
        self._refused(StoreError, lambda: self.store.enqueue(message_id, queue_id, self.now_us))

    def _enqueuable(self) -> list[tuple[int, int]]:
        taken = {*self.model.places(), *self.model.pairs(ADD)}
        pairs = [(message_id, queue_id) for message_id in self.model.contents for queue_id in self.model.names]
        return sorted(set(pairs) - taken)

    @precondition(lambda self: self.model.places())
    @rule(pick=_PICK)
    def dequeue(self, pick: int) -> None:
        message_id, queue_id = self._pick(self.model.places(), pick)
        if (message_id, queue_id) in self.model.pairs(TAKE):
            self._refused(MessageLocked, lambda: self.store.dequeue(message_id, queue_id, self.now_us))
            return
        lsn = self.store.dequeue(message_id, queue_id, self.now_us)
        self.model.take(message_id, queue_id)
        self._call(lsn)
        self._refused(StoreError, lambda: self.store.dequeue(message_id, queue_id, self.now_us))
        assert self.store.holds(message_id) == (message_id in self.model.contents)

    @precondition(lambda self: self.model.staged or self.model.growing)
    @rule(pick=_PICK)
    def destroy(self, pick: int) -> None:
        message_id = self._pick(sorted({*self.model.staged, *self.model.growing}), pick)
        if message_id in {one for one, _ in self.model.pairs(ADD)}:
            self._refused(MessageLocked, lambda: self.store.destroy(message_id, self.now_us))
            return
        lsn = self.store.destroy(message_id, self.now_us)
        self.model.staged.discard(message_id)
        self.model.growing.pop(message_id, None)
        self.model.contents.pop(message_id, None)
        self._call(lsn)
        assert not self.store.holds(message_id)

    @precondition(lambda self: len(self.model.open) < 3)
    @rule(
        is_distributed=st.sampled_from([True, True, False]),
        timeout_us=st.sampled_from([0, 100]),
        works=st.lists(_WORK, max_size=6),
        how=st.sampled_from(["", "", "commit", "rollback", "prepare", "prepare"]),
    )
    def transact(self, is_distributed: bool, timeout_us: int, works: list[Work], how: str) -> None:
        """A transaction, done to its end or left open."""
        self.xids += is_distributed
        xid = b"%d" % self.xids if is_distributed else b""
        txn = self.store.transactions.begin(self.now_us, xid=xid, timeout_us=timeout_us)
        tx = Tx(txn, self.now_us + timeout_us if timeout_us else 0)
        self.model.open.append(tx)
        for work in works:
            self._work(tx, work)
        if how:
            self._end(tx, how)

    @precondition(lambda self: self.model.open)
    @rule(pick=_PICK, work=_WORK)
    def go_on(self, pick: int, work: Work) -> None:
        """With one that is open."""
        self._work(self._pick(self.model.open, pick), work)

    def _work(self, tx: Tx, work: Work) -> None:
        what, pick, content = work
        queues, addable, places = sorted(self.model.names), self._enqueuable(), self.model.places()
        if what == NEW and queues:
            self._put_in(tx, self._pick(queues, pick), content)
        elif what == ADD and addable:
            message_id, queue_id = self._pick(addable, pick)
            if self._in_time(tx, lambda: tx.txn.enqueue(message_id, queue_id, self.now_us)):
                tx.ops.append(Op(ADD, message_id, queue_id))
        elif what == TAKE and places:
            self._take_in(tx, *self._pick(places, pick))

    def _put_in(self, tx: Tx, queue_id: int, content: bytes) -> None:
        staged = len(tx.txn.staged)
        if self._in_time(tx, lambda: tx.txn.put(queue_id, content, self.now_us)):
            made = tx.txn.staged[staged:]
            tx.ops.append(Op(ADD, made[0], queue_id) if made else Op(NEW, 0, queue_id, content))
            self.model.contents |= dict.fromkeys(made, content)

    def _take_in(self, tx: Tx, message_id: int, queue_id: int) -> None:
        is_locked = (message_id, queue_id) in self.model.pairs(TAKE)

        def take() -> None:
            tx.txn.dequeue(message_id, queue_id, self.now_us)

        if is_locked and not self._is_late(tx):
            self._refused(MessageLocked, take)
        elif self._in_time(tx, take):
            tx.ops.append(Op(TAKE, message_id, queue_id))

    @precondition(lambda self: self.model.open)
    @rule(pick=_PICK, how=st.sampled_from(["commit", "commit", "rollback", "prepare", "prepare"]))
    def end(self, pick: int, how: str) -> None:
        self._end(self._pick(self.model.open, pick), how)

    def _end(self, tx: Tx, how: str) -> None:
        if how == "prepare" and not tx.txn.xid:
            how = "commit"
        before = self.model.lasting()
        if not self._in_time(tx, lambda: self._call_of(tx, how)):
            return
        if how == "rollback":
            self.model.rolled_back(tx)
        else:
            self.model.open.remove(tx)
        if how == "prepare":
            self.model.prepared[tx.txn.xid] = tx.ops
            self.model.staged -= {op.message_id for op in tx.ops if op.what == ADD}
        elif how == "commit":
            known = {op.message_id for op in tx.ops}
            self.model.do(tx.ops, [one for one in tx.txn.message_ids if one not in known])
        self.model.sweep()
        self._call()
        if how == "rollback":
            assert self.model.lasting() == before
        if how != "prepare":
            self._refused(TransactionEnded, lambda: tx.txn.commit(self.now_us))

    def _call_of(self, tx: Tx, how: str) -> None:
        self.last_lsn = max(self.last_lsn, getattr(tx.txn, how)(self.now_us))

    def _is_late(self, tx: Tx) -> bool:
        return 0 < tx.deadline_us <= self.now_us

    def _in_time(self, tx: Tx, call: Callable[[], object]) -> bool:
        """Do *call* if *tx* has not timed out, else expect the timeout; return whether it was done."""
        if not self._is_late(tx):
            call()
            return True
        self._refused(TransactionTimedOut, call)
        self.model.rolled_back(tx)
        return False

    @precondition(lambda self: self.model.prepared)
    @rule(pick=_PICK, how=st.sampled_from(["commit", "rollback", "decide", "decide", "decide"]), commit=st.booleans())
    def outcome(self, pick: int, how: str, commit: bool) -> None:
        xid = self._pick(sorted(self.model.prepared), pick)
        txn = self.store.transactions.of(xid)
        if how == "decide":
            lsn = txn.decide(self.now_us, commit=commit)
            self.model.decided[xid] = commit
        else:
            commit = how == "commit"
            lsn = txn.commit(self.now_us) if commit else txn.rollback(self.now_us)
        ops = self.model.prepared.pop(xid)
        if commit:
            self.model.do(ops, ())
        self.model.sweep()
        self._call(lsn)

    @precondition(lambda self: self.model.decided)
    @rule(pick=_PICK, is_time=st.sampled_from([False, False, True]))
    def forget(self, pick: int, is_time: bool) -> None:
        if not is_time:
            return
        xid = self._pick(sorted(self.model.decided), pick)
        lsn = self.store.transactions.of(xid).forget(self.now_us)
        del self.model.decided[xid]
        self._call(lsn)

    @rule(us=st.sampled_from([1, 60, 200, 200]), expires=st.booleans())
    def time_passes(self, us: int, expires: bool) -> None:
        self.now_us += us
        if expires:
            late = [tx for tx in self.model.open if self._is_late(tx)]
            assert set(self.store.transactions.expire(self.now_us)) == {tx.txn for tx in late}
            for tx in late:
                self.model.rolled_back(tx)

    @rule()
    def kick(self) -> None:
        self.store.kick()
        assert self.store.durable_lsn > self.last_lsn, "everything that was recorded is durable"
        self.durable_lsn = self.store.durable_lsn
        self.since = [self.model.lasting()]
        self.top_id = max([self.top_id, *self.since[0].contents])
        assert observe(self.store) == self.since[0]
        assert self._bytes() == self.model.bytes(), "what was purged is not counted once that is durable"

    def _bytes(self) -> dict[int, int]:
        return {queue_id: self.store.bytes_on(queue_id) for queue_id in self.model.names}

    @rule(how=st.sampled_from(["close", "crash", *["continue"] * 4]))
    def stop(self, how: str) -> None:
        """Seldom, so that there is something to lose."""
        if how == "close":
            expected = self.model.lasting()
            self.store.close()
            self._found([expected])
        elif how == "crash" and self.maker.can_crash:
            self._crash()

    def _crash(self) -> None:
        self.maker.crash(self.store)
        self._found(self.since)

    def _found(self, allowed: list[Lasting]) -> None:
        """The store is opened again: what is there is one of those."""
        model = self.model
        if not self.maker.keeps:
            self.top_id = self.durable_lsn = 0
            self._open(Model())
            assert not [*self.store.queues()]
            assert observe(self.store) == Model().lasting()
            return
        self._open(model)
        found = observe(self.store)
        assert found in allowed, f"found {found}, expected one of {allowed}"
        assert {row.id: row.name for row in self.store.queues()} == model.names
        model.opened_again(found)
        assert self._bytes() == model.bytes(), "bytes on queues are counted again when a store is opened"
        self.since = [found]
        self.top_id = max([self.top_id, *found.contents])

    @invariant()
    def what_is_shown(self) -> None:
        shown = {queue_id: list(ids) for queue_id, ids in self.store.messages().items() if len(ids)}
        assert shown == {queue_id: ids for queue_id, ids in self.model.on.items() if ids}

    def teardown(self) -> None:
        try:
            self.store.close()
        finally:
            self.maker.remove()
