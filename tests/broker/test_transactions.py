"""Tests of transactions against a model: atomic, isolated, ordered by commit, without effect after a rollback.

Histories mix local and distributed transactions, two queues, durable and transient messages, receivers that settle
at once, later or never, closed links, and killed brokers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.amqp.native.proton_ffi import ACCEPTED, MODIFIED, REJECTED, RELEASED
from cairnmq.amqp.ports import MORE, Outcome
from cairnmq.base.errors import TransactionEnded, UnknownTransaction
from cairnmq.broker.transactions import staging as posting
from cairnmq.store.contract import transaction as store_transaction
from cairnmq.store.contract.transaction import TxState
from tests.harness.broker.declarations import declare, discharge
from tests.harness.broker.world import FakeTerminal, World, message, number_of
from tests.harness.thorough import amount

QUEUES = ("a", "b")
HELD_BYTES = 1000
SIZES = (0, 10, 100, 400, 700, 1500, 70_000)
STATES = (ACCEPTED, ACCEPTED, REJECTED, RELEASED, MODIFIED)
STEPS = {
    "begin_one": 6,
    "put": 12,
    "fetch": 10,
    "take": 20,
    "settle": 3,
    "settle_what_was_taken": 4,
    "discharge": 8,
    "prepare": 4,
    "decide": 3,
    "close_receiver": 1,
    "close_control": 0.4,
    "cut_the_connection": 0.4,
    "kill": 1,
}
"""The steps of a history and their relative frequencies."""


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_transaction, "MAX_HELD_BYTES", HELD_BYTES)
        patch.setattr(posting, "MAX_HELD_BYTES", HELD_BYTES)
        yield


class Modelled:
    """The model of a transaction: its effects when it commits."""

    def __init__(self, xid: bytes) -> None:
        self.xid = xid
        self.puts: list[tuple[str, int]] = []
        self.takes: dict[int, tuple[str, int, bool]] = {}
        """Queue, outcome, and whether the receiver settled the message, by message number."""
        self.discharged = False
        self.prepared = False


class History:
    """A broker and its clients, with a model of their state."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.done = Counter[str]()
        self.numbers = count(1)
        self.keys = count(1)
        self.xids = count(1)
        self.waiting: dict[str, list[int]] = {name: [] for name in QUEUES}
        self.key: dict[int, int] = {}
        """The place of each message in its queue, by message number."""
        self.lasting: set[int] = set()
        self.out: dict[str, dict[int, Any]] = {name: {} for name in QUEUES}
        """Entries of unsettled messages, by queue and message number."""
        self.open: dict[bytes, Modelled] = {}
        """Open transactions, by transaction ID."""
        self.ended: dict[bytes, Modelled] = {}
        """Discharged distributed transactions, by xid."""

        self.world = World(1 << 30)
        self.connect()

    def connect(self) -> None:
        self.connection = object()
        self.control = self.world.open(to_client=False, connection=self.connection, coordinator=True, address=None)
        self.senders: dict[str, FakeTerminal] = {}
        self.receivers: dict[str, FakeTerminal] = {}
        self.limits = dict.fromkeys(QUEUES, 0)
        for name in QUEUES:
            self.senders[name] = self.world.open(to_client=False, connection=self.connection, address=name)
            self.attach(name)

    def attach(self, name: str) -> None:
        self.receivers[name] = self.world.open(to_client=True, connection=self.connection, address=name)
        self.limits[name] = 0

    def ask(self, request: bytes) -> int:
        """Send a request to the coordinator; return the number of its delivery."""
        delivery = next(self.numbers)
        self.world.send(self.control, (delivery, request, 0))
        return delivery

    def appear(self, name: str, number: int) -> None:
        self.key[number] = next(self.keys)
        self.waiting[name].append(number)

    def come_back(self, name: str, number: int) -> None:
        self.waiting[name].append(number)
        self.waiting[name].sort(key=self.key.__getitem__)

    # ---- work ---------------------------------------------------------------------------------------------------

    def begin_one(self) -> None:
        xid = b"xid %d" % next(self.xids) if self.random.random() < 0.4 else b""
        self.ask(declare(xid))
        self.open[self.control.declared_ids[-1]] = Modelled(xid)

    def put(self) -> None:
        name = self.random.choice(QUEUES)
        txn_id = self.random.choice([b"", *self.open])
        sender = self.senders[name]
        fragments: list[Any] = []
        sent: list[int] = []
        for _ in range(self.random.randint(1, 5)):
            number = next(self.numbers)
            durable = self.random.random() < 0.7
            content = message(number, self.random.choice(SIZES), durable)
            cut = len(content) - 1 if self.random.random() < 0.3 else 0
            if cut:
                fragments.append((number, content[:cut], MORE))
            fragments.append((number, content[cut:], 0))
            sent.append(number)
            if durable:
                self.lasting.add(number)
        if txn_id:
            self.world.do(sender.driver.receive_in, self.connection, txn_id, fragments)
            assert sender.accepted_in[-len(sent) :] == [(txn_id, number) for number in sent]
            self.open[txn_id].puts += [(name, number) for number in sent]
        else:
            self.world.do(sender.driver.receive, fragments)
            assert {*sent} <= {*sender.confirmed}
            for number in sent:
                self.appear(name, number)

    def fetch(self) -> None:
        self.fetch_from(self.random.choice(QUEUES), self.random.randint(1, 8))

    def fetch_from(self, name: str, most: int) -> None:
        receiver = self.receivers[name]
        seen = len(receiver.forwarded)
        self.limits[name] += most
        self.world.read_all()  # contents of transactions that were rolled back are checked before they are requeued
        self.world.do(receiver.driver.request, self.limits[name], True)
        self.world.read_all()
        expected = self.waiting[name][:most]
        del self.waiting[name][:most]
        got = receiver.forwarded[seen:]
        assert [number_of(content) for _, content in got] == expected
        self.out[name].update(zip(expected, (entry for entry, _ in got), strict=True))

    def free(self, name: str) -> list[int]:
        """Return the numbers of unsettled messages of a receiver that have no outcome in a transaction."""
        said = {number for one in (*self.open.values(), *self.ended.values()) for number in one.takes}
        return [number for number in self.out[name] if number not in said]

    def take(self) -> None:
        name, state, settled = self.random.choice(QUEUES), self.random.choice(STATES), self.random.random() < 0.5
        free = self.free(name)
        if not free or not self.open:
            return
        number, txn_id = self.random.choice(free), self.random.choice([*self.open])
        entry = self.out[name][number]
        outcome = Outcome(None if settled else number, entry, state, state == MODIFIED)
        self.world.do(self.receivers[name].driver.outcomes_in, self.connection, [(txn_id, outcome)])
        self.open[txn_id].takes[number] = (name, state, settled)
        if settled:
            del self.out[name][number]

    def settle(self) -> None:
        """Settle a message outside of all transactions."""
        name, state = self.random.choice(QUEUES), self.random.choice(STATES)
        free = self.free(name)
        if not free:
            return
        number = self.random.choice(free)
        self.world.settle(self.receivers[name], self.out[name].pop(number), state)
        if state in (RELEASED, MODIFIED):
            self.come_back(name, number)

    def settle_what_was_taken(self) -> None:
        for txn_id, one in self.open.items():
            for number, (name, state, settled) in one.takes.items():
                if not settled and number in self.out[name]:
                    entry = self.out[name].pop(number)
                    one.takes[number] = (name, state, True)
                    said = [(txn_id, Outcome(None, entry, state, state == MODIFIED))]
                    self.world.do(self.receivers[name].driver.outcomes_in, self.connection, said)
                    return

    # ---- ends -----------------------------------------------------------------------------------------------------

    def commits(self, one: Modelled) -> None:
        self.done.update(puts=len(one.puts), takes=len(one.takes))
        for name, number in one.puts:
            self.appear(name, number)
        for number, (name, state, settled) in one.takes.items():
            if not settled:
                self.receivers[name].settled_in.remove(self.out[name].pop(number))
            if state in (RELEASED, MODIFIED):
                self.come_back(name, number)

    def rolls_back(self, one: Modelled) -> None:
        self.done.update(returned=len(one.takes))
        for number, (name, _, settled) in one.takes.items():
            if settled:
                self.come_back(name, number)
            else:
                assert self.out[name][number] not in self.receivers[name].settled_in

    def discharge(self) -> None:
        if not self.open:
            return
        txn_id, fail = self.random.choice([*self.open]), self.random.random() < 0.3
        one = self.open.pop(txn_id)
        assert self.ask(discharge(txn_id, fail=fail)) in self.control.confirmed
        if fail:
            self.rolls_back(one)
        elif one.xid:
            self.ended[one.xid] = one
        else:
            self.commits(one)

    def close_control(self) -> None:
        self.world.do(self.control.driver.close, (), False, True)
        for one in self.open.values():
            self.rolls_back(one)
        self.open.clear()
        self.control = self.world.open(to_client=False, connection=self.connection, coordinator=True, address=None)

    def close_receiver(self) -> None:
        self.close_one(self.random.choice(QUEUES))

    def close_one(self, name: str) -> None:
        out, self.out[name] = self.out[name], {}
        said = {number for one in (*self.open.values(), *self.ended.values()) for number in one.takes}
        for one in (*self.open.values(), *self.ended.values()):
            for number, (of, state, _) in one.takes.items():
                if of == name:
                    one.takes[number] = (name, state, True)
        self.world.do(self.receivers[name].driver.close, [*out.values()], False, True)
        for number in out:
            if number not in said:
                self.come_back(name, number)
        self.attach(name)

    def cut_the_connection(self) -> None:
        for name in QUEUES:
            self.close_one(name)
        self.close_control()
        self.world.do(self.world.broker.drivers.connection_closed, self.connection)
        for xid, one in list(self.ended.items()):
            if not one.prepared:
                self.rolls_back(self.ended.pop(xid))
        self.connect()

    # ---- two phases -----------------------------------------------------------------------------------------------

    def on_core(self, action: Callable[..., None], *args: Any, **more: Any) -> None:
        done: list[bool] = []
        self.world.do(lambda: action(*args, lambda: done.append(True), **more))
        assert done == [True]

    def prepare(self) -> None:
        if not self.ended:
            return
        xid = self.random.choice([*self.ended])
        doubt = self.world.broker.in_doubt
        if self.ended[xid].prepared:
            with pytest.raises(TransactionEnded):
                doubt.prepare(xid, lambda: None)
        else:
            self.on_core(doubt.prepare, xid)
            self.ended[xid].prepared = True
        assert {one.xid for one in doubt.in_doubt()} == {one for one in self.ended if self.ended[one].prepared}

    def decide(self) -> None:
        if not self.ended:
            return
        commit, heuristic = self.random.random() < 0.6, self.random.random() < 0.3
        xid = self.random.choice([*self.ended])
        one = self.ended.pop(xid)
        doubt = self.world.broker.in_doubt
        if heuristic and one.prepared:
            self.on_core(doubt.decide, xid, commit=commit)
            state = TxState.DECIDED_COMMIT if commit else TxState.DECIDED_ROLLBACK
            assert state in {found.state for found in doubt.in_doubt() if found.xid == xid}
            self.on_core(doubt.forget, xid)
        else:
            self.on_core(doubt.commit if commit else doubt.rollback, xid)
        with pytest.raises(UnknownTransaction):
            doubt.commit(xid, lambda: None)
        (self.commits if commit else self.rolls_back)(one)

    def kill(self) -> None:
        """Kill the broker; only durable messages and prepared transactions are recovered."""
        for one in self.open.values():
            self.rolls_back(one)
        self.open.clear()
        for xid, one in list(self.ended.items()):
            if not one.prepared:
                self.rolls_back(self.ended.pop(xid))
            else:
                one.puts = [(name, number) for name, number in one.puts if number in self.lasting]
                takes = one.takes.items()
                one.takes = {
                    number: (name, state, True)
                    for number, (name, state, _) in takes
                    if number in self.lasting and state in (ACCEPTED, REJECTED)
                }
                for number, (name, state, settled) in takes:
                    if settled and state in (RELEASED, MODIFIED):
                        self.come_back(name, number)
        locked = {number for one in self.ended.values() for number in one.takes}
        for name in QUEUES:
            for number in self.out[name]:
                if number not in locked:
                    self.come_back(name, number)
            self.waiting[name] = [number for number in self.waiting[name] if number in self.lasting]
        self.out = {name: {} for name in QUEUES}
        self.world.kill_and_start()
        self.connect()

    def end(self) -> None:
        self.cut_the_connection()
        for xid in list(self.ended):
            self.on_core(self.world.broker.in_doubt.rollback, xid)
            self.rolls_back(self.ended.pop(xid))
        for name in QUEUES:
            self.fetch_from(name, 1000)
            assert not self.waiting[name]
            for entry in self.out[name].values():
                self.world.settle(self.receivers[name], entry, ACCEPTED)
            assert self.world.queue(name).memory.held_bytes == 0
        assert self.world.broker.core.memory.used_bytes == 0
        assert not self.world.broker.transactions.taken
        assert not self.world.store.transactions.locks.dequeued
        assert not any(len(ids) for ids in self.world.store.messages().values())


@given(seed=st.integers(0, 1 << 30))
@settings(max_examples=amount("CAIRN_TRANSACTION_RUNS", 60, 20))
def test_histories(seed: int) -> None:
    history = History(Random(seed))
    for step in history.random.choices([*STEPS], [*STEPS.values()], k=200):
        getattr(history, step)()
    history.end()
