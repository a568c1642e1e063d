"""Tests of transactions of clients in a cluster: all members apply them completely, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from cairnmq.cluster.group.member_id import MemberId
from cairnmq.cluster.kernel.commit_tracker import CommitTracker
from cairnmq.cluster.kernel.control_messages import ControlMessage
from cairnmq.cluster.replication.message_handler import MessageHandler
from cairnmq.cluster.replication.replica import Replica
from cairnmq.cluster.replication.transactions import TransactionHandler
from tests.harness.cluster.cluster_harness import ACCEPT, REJECT, RELEASE, ClusterHarness, Receiver, Sender
from tests.harness.cluster.simulated_transactions import Attempt, halves
from tests.harness.cluster.transaction_client import Transactor

ROLLBACK = "amqp:transaction:rollback"


def started(size: int = 3) -> ClusterHarness:
    """Return a cluster with the queues q, r and dead, which is the dead-letter address of q."""
    harness = ClusterHarness(size).start()
    done: list[Any] = []
    nodes = harness[1].broker.nodes
    harness[1].do(nodes.create_queue, "dead", {}, done.append)
    harness[1].do(nodes.create_queue, "q", {"dead-letter-address": "dead"}, done.append)
    harness[1].do(nodes.create_queue, "r", {}, done.append)
    assert harness.until(lambda: len(done) == 3)
    return harness


def filled(harness: ClusterHarness, numbers: range) -> None:
    sender = Sender(harness[2])
    harness.run(0.1)
    sender.send(numbers)
    assert harness.until(lambda: len(sender.confirmed) == len(numbers))


def begun(harness: ClusterHarness, node: int = 1) -> Transactor:
    """Return a client of *node* with a declared transaction."""
    client = Transactor(harness[node])
    assert harness.until(lambda: client.is_ready)
    client.declare()
    assert harness.until(lambda: bool(client.control.declared_ids))
    return client


def took(harness: ClusterHarness, client: Transactor, count: int, *, settled: bool = False) -> list[int]:
    """Accept *count* messages of q in the client's transaction, and return their numbers."""
    client.request("q", count)
    assert harness.until(lambda: len(client.receivers["q"].unsettled) >= count)
    numbers = [*client.receivers["q"].unsettled][:count]
    client.take("q", numbers, settled=settled)
    harness.run(0.05)
    return numbers


def numbers_on(harness: ClusterHarness, name: str) -> list[int]:
    assert harness.same_everywhere(name)
    member = next(member for member in harness.members.values() if member.serves)
    return [number for _, number in member.contents(name)]


def discharged(client: Transactor) -> int:
    """Commit before any more events are received, and return the number of the request."""
    client.at_once()
    asked = client.discharge()
    assert client.member.broker.transactions.under_way
    return asked


def test_a_commit_is_everywhere_when_it_is_confirmed() -> None:  # D53, D63
    harness = started()
    filled(harness, range(10))
    client = begun(harness)
    took(harness, client, 3)
    client.send("q", [100, 101], size_bytes=1000)
    client.send("r", [102], size_bytes=200_000)
    client.send("r", [103], durable=False)
    harness.run(0.2)
    assert numbers_on(harness, "q") == [*range(10)]
    assert numbers_on(harness, "r") == []
    asked = client.discharge()
    assert harness.until(lambda: asked in client.control.confirmed)
    harness.run(0.2)
    assert numbers_on(harness, "q") == [*range(3, 10), 100, 101]
    assert numbers_on(harness, "r") == [102, 103]
    assert client.receivers["q"].unsettled == {}
    other = Receiver(harness[3], "r")
    harness.run(0.1)
    other.request(10)
    assert harness.until(lambda: [number for number, _ in other.order] == [102, 103])
    assert all(not member.broker.transactions.taken for member in harness.members.values())


def test_a_rollback_leaves_nothing() -> None:  # D53
    harness = started()
    filled(harness, range(4))
    client = begun(harness)
    took(harness, client, 2, settled=True)
    client.send("r", [100])
    asked = client.discharge(fail=True)
    assert harness.until(lambda: asked in client.control.confirmed)
    harness.run(0.2)
    assert numbers_on(harness, "q") == [0, 1, 2, 3]
    assert numbers_on(harness, "r") == []
    other = Receiver(harness[2])
    client.leave()
    harness.run(0.2)
    other.request(10)
    assert harness.until(lambda: other.order == [(0, True), (1, True), (2, False), (3, False)]), other.order


