"""Tests of distributed transactions of two stores and a PostgreSQL server: all agree if any process is killed.

A coordinator moves a message from a queue of one store to a queue of another, and records that in a row. Its processes
are real and end by SIGKILL at each step in turn, in recovery too. The tests then examine neither the coordinator's
result nor the memory of the stores.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterator
from itertools import count

import psycopg
import pytest

from cairnmq.base.errors import BadXid, MessageLocked
from cairnmq.store.contract.transaction import Dequeue
from tests.harness.postgresql import Server
from tests.harness.store.coordinated import World
from tests.harness.store.coordinator import Standing
from tests.harness.store.coordinator_process import FIRST, IN, OUT, ROWS, SECOND, Orders, content_of
from tests.harness.thorough import EVERY

from ..conftest import Tell

KILLED = -9
ALL = (FIRST, SECOND, ROWS)
LANDMARKS = (
    "second: prepare called",
    "rows: prepare durable",
    "commit written",
    "first: commit called",
    "second: durable",
)
"""The steps after which a run is killed, so that its recovery is killed at each of its own steps."""


@pytest.fixture(scope="module")
def world(server: Server, tell: Tell) -> Iterator[World]:
    made = World(server)
    try:
        yield made
    finally:
        made.remove()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        tell(f"coordinator: {made.processes} processes, {used.ru_utime + used.ru_stime:.0f} s of CPU in children")


class Ledger:
    """The expected places of messages and rows, from the outcomes of transactions."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._queues: dict[tuple[str, str], list[bytes]] = {
            (name, on): [] for name in (FIRST, SECOND) for on in (OUT, IN)
        }
        self._rows: list[bytes] = []

    def moved(self, orders: Orders, *, first: bool, others: bool) -> None:
        """Record the outcome of a transaction at the first store and at the others."""
        content = content_of(orders.xid)
        if FIRST in orders.participants:
            into = SECOND if SECOND in orders.participants else FIRST
            arrives = others if into is SECOND else first
            self._queues[into, IN] += [content] * arrives
            self._queues[FIRST, OUT] += [content] * (not first)
        self._rows += [content] * (others and ROWS in orders.participants)

    def check(self) -> None:
        """Check that everything is in its place, once, in order, unaltered, and that nothing is in doubt."""
        found = self.world.look()
        assert found.queues == self._queues
        assert sorted(found.rows) == sorted(self._rows)
        assert found.in_doubt == {FIRST: {}, SECOND: {}}
        assert found.rows_in_doubt == []

    def recover(self) -> None:
        """Let a new process finish all transactions."""
        ended = self.world.live(self.world.orders())
        assert (ended.status, ended.result) == (0, True)


@pytest.fixture
def ledger(world: World) -> Ledger:
    world.clear()
    return Ledger(world)


def is_locked(world: World, xid: str) -> bool:
    """Return whether the first store holds the transaction in doubt; if so, check that its message is locked."""
    with world.copy(FIRST) as store:
        for transaction in store.transactions.in_doubt():
            assert transaction.xid == xid.encode()
            [operation] = transaction.operations
            assert isinstance(operation, Dequeue)
            with pytest.raises(MessageLocked):
                store.dequeue(operation.message_id, operation.queue_id, 1)
            with pytest.raises(BadXid):
                store.transactions.begin(1, xid=transaction.xid)
            return True
    return False


def is_row_locked(world: World, xid: str) -> bool:
    """Return whether the server holds the transaction in doubt; if so, check that its row is locked."""
    for in_doubt in world.rows_in_doubt():
        assert in_doubt == xid
        world.sql("SET lock_timeout = 1")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            world.sql("INSERT INTO moved VALUES (%s, '')", xid)
        world.sql("RESET lock_timeout")  # other statements here wait as usual
        return True
    return False


