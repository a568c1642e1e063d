"""The conformance suite for all stores, built-in and third-party. Needs the extra `conformance`.

    from cairnmq.store.conformance import StoreConformance, StoreMaker

    class TestMyStore(StoreConformance):
        def make(self) -> StoreMaker:
            return MyMaker()

The class has a test for each property; `test_history_agrees_with_model` searches for an exception to all of them with
hypothesis. A failing history is printed as the calls that lead to it. With
`pytest.register_assert_rewrite("cairnmq.store.conformance")` before the import, failures show their values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from ...base.errors import BadXid, MessageLocked, StoreError, TransactionEnded, TransactionTimedOut, UnknownTransaction
from ..contract.interface import MessageStore
from ..contract.transaction import MAX_HELD_BYTES, MAX_XID_BYTES, TxState
from ..contract.wiring_rows import BindingRow, ExchangeRow
from ..wiring.row_check import MAX_NAME_BYTES
from .machine import StoreMachine
from .model import Lasting, StoreMaker, arrangement, complete, observe
from .subject import NOW_US, NOWHERE, Subject, asked

__all__ = ["StoreConformance", "StoreMachine", "StoreMaker", "Subject"]


class StoreConformance:
    """Base class of the conformance tests of a store; a subclass defines how the store is made."""

    histories = 30
    """The number of histories that `test_history_agrees_with_model` generates."""
    steps = 50
    """The longest of them."""
    shrinks = False
    """True to shrink a failing history, which takes up to five minutes."""

    def make(self) -> StoreMaker:
        """A store of its own, in which nothing was ever done."""
        raise NotImplementedError

    @pytest.fixture
    def subject(self) -> Iterator[Subject]:
        maker = self.make()
        made = Subject(maker)
        yield made
        try:
            made.store.close()
        finally:
            maker.remove()

    def test_history_agrees_with_model(self) -> None:
        """E46, E50, E51, E64 to E66: any calls in any order, with any crashes in between."""
        phases = [Phase.generate, Phase.shrink] if self.shrinks else [Phase.generate]
        made: Any = lambda: StoreMachine(self.make())  # noqa: E731  (hypothesis wants no more than a callable)
        run_state_machine_as_test(
            made,
            settings=settings(
                max_examples=self.histories, stateful_step_count=self.steps, deadline=None, database=None,
                phases=phases, report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
            ),
        )  # fmt: skip

    def test_enqueued_messages_are_read_in_order(self, subject: Subject) -> None:  # E64
        store, a, b = subject.store, subject.queue("a"), subject.queue("b")
        ids, _ = store.put_all(a, [b"%d" % number for number in range(10)], NOW_US)
        other, _ = store.put(b, b"other", NOW_US)
        last, lsn = store.put(a, b"last", NOW_US)
        store.kick()
        assert store.durable_lsn > lsn
        assert {queue_id: list(on) for queue_id, on in store.messages().items()} == {a: [*ids, last], b: [other]}
        assert store.load_many(list(ids), 1 << 20) == [b"%d" % number for number in range(10)]
        some = store.load_many(list(ids), 3)
        assert 1 <= len(some) <= 10
        assert store.load_piece(other, 0) == b"other"

    @pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 1 << 20, (1 << 20) + 1, 3_000_000])
    def test_long_content_is_stored(self, subject: Subject, size: int) -> None:
        store, q = subject.store, subject.queue()
        content = (bytes(range(251)) * (size // 251 + 1))[:size]
        message_id, _ = store.put(q, content, NOW_US)
        store.kick()
        assert complete(store, message_id) == content
        assert store.load_content(message_id, 0, size + 10) == content
        assert store.load_content(message_id, size // 2, 70_000) == content[size // 2 : size // 2 + 70_000]
        assert store.load_content(message_id, size, 5) == b""
        [loaded] = store.load_many([message_id], 1 << 30)
        assert loaded == (content if store.piece_count(message_id) == 1 else None)
        assert store.size_of(message_id) == len(content)

    def test_message_is_staged_in_pieces(self, subject: Subject) -> None:
        store, q = subject.store, subject.queue()
        message_id = store.stage(b"one ", NOW_US)
        subject.refused(StoreError, lambda: store.enqueue(message_id, q, NOW_US))
        store.append_content(message_id, b"two ", NOW_US, last=False)
        store.append_content(message_id, b"three", NOW_US, last=True)
        subject.refused(StoreError, lambda: store.append_content(message_id, b"four", NOW_US, last=True))
        store.enqueue(message_id, q, NOW_US)
        store.kick()
        assert complete(store, message_id) == b"one two three"
        removed = store.stage(b"", NOW_US)
        store.destroy(removed, NOW_US)
        assert not store.holds(removed)
        subject.refused(StoreError, lambda: store.destroy(removed, NOW_US))
        subject.refused(StoreError, lambda: store.destroy(message_id, NOW_US))

    def test_message_is_shared_by_queues(self, subject: Subject) -> None:  # E65
        store, a, b = subject.store, subject.queue("a"), subject.queue("b")
        message_id, _ = store.put(a, b"shared", NOW_US)
        store.enqueue(message_id, b, NOW_US)
        subject.refused(StoreError, lambda: store.enqueue(message_id, b, NOW_US))
        store.dequeue(message_id, a, NOW_US)
        store.kick()
        assert store.holds(message_id)
        assert complete(store, message_id) == b"shared"
        store.dequeue(message_id, b, NOW_US)
        assert not store.holds(message_id)

    def test_dequeued_message_is_not_on_its_queue(self, subject: Subject) -> None:  # E46
        store, a, b = subject.store, subject.queue("a"), subject.queue("b")
        message_id, _ = store.put(a, b"once", NOW_US)
        subject.refused(StoreError, lambda: store.dequeue(message_id, b, NOW_US))
        subject.refused(StoreError, lambda: store.dequeue(NOWHERE, a, NOW_US))
        store.dequeue(message_id, a, NOW_US)
        subject.refused(StoreError, lambda: store.dequeue(message_id, a, NOW_US))
        subject.refused(StoreError, lambda: store.enqueue(message_id, b, NOW_US))

    def test_batch_is_dequeued(self, subject: Subject) -> None:
        """A batch has the effect of single dequeues: those before an unknown message are done, the others are not."""
        store, a, b = subject.store, subject.queue("a"), subject.queue("b")
        plain, _ = store.put_all(a, [b"plain"] * 5, NOW_US)
        shared, _ = store.put(a, b"shared", NOW_US)
        store.enqueue(shared, b, NOW_US)
        elsewhere, _ = store.put(b, b"elsewhere", NOW_US)
        store.kick()
        assert store.dequeue_all([], a, NOW_US) == []
        lsns = store.dequeue_all([plain[1], plain[0]], a, NOW_US)
        assert len(lsns) == 2
        assert lsns == sorted(lsns)
        assert [store.holds(message_id) for message_id in plain] == [False, False, True, True, True]
        for batch in ([plain[2], plain[0], plain[4]], [plain[3], plain[3]]):
            with pytest.raises(StoreError):
                store.dequeue_all(batch, a, NOW_US)
        assert [store.holds(message_id) for message_id in plain] == [False, False, False, False, True]
        store.dequeue_all([shared, plain[4]], a, NOW_US)
        subject.refused(StoreError, lambda: store.dequeue_all([elsewhere], a, NOW_US))
        assert [store.holds(message_id) for message_id in (plain[4], shared, elsewhere)] == [False, True, True]
        store.dequeue_all([elsewhere, shared], b, NOW_US)
        assert not any(map(store.holds, (shared, elsewhere)))

    def test_unknown_queue_is_refused(self, subject: Subject) -> None:
        store, q = subject.store, subject.queue()
        message_id, _ = store.put(q, b"here", NOW_US)
        store.kick()
        txn = store.transactions.begin(NOW_US)
        subject.refused(StoreError, lambda: txn.put(NOWHERE, b"", NOW_US))
        subject.refused(StoreError, lambda: txn.enqueue(message_id, NOWHERE, NOW_US))
        subject.refused(StoreError, lambda: txn.dequeue(message_id, NOWHERE, NOW_US))
        subject.refused(StoreError, lambda: store.dequeue(message_id, NOWHERE, NOW_US))
        subject.refused(StoreError, lambda: store.put(NOWHERE, b"", NOW_US))
        subject.refused(StoreError, lambda: store.put_all(NOWHERE, [b"", b""], NOW_US))
        subject.refused(StoreError, lambda: store.enqueue(message_id, NOWHERE, NOW_US))
        assert txn.commit(NOW_US) == 0

    def test_notification_follows_durability(self, subject: Subject) -> None:  # E66
        store, q = subject.store, subject.queue()
        reported: list[int] = []

        def on_durable(lsn: int) -> None:
            reported.append(lsn)
            store.became_durable(lsn)

        store.run_inline(on_durable)
        lsns = [store.put(q, b"", NOW_US)[1] for _ in range(5)]
        assert lsns == sorted(set(lsns)), "LSNs rise"
        assert store.durable_lsn <= lsns[0]
        assert store.next_lsn > lsns[-1], "this much is outstanding (E64)"
        assert reported == []
        store.kick()
        assert reported[-1] > lsns[-1]
        assert store.durable_lsn == reported[-1] == store.next_lsn
        count = len(reported)
        store.kick()
        assert len(reported) == count, "there was nothing to do"

    def test_durable_message_survives_crash(self, subject: Subject) -> None:  # E52
        if not (subject.maker.can_crash and subject.maker.keeps):
            pytest.skip("this store keeps nothing, or can't crash")
        store, q = subject.store, subject.queue()
        kept, lsn = store.put(q, b"kept", NOW_US)
        store.kick()
        durable = observe(store)
        store.put(q, b"perhaps", NOW_US)
        store.stage(b"never", NOW_US)
        store = subject.crash()
        found = observe(store)
        assert found.on[q][:1] == [kept]
        assert len(found.on[q]) <= 2
        store.kick()
        later, later_lsn = store.put(q, b"later", NOW_US)
        assert later > max(durable.contents)
        assert later_lsn > lsn

    def test_close_makes_messages_durable_or_drops_them(self, subject: Subject) -> None:
        store, q = subject.store, subject.queue()
        store.put(q, b"kept", NOW_US)
        store.stage(b"incomplete", NOW_US)
        store.transactions.begin(NOW_US).put(q, b"uncommitted", NOW_US)
        store = subject.reopen()
        if subject.maker.keeps:
            assert list(observe(store).contents.values()) == [b"kept"]
        else:
            assert observe(store) == Lasting({}, {}, {}, {})
            assert list(store.queues()) == []

    def test_transaction_is_atomic(self, subject: Subject) -> None:  # E44, E45
        store, a, b = subject.store, subject.queue("a"), subject.queue("b")
        old, _ = store.put(a, b"old", NOW_US)
        for outcome in ("rollback", "commit"):
            txn = store.transactions.begin(NOW_US)
            txn.dequeue(old, a, NOW_US)
            for size in (3, MAX_HELD_BYTES, 70_000):
                txn.put(b, bytes(size), NOW_US)
            assert {queue_id: list(ids) for queue_id, ids in store.messages().items()} == {a: [old]}
            getattr(txn, outcome)(NOW_US)
            store.kick()
        assert observe(store).on == {b: txn.message_ids}
        assert [len(content) for content in observe(store).contents.values()].count(MAX_HELD_BYTES) == 1

    def test_message_dequeued_in_open_transaction_is_locked(self, subject: Subject) -> None:  # E46
        store, q = subject.store, subject.queue()
        message_id, _ = store.put(q, b"", NOW_US)
        store.kick()
        txn, other = store.transactions.begin(NOW_US), store.transactions.begin(NOW_US)
        txn.dequeue(message_id, q, NOW_US)
        for taking in (store.dequeue, txn.dequeue, other.dequeue):
            subject.refused(MessageLocked, lambda taking=taking: taking(message_id, q, NOW_US))  # type: ignore[misc]
        txn.rollback(NOW_US)
        other.dequeue(message_id, q, NOW_US)
        other.commit(NOW_US)
        assert not store.holds(message_id)

    def test_ended_transaction_is_refused(self, subject: Subject) -> None:
        store, q = subject.store, subject.queue()
        committed, rolled_back, late = (store.transactions.begin(NOW_US, timeout_us=10) for _ in range(3))
        committed.commit(NOW_US)
        rolled_back.rollback(NOW_US)
        for txn in (committed, rolled_back):
            for call in (txn.commit, txn.rollback, txn.prepare):
                subject.refused(TransactionEnded, lambda call=call: call(NOW_US))  # type: ignore[misc]
            subject.refused(TransactionEnded, lambda txn=txn: txn.put(q, b"", NOW_US))  # type: ignore[misc]
        subject.refused(TransactionTimedOut, lambda: late.commit(NOW_US + 10))
        subject.refused(TransactionTimedOut, lambda: late.put(q, b"", NOW_US))
        subject.refused(UnknownTransaction, lambda: store.transactions.of(b"nobody's"))
        subject.refused(TransactionEnded, lambda: store.transactions.begin(NOW_US).prepare(NOW_US))

    def test_invalid_xid_is_refused(self, subject: Subject) -> None:
        begin = subject.store.transactions.begin
        txn = begin(NOW_US, xid=bytes(MAX_XID_BYTES))
        subject.refused(BadXid, lambda: begin(NOW_US, xid=bytes(MAX_XID_BYTES)))
        subject.refused(BadXid, lambda: begin(NOW_US, xid=bytes(MAX_XID_BYTES + 1)))
        txn.prepare(NOW_US)
        subject.refused(BadXid, lambda: begin(NOW_US, xid=bytes(MAX_XID_BYTES)))
        txn.rollback(NOW_US)
        begin(NOW_US, xid=bytes(MAX_XID_BYTES))

    @pytest.mark.parametrize("commit", [True, False])
    def test_prepared_transaction_survives_crash(self, subject: Subject, commit: bool) -> None:  # E39, E51
        if not subject.maker.keeps:
            pytest.skip("this store keeps nothing")
        store, a, b = subject.store, subject.queue("a"), subject.queue("b")
        old, _ = store.put(a, b"old", NOW_US)
        txn = store.transactions.begin(NOW_US, xid=b"\0\xff")
        txn.dequeue(old, a, NOW_US)
        txn.put(b, b"new", NOW_US)
        txn.prepare(NOW_US)
        store.kick()
        for reopen in (subject.crash if subject.maker.can_crash else subject.reopen, subject.reopen):
            store = reopen()
            [txn] = store.transactions.in_doubt()
            assert (txn.xid, txn.state) == (b"\0\xff", TxState.PREPARED)
            subject.refused(MessageLocked, lambda: subject.store.dequeue(old, a, NOW_US))
        txn.decide(NOW_US, commit=commit)
        store = subject.reopen()
        assert list(observe(store).contents.values()) == ([b"new"] if commit else [b"old"])
        [txn] = store.transactions.in_doubt()
        subject.refused(TransactionEnded, lambda: txn.commit(NOW_US))
        txn.forget(NOW_US)
        assert subject.reopen().transactions.in_doubt() == []

    def test_definitions_are_created_changed_and_deleted(self, subject: Subject) -> None:  # E1, E2, E64
        store, q = subject.store, subject.queue()
        assert subject.queue() == q, "creating a queue that exists returns it"
        exchange = asked(lambda done: store.create_exchange("x", "topic", done, {"a": 1}))
        assert isinstance(exchange, ExchangeRow)
        binding = BindingRow(exchange.id, q, "key", {"b": [2]})
        assert asked(lambda done: store.bind(binding, done)) is None
        assert asked(lambda done: store.create_config("c", {"d": True}, done)) is None
        assert asked(lambda done: store.change_queue(q, {"e": [3]}, done)) is None
        store = subject.reopen()
        if not subject.maker.keeps:
            assert _wiring(store) == ([], [], [], [])
            return
        assert _wiring(store) == ([(q, {"e": [3]})], [exchange], [binding], [{"d": True}])
        assert asked(lambda done: store.unbind(binding, done)) is None
        assert asked(lambda done: store.destroy_exchange(exchange.id, done)) is None
        assert asked(lambda done: store.destroy_config("c", done)) is None
        assert _wiring(subject.reopen())[1:] == ([], [], [])

    def test_contradictory_definition_is_refused(self, subject: Subject) -> None:  # E1, E2
        store = subject.store
        exchange = asked(lambda done: store.create_exchange("x", "topic", done))
        assert isinstance(exchange, ExchangeRow)
        assert isinstance(asked(lambda done: store.create_exchange("x", "direct", done)), StoreError)
        too_long = "n" * (MAX_NAME_BYTES + 1)
        assert isinstance(asked(lambda done: store.create_queue(too_long, done)), StoreError)
        nowhere = BindingRow(exchange.id, NOWHERE, "key")
        assert isinstance(asked(lambda done: store.bind(nowhere, done)), StoreError)
        assert isinstance(asked(lambda done: store.change_queue(NOWHERE, {}, done)), StoreError)
        store = subject.reopen()
        assert _wiring(store) == ([], [exchange] if subject.maker.keeps else [], [], [])

    def test_deletion_of_queue_is_completed_after_crash(self, subject: Subject) -> None:  # E53
        if not (subject.maker.can_crash and subject.maker.keeps):
            pytest.skip("this store keeps nothing, or can't crash")
        store, q, other = subject.store, subject.queue(), subject.queue("other")
        shared, _ = store.put(q, b"shared", NOW_US)
        store.put(q, b"alone", NOW_US)
        store.enqueue(shared, other, NOW_US)
        store.kick()
        assert asked(lambda done: store.begin_destroy_queue(q, done)) is None
        store = subject.crash()
        store.kick()
        assert observe(store).on == {other: [shared]}
        assert [row.id for row in store.queues()] == [other]
        again = subject.queue()
        assert again != q, "an id is never used again"
        assert list(subject.reopen().going_queues()) == []

    def test_purge_keeps_locked_messages(self, subject: Subject) -> None:
        store, q, other = subject.store, subject.queue(), subject.queue("other")
        ids, _ = store.put_all(q, [b"%d" % number for number in range(6)], NOW_US)
        shared, away = ids[0], ids[5]
        store.enqueue(shared, other, NOW_US)
        txn = store.transactions.begin(NOW_US)
        txn.dequeue(ids[2], q, NOW_US)
        adding = store.transactions.begin(NOW_US)
        adding.enqueue(away, other, NOW_US)
        lsn = store.purge(q, NOW_US)
        assert arrangement(store).on == {q: [ids[2]], other: [shared]}
        assert [one for one in ids if store.holds(one)] == [shared, ids[2], away]
        txn.rollback(NOW_US)
        adding.commit(NOW_US)
        store.kick()
        assert store.durable_lsn > lsn
        store.purge(q, NOW_US)
        store.purge(q, NOW_US)
        expected = {other: [shared, away]}
        assert arrangement(store).on == expected
        late, _ = store.put(q, b"late", NOW_US)
        store.kick()
        if subject.maker.keeps:
            store = subject.crash() if subject.maker.can_crash else subject.reopen()
            assert observe(store).on == expected | {q: [late]}, "what was purged never comes back"

    def test_purge_keeps_excluded_messages(self, subject: Subject) -> None:
        store, q = subject.store, subject.queue()
        ids, _ = store.put_all(q, [b"%d" % number for number in range(6)], NOW_US)
        store.purge(q, NOW_US, keep=[ids[1], ids[4]])
        store.kick()
        assert observe(store).on == {q: [ids[1], ids[4]]}
        store.dequeue(ids[1], q, NOW_US)
        subject.refused(StoreError, lambda: store.dequeue(ids[0], q, NOW_US))
        if subject.maker.keeps:
            assert observe(subject.reopen()).on == {q: [ids[4]]}

    def test_final_purge_rolls_back_open_transactions(self, subject: Subject) -> None:
        store, q, other = subject.store, subject.queue(), subject.queue("other")
        taken, _ = store.put(q, b"taken", NOW_US)
        taking, putting, beside = (store.transactions.begin(NOW_US) for _ in range(3))
        taking.dequeue(taken, q, NOW_US)
        putting.put(q, b"", NOW_US)
        beside.put(other, b"beside", NOW_US)
        store.purge(q, NOW_US, is_final=True)
        assert arrangement(store).on == {}
        for txn in (taking, putting):
            subject.refused(TransactionEnded, lambda txn=txn: txn.commit(NOW_US))  # type: ignore[misc]
        beside.commit(NOW_US)
        store.kick()
        assert list(observe(store).contents.values()) == [b"beside"]

    @pytest.mark.parametrize("puts", [True, False])
    def test_final_purge_waits_for_prepared_transactions(self, subject: Subject, puts: bool) -> None:
        store, q = subject.store, subject.queue()
        message_id, _ = store.put(q, b"", NOW_US)
        txn, open_one = store.transactions.begin(NOW_US, xid=b"x"), store.transactions.begin(NOW_US)
        if puts:
            txn.put(q, b"new", NOW_US)
        else:
            txn.dequeue(message_id, q, NOW_US)
        open_one.put(q, b"open", NOW_US)
        txn.prepare(NOW_US)
        store.kick()
        subject.refused(MessageLocked, lambda: store.purge(q, NOW_US, is_final=True))
        open_one.commit(NOW_US)
        txn.rollback(NOW_US)
        store.purge(q, NOW_US, is_final=True)
        assert arrangement(store).on == {}


def _wiring(store: MessageStore) -> tuple[Sequence[object], ...]:
    """Return the definitions of queues, exchanges, bindings and configurations, without names and times."""
    queues = [(row.id, row.arguments) for row in store.queues()]
    configs = [row.settings for row in store.configs()]
    return queues, [*store.exchanges()], [*store.bindings()], configs