@pytest.mark.parametrize("settled", [False, True])
def test_who_leaves_rolls_back(settled: bool) -> None:  # D6, D53
    harness = started()
    filled(harness, range(4))
    client = begun(harness)
    took(harness, client, 2, settled=settled)
    client.send("r", [100])
    client.leave(lost=True)
    other = Receiver(harness[3])
    harness.run(0.3)
    other.request(10)
    assert harness.until(lambda: sorted(number for number, _ in other.order) == [0, 1, 2, 3])
    assert numbers_on(harness, "r") == []


def test_what_it_takes_stays_its_own_while_the_queue_is_owned_elsewhere() -> None:  # D10, D12, D53
    harness = started()
    filled(harness, range(10))
    client = begun(harness)
    numbers = took(harness, client, 3)
    other = Receiver(harness[3])
    harness.run(0.1)
    other.request(100)
    assert harness.until(lambda: len(other.order) == 7), other.order
    me = harness[1].core.state.me
    assert [harness[2].core.owners.replicas["q"].acquired.get(at) for at in (1, 2, 3)] == [me, me, me]
    asked = client.discharge()
    assert harness.until(lambda: asked in client.control.confirmed)
    harness.run(0.2)
    assert sorted(numbers_on(harness, "q")) == [*range(3, 10)]
    assert not {*numbers} & {number for number, _ in other.order}


def test_a_member_that_dies_takes_its_transactions_along() -> None:  # D6, D53
    harness = started()
    filled(harness, range(5))
    client = begun(harness)
    took(harness, client, 3)
    client.send("r", [100])
    harness.run(0.1)
    harness[1].kill()
    other = Receiver(harness[2])
    harness.run(0.5)
    other.request(10)
    assert harness.until(lambda: sorted(number for number, _ in other.order) == [0, 1, 2, 3, 4])
    assert numbers_on(harness, "r") == []


def test_what_only_its_sender_heard_is_not_confirmed() -> None:  # D1, D3, D53
    harness = started()
    filled(harness, range(5))
    client = begun(harness)
    took(harness, client, 3)
    client.send("r", [100])
    harness.run(0.1)
    harness.network.cut_egress(1)
    asked = client.discharge()
    harness.run(3)
    assert asked not in client.control.confirmed
    assert asked not in client.control.rejected
    assert client.connection.expelled
    client.leave(lost=True)
    harness.network.heal()
    assert harness.until(lambda: all(member.serves for member in harness.members.values())), harness.reason()
    harness.run(0.3)
    assert numbers_on(harness, "q") == [0, 1, 2, 3, 4]
    assert numbers_on(harness, "r") == []
    assert all(not member.broker.transactions.under_way for member in harness.members.values())
    assert all(not member.broker.transactions.taken for member in harness.members.values())


def test_submitted_transaction_is_undone_each_time_its_member_loses_the_cluster() -> None:  # D53
    harness = started()
    filled(harness, range(5))
    for _ in range(2):
        client = begun(harness)
        took(harness, client, 3)
        harness.network.cut_egress(1)
        client.discharge()
        harness.run(3)
        assert client.connection.expelled
        client.leave(lost=True)
        harness.network.heal()
        assert harness.until(lambda: all(member.serves for member in harness.members.values())), harness.reason()
        harness.run(0.3)
        assert not harness[1].broker.transactions.taken
        assert not harness[1].broker.transactions.under_way
        assert numbers_on(harness, "q") == [0, 1, 2, 3, 4]