# ---- the coordinator is killed ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "fields"),
    [
        ("to be committed", {}),
        ("committed, rows first", {"participants": (ROWS, SECOND, FIRST)}),
        ("rolled back when all are prepared", {"rolls_back": True}),
    ],
)
def test_all_agree_when_it_is_killed_at_any_step(
    world: World, ledger: Ledger, tell: Tell, what: str, fields: dict[str, object]
) -> None:
    """The transaction is committed in all three, if the decision was written, or in none."""
    locked, rows_locked, outcomes = 0, 0, Counter[bool]()
    for step in count(1, EVERY):
        orders = world.orders(xid=world.xid(what), kill_at=step, **fields)
        ended = world.live(orders)
        commits = "commit written" in ended.steps
        if ended.status != KILLED:
            break
        assert len(ended.steps) == step
        locked += is_locked(world, orders.xid)
        rows_locked += is_row_locked(world, orders.xid)
        ledger.recover()
        ledger.moved(orders, first=commits, others=commits)
        ledger.check()
        outcomes[commits] += 1
    assert (ended.status, ended.result) == (0, commits)
    assert commits is not bool(fields.get("rolls_back"))
    ledger.moved(orders, first=commits, others=commits)
    ledger.check()
    assert min(locked, rows_locked) >= 4 // EVERY
    tell(
        f"coordinator, {what}: killed at {outcomes.total()} of {step - 1} steps, {outcomes[True]} times committed by "
        f"all, {outcomes[False]} times by none; {locked} times messages and {rows_locked} times rows were locked in "
        "doubt"
    )


@pytest.mark.parametrize("landmark", LANDMARKS)
def test_all_agree_when_recovery_is_killed_at_any_step(world: World, ledger: Ledger, tell: Tell, landmark: str) -> None:
    steps = world.live(orders := world.orders(xid=world.xid("whole"))).steps
    ledger.moved(orders, first=True, others=True)
    kill_at = steps.index(landmark) + 1
    commits = "commit written" in steps[:kill_at]
    for step in count(1, EVERY):
        orders = world.orders(xid=world.xid(landmark), kill_at=kill_at)
        assert world.live(orders).status == KILLED
        recovery = world.live(world.orders(kill_at=step))
        ledger.recover()
        ledger.moved(orders, first=commits, others=commits)
        ledger.check()
        if recovery.status != KILLED:
            break
    assert (recovery.status, recovery.result) == (0, True)
    tell(f"coordinator, killed after '{landmark}': recovery killed at every {EVERY}. of {step - 1} steps")


@pytest.mark.parametrize("name", [FIRST, ROWS])
def test_one_participant_commits_in_one_phase(world: World, ledger: Ledger, name: str) -> None:
    """Nothing is prepared and no decision is written; killed at any step, the commit is done or not."""
    done = 0
    for step in count(1):
        orders = world.orders(xid=world.xid("alone"), participants=(name,), kill_at=step)
        ended = world.live(orders)
        found = world.look()
        assert (found.in_doubt[FIRST], found.rows_in_doubt) == ({}, [])
        content = content_of(orders.xid)
        commits = content in (found.rows if name == ROWS else found.queues[FIRST, IN])
        assert commits or f"{name}: durable" not in ended.steps
        assert not commits or f"{name}: called" in ended.steps
        ledger.recover()
        ledger.moved(orders, first=commits, others=commits)
        ledger.check()
        done += commits
        if ended.status != KILLED:
            break
    assert ended.steps == ["nothing yet", *(f"{name}: {what}" for what in ("begun", "worked", "called", "durable"))]
    assert done >= 2


# ---- a participant refuses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("participants", [ALL, (ROWS, FIRST, SECOND)])
def test_nobody_commits_what_one_refuses(world: World, ledger: Ledger, participants: tuple[str, ...]) -> None:
    """The server refuses to prepare, because the row exists already."""
    for step in count(1, EVERY):
        orders = world.orders(xid=world.xid("refused"), participants=participants, kill_at=step)
        world.sql("INSERT INTO moved VALUES (%s, '')", orders.xid)
        ended = world.live(orders)
        assert "commit written" not in ended.steps
        ledger.recover()
        world.sql("DELETE FROM moved WHERE xid = %s", orders.xid)
        ledger.moved(orders, first=False, others=False)
        ledger.check()
        if ended.status != KILLED:
            break
    assert (ended.status, ended.result) == (0, False)
    assert f"{ROWS}: prepare called" not in ended.steps


