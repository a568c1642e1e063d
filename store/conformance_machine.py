"""Histories of calls that hypothesis makes up, on a store and on the model, with crashes in between.

A *call* changes both alike. After each one, what would have to be there if it were the last one that lasts is noted;
after a crash what is found must be one of those notes, and none from before the last time that all was durable.
Of `conformance`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ..base.errors import MessageLocked, StoreError, TransactionEnded, TransactionTimedOut
from .conformance_model import ADD, NEW, TAKE, Lasting, Model, Op, StoreMaker, Tx, observe, without_queue
from .wiring import QueueRow

_T = TypeVar("_T")
_PICK = st.integers(0, 255)
_CONTENT = st.one_of(
    st.binary(max_size=20), st.builds(lambda byte, size: bytes([byte]) * size, _PICK, st.sampled_from([5000, 70_000]))
)
_NAMES = ("a", "b", "c")


class StoreMachine(RuleBasedStateMachine):
    """One history on one store."""

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
        assert self.store.durable_lsn >= self.durable_lsn, "LSNs go on rising"
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

    # ---- queues ---------------------------------------------------------------------------------------------------

    def _create(self, name: str) -> None:
        made: list[QueueRow | Exception] = []
        self.store.create_queue(name, made.append)
        row = made[0]
        assert isinstance(row, QueueRow), row
        self.model.names[row.id] = name
        self.model.on.setdefault(row.id, [])

    @rule(name=st.sampled_from(_NAMES))
    def create_queue(self, name: str) -> None:
        self._create(name)

    @precondition(lambda self: self._going())
    @rule(pick=_PICK, crashes=st.booleans())
    def destroy_queue(self, pick: int, crashes: bool) -> None:
        """The crash comes when SQL has it that the queue is going, before its messages went."""
        queue_id = self._pick(self._going(), pick)
        answers: list[Exception | None] = []
        self.store.begin_destroy_queue(queue_id, answers.append)
        self.since = [without_queue(one, queue_id) for one in self.since]
        if crashes and self.maker.can_crash:
            del self.model.names[queue_id], self.model.on[queue_id]
            self.crash()
            return
        if hasattr(self.store, "purge"):
            self.store.purge(queue_id, self.now_us, is_final=True)
            for tx in [tx for tx in self.model.open if any(op.queue_id == queue_id for op in tx.ops)]:
                self.model.open.remove(tx)
                self._refused(TransactionEnded, lambda tx=tx: tx.txn.commit(self.now_us))  # type: ignore[misc]
        else:
            for message_id in self.model.on[queue_id]:
                self.store.dequeue(message_id, queue_id, self.now_us)
        del self.model.names[queue_id], self.model.on[queue_id]
        self.model.sweep()
        self._call()
        self.kick()
        self.store.finish_destroy_queue(queue_id, answers.append)
        assert answers == [None, None], answers

    def _going(self) -> list[int]:
        """The queues that may be destroyed; without purge, nothing may be under way there."""
        busy = {op.queue_id for ops in self.model.prepared.values() for op in ops}
        if not hasattr(self.store, "purge"):
            busy |= {op.queue_id for op in self.model.ops()}
        return sorted(set(self.model.names) - busy)

    @precondition(lambda self: self.model.names and hasattr(self.store, "purge"))
    @rule(pick=_PICK)
    def purge(self, pick: int) -> None:
        queue_id = self._pick(sorted(self.model.names), pick)
        purging: Any = self.store
        lsn = purging.purge(queue_id, self.now_us)
        self.model.purge(queue_id)
        self._call(lsn)

    # ---- messages -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.model.names)
    @rule(pick=_PICK, content=_CONTENT)
    def put(self, pick: int, content: bytes) -> None:
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

    # ---- transactions ---------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.model.open) < 3)
    @rule(is_distributed=st.booleans(), timeout_us=st.sampled_from([0, 0, 100]))
    def begin(self, is_distributed: bool, timeout_us: int) -> None:
        self.xids += is_distributed
        xid = b"%d" % self.xids if is_distributed else b""
        txn = self.store.transactions.begin(self.now_us, xid=xid, timeout_us=timeout_us)
        self.model.open.append(Tx(txn, self.now_us + timeout_us if timeout_us else 0))

    @precondition(lambda self: self.model.open and self.model.names)
    @rule(pick=_PICK, queue=_PICK, content=_CONTENT)
    def put_in(self, pick: int, queue: int, content: bytes) -> None:
        tx, queue_id = self._pick(self.model.open, pick), self._pick(sorted(self.model.names), queue)
        staged = len(tx.txn.staged)
        if self._in_time(tx, lambda: tx.txn.put(queue_id, content, self.now_us)):
            made = tx.txn.staged[staged:]
            tx.ops.append(Op(ADD, made[0], queue_id) if made else Op(NEW, 0, queue_id, content))
            self.model.contents |= dict.fromkeys(made, content)

    @precondition(lambda self: self.model.open and self._enqueuable())
    @rule(pick=_PICK, which=_PICK)
    def enqueue_in(self, pick: int, which: int) -> None:
        tx, (message_id, queue_id) = self._pick(self.model.open, pick), self._pick(self._enqueuable(), which)
        if self._in_time(tx, lambda: tx.txn.enqueue(message_id, queue_id, self.now_us)):
            tx.ops.append(Op(ADD, message_id, queue_id))

    @precondition(lambda self: self.model.open and self.model.places())
    @rule(pick=_PICK, which=_PICK)
    def take_in(self, pick: int, which: int) -> None:
        tx, (message_id, queue_id) = self._pick(self.model.open, pick), self._pick(self.model.places(), which)
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
        tx = self._pick(self.model.open, pick)
        if how == "prepare" and not tx.txn.xid:
            how = "commit"
        before = self.model.lasting()
        if not self._in_time(tx, lambda: self._call_of(tx, how)):
            return
        self.model.open.remove(tx)
        if how == "prepare":
            self.model.prepared[tx.txn.xid] = tx.ops
            self.model.staged -= {op.message_id for op in tx.ops if op.what == ADD}
        elif how == "commit":
            self.model.do(tx.ops, [one for one in tx.txn.message_ids if one not in tx.txn.staged])
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
        """Whether it was done; else it was too late, and the transaction is over."""
        if not self._is_late(tx):
            call()
            return True
        self._refused(TransactionTimedOut, call)
        self.model.open.remove(tx)
        self.model.sweep()
        return False

    @precondition(lambda self: self.model.prepared)
    @rule(pick=_PICK, how=st.sampled_from(["commit", "rollback", "decide"]), commit=st.booleans())
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
    @rule(pick=_PICK)
    def forget(self, pick: int) -> None:
        xid = self._pick(sorted(self.model.decided), pick)
        lsn = self.store.transactions.of(xid).forget(self.now_us)
        del self.model.decided[xid]
        self._call(lsn)

    @rule(us=st.sampled_from([1, 60, 200]), expires=st.booleans())
    def time_passes(self, us: int, expires: bool) -> None:
        self.now_us += us
        if expires:
            late = [tx for tx in self.model.open if self._is_late(tx)]
            assert set(self.store.transactions.expire(self.now_us)) == {tx.txn for tx in late}
            self.model.open = [tx for tx in self.model.open if tx not in late]
            self.model.sweep()

    # ---- durability -----------------------------------------------------------------------------------------------

    @rule()
    def kick(self) -> None:
        self.store.kick()
        assert self.store.durable_lsn > self.last_lsn, "everything that was recorded is durable"
        self.durable_lsn = self.store.durable_lsn
        self.since = [self.model.lasting()]
        self.top_id = max([self.top_id, *self.since[0].contents])
        assert observe(self.store) == self.since[0]

    @rule()
    def reopen(self) -> None:
        expected = self.model.lasting()
        self.store.close()
        self._found([expected])

    @precondition(lambda self: self.maker.can_crash)
    @rule()
    def crash(self) -> None:
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
