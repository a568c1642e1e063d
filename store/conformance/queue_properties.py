"""Laws about queues as a whole: how they come and go, and the rest of the wiring. Of `conformance`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ...base.errors import MessageLocked, StoreError, TransactionEnded
from ..contract.interface import MessageStore
from ..contract.wiring_rows import BindingRow, ExchangeRow
from ..wiring.schema import MAX_NAME_BYTES
from .model import arrangement, observe
from .subject import NOW_US, NOWHERE, Subject, asked


class QueueProperties:
    """The part of `StoreConformance` about queues."""

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