# ---- the server is killed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stays_down", [False, True])
def test_all_agree_when_the_server_is_killed(world: World, ledger: Ledger, tell: Tell, stays_down: bool) -> None:
    """The server is killed at each step from before its prepare until its commit; what it prepared survives."""
    steps = world.live(orders := world.orders(xid=world.xid("whole"))).steps
    ledger.moved(orders, first=True, others=True)
    outcomes = Counter[bool]()
    first, last = (steps.index(name) + 1 for name in ("rows: worked", "rows: commit called"))
    for step in range(first, last + 1):
        orders = world.orders(xid=world.xid("without server"), pause_at=step)
        ended = world.live(orders, server_stays_down=stays_down)
        assert ended.status == 0
        commits = "commit written" in ended.steps
        assert ended.result is commits
        if stays_down:
            alone = world.live(world.orders())
            assert (alone.status, alone.result) == (0, False)
            world.server.start()
        ledger.recover()
        ledger.moved(orders, first=commits, others=commits)
        ledger.check()
        outcomes[commits] += 1
    assert min(outcomes.values()) >= 3
    when = "later" if stays_down else "at once"
    tell(
        f"coordinator, server killed at each of {last + 1 - first} steps, started again {when}: "
        f"{outcomes[True]} times committed by all, {outcomes[False]} times by none"
    )


# ---- an operator decides ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("operator", [True, False])
def test_the_coordinator_hears_of_an_operator(world: World, ledger: Ledger, commits: bool, operator: bool) -> None:
    """A decision against the coordinator's is recorded before the store may forget it; the record survives kills."""
    standing = Standing.COMMITTED if operator else Standing.ROLLED_BACK
    expected = world.conflicts()
    steps = world.live(orders := world.orders(xid=world.xid("whole"), rolls_back=not commits)).steps
    ledger.moved(orders, first=commits, others=commits)
    for step in count(steps.index("decided") + 1, EVERY):
        orders = world.orders(xid=world.xid("operated"), rolls_back=not commits, operator=operator, kill_at=step)
        ended = world.live(orders)
        if f"{FIRST}: forget called" not in ended.steps:
            assert world.in_doubt(FIRST) == {orders.xid.encode(): standing}
        if operator is not commits:
            expected[orders.xid.encode()] = {FIRST: standing}
        ledger.recover()
        ledger.moved(orders, first=operator, others=commits)
        ledger.check()
        assert world.conflicts() == expected
        if ended.status != KILLED:
            break
    assert (ended.status, ended.result) == (0, commits)


def test_an_operator_decides_while_there_is_no_coordinator(world: World, ledger: Ledger) -> None:
    """The coordinator is killed after all have prepared; the store shows the decision until it is forgotten."""
    steps = world.live(orders := world.orders(xid=world.xid("whole"))).steps
    ledger.moved(orders, first=True, others=True)
    for landmark, commits in (("rows: prepare durable", False), ("commit written", True)):
        for step in count(1, EVERY):
            orders = world.orders(xid=world.xid(landmark), kill_at=steps.index(landmark) + 1)
            xid = orders.xid.encode()
            assert world.live(orders).status == KILLED
            with world.store(FIRST) as store:
                store.transactions.of(xid).decide(1, commit=not commits)
                store.kick()
            standing = Standing.ROLLED_BACK if commits else Standing.COMMITTED
            assert world.in_doubt(FIRST) == {xid: standing}
            recovery = world.live(world.orders(kill_at=step))
            ledger.recover()
            ledger.moved(orders, first=not commits, others=commits)
            ledger.check()
            assert world.conflicts()[xid] == {FIRST: standing}
            if recovery.status != KILLED:
                break
        assert f"{FIRST}: forget called" in recovery.steps