def test_a_member_without_a_majority_rolls_back_what_is_open() -> None:  # D53
    harness = started()
    filled(harness, range(5))
    client = begun(harness)
    took(harness, client, 3)
    harness.network.partition([1], [2, 3])
    assert harness.until(lambda: bool(client.connection.expelled))
    assert not [*harness[1].broker.transactions.open()]
    client.leave(lost=True)
    other = Receiver(harness[2])
    harness.run(0.5)
    other.request(10)
    assert harness.until(lambda: sorted(number for number, _ in other.order) == [0, 1, 2, 3, 4])
    harness.network.heal()
    assert harness.until(lambda: harness[1].serves), harness.reason()
    harness.run(0.5)
    assert sorted(numbers_on(harness, "q")) == [0, 1, 2, 3, 4]


def test_a_queue_that_goes_before_rolls_it_back_everywhere() -> None:  # D49, D53
    harness = started()
    filled(harness, range(5))
    client = begun(harness)
    took(harness, client, 3)
    client.send("r", [100])
    harness.run(0.1)
    done: list[Any] = []
    nodes = harness[2].broker.nodes
    harness[2].do(nodes.delete_queue, nodes.queues["r"], done.append)
    harness[2].settle()  # multicast, but not received by node 1 yet
    asked = discharged(client)
    assert harness.until(lambda: asked in client.control.rejected)
    assert client.control.rejected[asked] == ROLLBACK
    harness.run(0.2)
    assert numbers_on(harness, "q") == [0, 1, 2, 3, 4]
    assert done == [None]


def test_what_was_purged_meanwhile_rolls_it_back_everywhere() -> None:  # D53, D54, D61
    harness = started()
    filled(harness, range(10))
    client = begun(harness)
    done: list[Any] = []
    harness[2].do(harness[2].broker.nodes.queues["q"].order.purge, done.append, "")
    harness[2].settle()
    harness[1].core.step()  # it receives the request, and multicasts the purge
    client.at_once()
    client.request("q", 3)
    harness[1].broker.nodes.queues["q"].dispatch()
    client.take("q", [0, 1, 2])
    client.send("r", [100])
    asked = discharged(client)
    assert harness.until(lambda: bool(done))
    assert harness.until(lambda: asked in client.control.rejected)
    assert client.control.rejected[asked] == ROLLBACK
    harness.run(0.2)
    assert numbers_on(harness, "q") == []
    assert numbers_on(harness, "r") == []


@pytest.mark.parametrize("settled", [False, True])
def test_purge_leaves_what_was_taken_in_a_transaction_before_it_was_heard(settled: bool) -> None:  # D53, D54
    harness = started()
    filled(harness, range(10))
    client = begun(harness)
    took(harness, client, 3, settled=settled)
    client.send("r", [100])
    harness.run(0.2)
    client.at_once()
    harness[1].core.purges.wished(ControlMessage(MemberId(0, 0, 0), 0, {"queue": "q", "by": [0, 0, 0], "number": 0}))
    asked = discharged(client)
    assert harness.until(lambda: asked in client.control.confirmed)
    harness.run(0.2)
    assert not [failure for member in harness.members.values() for failure in member.failures]
    assert numbers_on(harness, "q") == []
    assert numbers_on(harness, "r") == [100]
    assert [member.core.owners.replicas["q"].queue.messages for member in harness.members.values()] == [0, 0, 0]


def test_what_is_rejected_in_it_is_moved_with_it() -> None:  # D5, D53
    harness = started()
    filled(harness, range(5))
    client = begun(harness)
    client.request("q", 4)
    assert harness.until(lambda: len(client.receivers["q"].unsettled) == 4)
    client.take("q", [0], REJECT)
    client.take("q", [1], REJECT, settled=True)
    client.take("q", [2], RELEASE)
    client.take("q", [3], ACCEPT)
    client.send("r", [100])
    asked = client.discharge()
    assert harness.until(lambda: asked in client.control.confirmed)
    harness.run(0.2)
    assert numbers_on(harness, "q") == [2, 4]
    assert numbers_on(harness, "dead") == [0, 1]
    assert numbers_on(harness, "r") == [100]


