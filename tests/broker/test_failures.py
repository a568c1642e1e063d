"""Tests of failure counts across restarts and crashes, with a broker in one thread on a disk in memory.

* A message is dead-lettered after as many failures as its queue allows, over any number of runs of the broker.
* Each kill while a message is acquired, or its failure not written, causes at most one additional delivery.
* A count never exceeds the number of failures, and is deleted when its message leaves the queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from cairnmq.amqp.native.proton_ffi import ACCEPTED, MODIFIED, REJECTED, RELEASED
from cairnmq.amqp.ports import Outcome
from tests.harness.broker.failure_counts import COUNTS, counts, fail, policed
from tests.harness.broker.policies import Policed, decoded
from tests.harness.broker.transacting import Transacting
from tests.harness.broker.world import FakeTerminal
from tests.harness.thorough import amount

__all__ = ["policed"]

SHAPES: dict[str, dict[str, Any]] = {
    "plain": {}, "sorted": {"priorities": True}, "groups": {"message_groups": True}, "times": {"message_ttl_ms": 10**9},
}  # fmt: skip
shapes = pytest.mark.parametrize("shape", SHAPES)


@shapes
@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_a_limit_holds_over_all_lives(policed: Policed, shape: str, most: int) -> None:
    """The delivery limit holds with a restart before each failure; releases do not count."""
    policed.make("dead")
    policed.make("q", max_deliveries=most, dead_letter_address="dead", **SHAPES[shape])
    policed.send("q", "poison", group_id="a")
    for number in range(most):
        policed.restart()
        policed.world.step()
        taker = policed.open("q")
        policed.world.settle(taker, taker.forwarded[-1][0], RELEASED)
        message = decoded(taker.forwarded[-1][1])
        assert not message.first_acquirer
        assert message.delivery_count == max(1, number)
        fail(policed, taker)
        assert policed.world.queue().messages == (number < most - 1)
    [message] = policed.take("dead")
    assert (message.body, message.delivery_count) == ("poison", most)
    assert counts(policed) == []


def test_what_was_there_is_marked_and_has_not_failed(policed: Policed) -> None:
    """A recovered message is marked as possibly delivered before, on all queues, but this is not a failure."""
    policed.make("q", max_deliveries=2)
    policed.make("plain")
    for name in ("q", "plain"):
        policed.send(name, "good")
    takers: dict[str, FakeTerminal] = {}
    for _ in range(5):
        policed.restart()
        for name in ("q", "plain"):
            takers[name] = policed.open(name)
            message = decoded(takers[name].forwarded[0][1])
            assert (message.first_acquirer, message.delivery_count) == (False, 1)
    fail(policed, takers["q"])
    policed.restart()
    assert policed.bodies("q") == ["good"]


@pytest.mark.parametrize("seed", range(amount("CAIRN_FAILURES", 30, 6)))
def test_messages_fail_as_often_as_they_may_and_no_less(seed: int) -> None:
    """In random histories, messages are dead-lettered at the limit; only kills and releases add deliveries."""
    draw = Random(seed)
    policed, most, sent = Policed(draw.choice([3000, 1 << 20])), draw.randrange(1, 5), 12
    policed.make("dead")
    policed.make("q", max_deliveries=most, dead_letter_address="dead", **SHAPES[draw.choice([*SHAPES])])
    for number in range(sent):
        policed.send("q", f"{number} {'x' * 300}")
    failures, handed_out, killed = Counter[str](), Counter[str](), Counter[str]()
    dead: set[str] = set()
    taker, seen, held = policed.open("q", draw.randrange(1, 9)), 0, dict[str, Any]()
    while len(dead) < sent:
        policed.world.read_all()
        for tag, content in taker.forwarded[seen:]:
            body = str(decoded(content).body)
            held[body] = tag
            handed_out[body] += 1
        seen = len(taker.forwarded)
        what = draw.randrange(12)
        if what == 0:
            killed.update([*held])
            policed.restart()
        elif what == 1 and held:  # a lost connection
            failures.update([*held])
            policed.world.do(taker.driver.close, [*held.values()], True, False)
        elif held:
            bodies = draw.sample([*held], draw.randrange(1, len(held) + 1))
            failed = draw.random() < 0.8
            failures.update(bodies if failed else ())
            killed.update(() if failed else bodies)
            outcomes = [Outcome(None, held.pop(body), MODIFIED, failed, False) for body in bodies]
            policed.world.do(taker.driver.outcomes, outcomes)
        else:
            policed.world.do(taker.driver.request, seen + draw.randrange(1, 5), False)
        if what < 2:
            taker, seen, held = policed.open("q", draw.randrange(1, 9)), 0, {}
        policed.world.read_all()
        dead |= {str(message.body) for message in policed.take("dead")}
        assert dead == {body for body, count in failures.items() if count >= most}
    assert {*failures.values()} == {most}
    assert all(handed_out[body] <= most + killed[body] for body in handed_out)
    assert counts(policed) == []
    assert policed.world.store.messages() == {}


# ---- ends of messages -----------------------------------------------------------------------------------------------


def accept(policed: Transacting, taker: FakeTerminal) -> None:
    policed.world.settle(taker, taker.forwarded[-1][0], ACCEPTED)


def reject(policed: Transacting, taker: FakeTerminal) -> None:
    policed.world.settle(taker, taker.forwarded[-1][0], REJECTED)


def fail_often(policed: Transacting, taker: FakeTerminal) -> None:
    for _ in range(8):
        fail(policed, taker)


def expire(policed: Transacting, taker: FakeTerminal) -> None:
    policed.world.do(taker.driver.close, [taker.forwarded[-1][0]], False, False)
    policed.world.advance(100)


def take_settled(policed: Transacting, taker: FakeTerminal) -> None:
    policed.world.do(taker.driver.close, [taker.forwarded[-1][0]], False, False)
    other = policed.world.open(to_client=True, presettled=True)
    policed.world.do(other.driver.request, 1, False)
    policed.world.read_all()


def take_in_a_transaction(policed: Transacting, taker: FakeTerminal) -> None:
    txn_id = policed.declare()
    policed.retire(txn_id, taker, -1, ACCEPTED)
    assert counts(policed) == [1], "nothing is decided"
    assert policed.discharge(txn_id) == ""


def overflow(policed: Transacting, taker: FakeTerminal) -> None:
    policed.world.do(taker.driver.close, [taker.forwarded[-1][0]], False, False)
    for number in range(5):
        policed.send("q", number)


def move(policed: Transacting, taker: FakeTerminal) -> None:
    policed.world.do(taker.driver.close, [taker.forwarded[-1][0]], False, False)
    queue, dead = policed.world.queue(), policed.world.queue("dead")

    def moved() -> None:
        entry = queue.contents.order.take_oldest()
        assert entry is not None
        policed.world.broker.returns.move(queue, entry, dead, entry.complete(), lambda: None)

    policed.world.do(moved)


def purge(policed: Transacting, taker: FakeTerminal) -> None:
    policed.world.do(taker.driver.close, [taker.forwarded[-1][0]], False, False)
    policed.world.do(policed.world.queue().order.purge, lambda count: None, "")


WAYS: dict[str, tuple[Callable[[Transacting, FakeTerminal], None], dict[str, Any]]] = {
    "accepted": (accept, {}),
    "rejected": (reject, {}),
    "rejected to nowhere": (reject, {"dead_letter_address": ""}),
    "dead-lettered": (fail_often, {}),
    "failed to nowhere": (fail_often, {"dead_letter_address": ""}),
    "expired": (expire, {"message_ttl_ms": 10_000}),
    "expired and moved": (expire, {"message_ttl_ms": 10_000, "expiry_address": "dead"}),
    "taken for good": (take_settled, {}),
    "in a transaction": (take_in_a_transaction, {}),
    "too much for a ring": (overflow, {"max_messages": 3, "overflow": "ring"}),
    "replaced": (overflow, {"last_value_key": "subject"}),
    "moved": (move, {}),
    "purged": (purge, {}),
    "purged and sorted": (purge, {"priorities": True}),
}


@pytest.mark.parametrize("lives", [1, 2], ids=["one life", "two lives"])
@pytest.mark.parametrize("way", WAYS)
def test_a_count_goes_with_its_message(policed: Transacting, way: str, lives: int) -> None:
    end, policy = WAYS[way]
    policed.make("dead")
    policed.make("q", **{"max_deliveries": 9, "dead_letter_address": "dead", **policy})
    policed.send("q", "poison", subject="s")
    taker = policed.open("q")
    fail(policed, taker)
    assert counts(policed) == [1]
    if lives == 2:
        policed.restart()
        policed.control = policed.world.open(
            to_client=False, connection=policed.connection, coordinator=True, address=None
        )
        taker = policed.open("q")
        assert counts(policed) == [1]
    if way == "replaced":
        policed.world.do(taker.driver.close, [taker.forwarded[-1][0]], False, False)
        policed.send("q", "newer", subject="s")
    else:
        end(policed, taker)
    policed.world.read_all()
    policed.world.step()
    assert counts(policed) == []
    policed.restart()
    assert counts(policed) == []
    assert "poison" not in policed.bodies("q")


def test_what_somebody_has_keeps_its_count_when_the_queue_is_purged(policed: Policed) -> None:
    policed.make("q", max_deliveries=4)
    for number in range(3):
        policed.send("q", number)
    taker = policed.open("q")
    for number in range(3):
        fail(policed, taker, number)
    policed.world.do(taker.driver.close, [tag for tag, _ in taker.forwarded[4:]], False, False)
    assert counts(policed) == [1, 1, 1]
    policed.world.do(policed.world.queue().order.purge, lambda count: None, "")
    assert counts(policed) == [1]
    policed.world.do(taker.driver.outcomes, [Outcome(None, taker.forwarded[3][0], MODIFIED, True, False)])
    assert counts(policed) == [2]


def test_counts_go_with_their_queue(policed: Policed) -> None:
    broker = policed.world.broker
    policed.make("q", max_deliveries=4)
    policed.send("q", "old")
    fail(policed, policed.open("q"))
    policed.world.do(broker.nodes.delete_queue, policed.world.queue(), lambda error: None)
    assert [*broker.nodes.queues] == []
    policed.senders.clear()
    policed.make("q", max_deliveries=4)
    policed.send("q", "new")
    fail(policed, policed.open("q"))
    assert counts(policed) == [1]
    policed.restart()
    assert len(policed.world.store.state) == 2


def test_a_queue_that_goes_while_its_counts_get_a_place_leaves_none(policed: Policed) -> None:
    policed.make("q", max_deliveries=4)
    policed.send("q", "a")
    taker, world = policed.open("q"), policed.world
    world._actions.append((taker.driver.outcomes, ([Outcome(None, taker.forwarded[0][0], MODIFIED, True, False)],)))
    world._actions.append((lambda: world.broker.nodes.delete_queue(world.queue(), lambda error: None), ()))
    world.step()
    assert [*world.broker.nodes.queues] == []
    assert len(world.store.state) == 0


@pytest.mark.parametrize("limited", [False, True], ids=["without a limit", "without its queue"])
def test_counts_that_nobody_heeds_go_at_the_next_start(policed: Policed, limited: bool) -> None:
    policed.make(COUNTS)
    policed.make("other" if limited else "q", **({"max_deliveries": 3} if limited else {}))
    policed.restart()
    policed.world.step()
    assert COUNTS not in policed.world.broker.nodes.queues
