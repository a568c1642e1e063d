"""The calls of `conformance_rules`, and those about transactions: the machine that makes up histories.

Whole transactions are one step, so there are many of them; some stay open, and continue later. Of `conformance`.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from ...base.errors import MessageLocked, TransactionEnded, TransactionTimedOut
from .model import ADD, NEW, TAKE, Op, Tx
from .rules import CONTENT, PICK, MessageRules

Work = tuple[str, int, bytes]
"""The operation of a transaction, the choice of an existing queue or message, and the content of a new one."""
_WORK = st.tuples(st.sampled_from([NEW, ADD, TAKE, TAKE]), PICK, CONTENT)


class StoreMachine(MessageRules):
    """A random history of operations on a store of a `StoreMaker`."""

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
    @rule(pick=PICK, work=_WORK)
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
    @rule(pick=PICK, how=st.sampled_from(["commit", "commit", "rollback", "prepare", "prepare"]))
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
    @rule(pick=PICK, how=st.sampled_from(["commit", "rollback", "decide", "decide", "decide"]), commit=st.booleans())
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
    @rule(pick=PICK, is_time=st.sampled_from([False, False, True]))
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