@pytest.mark.parametrize("wait_s", [0.02, 0.1, 0.4])
def test_a_newcomer_has_all_of_it_or_nothing(wait_s: float) -> None:  # D18, D20, D53
    harness = started()
    filled(harness, range(200))
    harness[3].kill()
    client = begun(harness)
    took(harness, client, 50)
    client.send("q", [*range(300, 350)], size_bytes=5000)
    client.send("r", [*range(400, 450)])
    harness[3].start()
    harness.run(wait_s)
    asked = client.discharge()
    assert harness.until(lambda: asked in client.control.confirmed)
    assert harness.until(lambda: harness[3].serves), harness.reason()
    harness.run(0.3)
    assert numbers_on(harness, "q") == [*range(50, 200), *range(300, 350)]
    assert numbers_on(harness, "r") == [*range(400, 450)]


def test_distributed_ones_are_refused() -> None:  # D63
    harness = started()
    client = Transactor(harness[1])
    assert harness.until(lambda: client.is_ready)
    asked = client.declare(b"xid")
    assert harness.until(lambda: asked in client.control.rejected)
    assert client.control.rejected[asked] == "amqp:not-implemented"
    assert "declare a local one" in client.control.why_rejected[asked]


def test_a_store_with_a_transaction_in_doubt_is_no_members() -> None:  # D63
    """The outcome of such a transaction would exist on this member only."""
    harness = started(1)
    member = harness[1]
    inner = member.store.transactions.begin(0, xid=b"xid")
    inner.put(member.broker.nodes.queues["q"].queue_id, b"content", 0)
    member.do(inner.prepare, 0)
    harness.run(0.1)
    member.kill()
    member.start()
    assert harness.until(lambda: bool(member.failures))
    assert "in doubt" in str(member.failures[0])
    assert not member.serves


def test_it_is_not_about_two_stores() -> None:  # D53, D67
    harness = started()
    done: list[Any] = []
    harness[1].do(harness[1].broker.nodes.create_queue, "own", {"replicated": False}, done.append)
    assert harness.until(lambda: bool(done))
    client = Transactor(harness[1], ("q", "own"))
    assert harness.until(lambda: client.is_ready)
    for number, names in enumerate((("own", "q"), ("own",), ("q",))):
        client.declare()
        harness.run(0.1)
        for name in names:
            client.send(name, [number])
        asked = client.discharge()
        harness.run(0.3)
        assert (asked in client.control.confirmed) == (len(names) == 1), names
        assert (asked in client.control.rejected) == (len(names) == 2), names
    assert client.control.rejected.popitem()[1] == ROLLBACK
    assert numbers_on(harness, "q") == [2]
    assert harness[1].broker.nodes.queues["own"].messages == 1


def test_what_does_not_last_goes_with_it() -> None:  # D53
    """One transaction accepts messages, and sends a transient one to a queue that is not replicated."""
    harness = started()
    made: list[Any] = []
    harness[1].do(lambda: made.append(harness[1].broker.nodes.add_queue("answers", {})))
    filled(harness, range(3))
    client = Transactor(harness[1], ("q", "answers"))
    assert harness.until(lambda: client.is_ready)
    client.declare()
    assert harness.until(lambda: bool(client.control.declared_ids))
    took(harness, client, 2)
    client.send("answers", [7], durable=False)
    harness.run(0.1)
    assert made[0].messages == 0
    asked = client.discharge()
    assert harness.until(lambda: asked in client.control.confirmed)
    assert made[0].messages == 1
    assert numbers_on(harness, "q") == [2]


def test_where_a_dead_letter_does_not_last_it_stays_as_long_as_that_queue_says() -> None:
    harness = started()
    made: list[Any] = []
    harness[1].do(lambda: made.append(harness[1].broker.nodes.add_queue("dead here", {"message-ttl-ms": 5000})))
    queue = harness[1].broker.nodes.queues["q"]
    harness[1].do(harness[1].broker.nodes.change_queue, queue, {"dead-letter-address": "dead here"}, made.append)
    assert harness.until(lambda: len(made) == 2)
    assert made[1] is None
    filled(harness, range(1))
    client = begun(harness)
    client.request("q", 1)
    assert harness.until(lambda: bool(client.receivers["q"].unsettled))
    client.take("q", [0], REJECT)
    client.discharge()
    assert harness.until(lambda: made[0].messages == 1)
    harness.run(4)
    assert made[0].messages == 1
    assert harness.until(lambda: made[0].messages == 0, 5)


def test_what_is_heard_of_it_takes_its_room_once() -> None:
    """Until others have its messages, they count on their queue, and the commit is not confirmed."""
    harness = started()
    made: list[Any] = []
    limits = {"max-messages": 5, "overflow": "reject"}
    harness[1].do(harness[1].broker.nodes.change_queue, harness[1].broker.nodes.queues["q"], limits, made.append)
    assert harness.until(lambda: made == [None])
    client = begun(harness)
    client.send("q", range(3))
    harness.run(0.1)
    sender = Sender(harness[1])
    harness.run(0.1)
    for node in (2, 3):
        harness[node].is_disk_slow = True
    asked = client.discharge()
    assert harness.until(lambda: harness[1].broker.nodes.queues["q"].messages == 3)
    assert asked not in client.control.confirmed
    sender.send([10])
    harness.run(0.1)
    sender.send([11])
    assert harness.until(lambda: harness[1].broker.nodes.queues["q"].messages == 5), sender.rejected
    sender.send([12])
    assert harness.until(lambda: 12 in sender.rejected)
    for node in (2, 3):
        harness[node].hurry_disk()
    assert harness.until(lambda: asked in client.control.confirmed)
    assert numbers_on(harness, "q") == [0, 1, 2, 10, 11]


def test_alone_in_a_cluster() -> None:  # D53
    harness = started(1)
    filled_by = Sender(harness[1])
    harness.run(0.1)
    filled_by.send(range(4))
    assert harness.until(lambda: len(filled_by.confirmed) == 4)
    client = begun(harness)
    took(harness, client, 2)
    client.send("r", [100, 101])
    asked = client.discharge()
    assert harness.until(lambda: asked in client.control.confirmed)
    assert numbers_on(harness, "q") == [2, 3]
    assert numbers_on(harness, "r") == [100, 101]


def attempt(*puts: int, takes: tuple[int, ...] = (), done: bool | None = None) -> Attempt:
    made = Attempt()
    made.puts, made.takes, made.done = {*puts}, dict.fromkeys(takes, ACCEPT), done
    return made


@pytest.mark.parametrize(
    ("made", "seen", "there", "is_half"),
    [
        (attempt(1, 2, takes=(3,)), {1, 2}, {1, 2}, False),
        (attempt(1, 2, takes=(3,)), {3}, {3}, False),
        (attempt(1, 2), {1}, {1}, True),
        (attempt(1, 2, takes=(3,)), {1, 2, 3}, {1, 2, 3}, True),
        (attempt(1, 2, takes=(3,)), set(), set(), True),
        (attempt(1, 2, done=False), {2}, set(), True),
        (attempt(1, 2, done=False), set(), set(), False),
    ],
)
def test_what_half_a_transaction_is(made: Attempt, seen: set[int], there: set[int], is_half: bool) -> None:
    """The check of the simulation detects transactions that are applied partially."""
    assert bool(halves([made], seen, there, Counter({3: 1}))) == is_half


# ---- seeded defects -------------------------------------------------------------------------------------------------


def does_what_it_can(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionHandler, "_is_possible", lambda self, sender, part: True)


def believes_its_own_hearing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitTracker, "_is_safe", lambda self, waiting: self.done > waiting.position)


def forgets_what_was_purged(patch: pytest.MonkeyPatch) -> None:
    has = MessageHandler.has

    def has_all(self: MessageHandler, replica: Replica, sender: MemberId, position: int) -> bool:
        replica.purged_below = 0
        return has(self, replica, sender, position)

    patch.setattr(MessageHandler, "has", has_all)


DEFECTS = (
    (does_what_it_can, test_a_queue_that_goes_before_rolls_it_back_everywhere),
    (believes_its_own_hearing, test_what_only_its_sender_heard_is_not_confirmed),
    (forgets_what_was_purged, test_what_was_purged_meanwhile_rolls_it_back_everywhere),
)


@pytest.mark.parametrize(("defect", "law"), DEFECTS, ids=lambda one: one.__name__)
def test_a_defect_breaks_a_law(
    defect: Callable[[pytest.MonkeyPatch], None], law: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test fails with the seeded defect; a test that no defect breaks proves nothing."""
    defect(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        law()
