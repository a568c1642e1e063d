"""Tests of duplicate detection by message ID across crashes, with a broker in one thread on a disk in memory.

Property: after a crash, the ID of each message that was confirmed to its sender is known. A message that was not
confirmed may be stored or not, but it is on the queue after it is sent again.
"""

from __future__ import annotations

from typing import Any

import pytest
from proton import Message

from cairnmq.amqp.native.proton_ffi import ACCEPTED, REJECTED
from cairnmq.broker.queues.deduplication import PREFIX
from cairnmq.broker.queues.queue_lifetime import LifetimeEvent
from tests.harness.broker.policies import Policed, policed
from tests.harness.broker.world import FakeTerminal

__all__ = ["policed"]

KEY = "k" * 30_000
"""An ID suffix so long that some blocks end between a message and its ID."""


def numbered(number: int, *, durable: bool = True) -> bytes:
    return bytes(Message(body="x" * 1000, durable=durable, id=f"{number}{KEY}").encode())


def post(policed: Policed, terminal: FakeTerminal, number: int) -> None:
    """Deliver a message to the broker without finishing the step of the core, so that it does not flush yet."""
    terminal.driver.receive([(number, numbered(number), 0)])


def write_full_blocks(policed: Policed) -> None:
    """Write full blocks to the disk while the next block is filled, as a fast writer thread does."""
    policed.world._durable(policed.world.store.journal.writer.write_out())


def resend(policed: Policed, numbers: range) -> list[int]:
    """Send the messages again, and return the numbers of the messages on the queue afterwards."""
    sender = policed.world.open(to_client=False)
    for number in numbers:
        policed.world.send(sender, (number, numbered(number), 0))
    assert sorted(sender.confirmed) == list(numbers)
    return [int(message.id.removesuffix(KEY)) for message in policed.take("q")]


def test_each_crash_keeps_what_was_confirmed_by_then() -> None:
    """Confirmed IDs survive a crash after any message, also if a block ends between a message and its long ID."""
    for crash_after in range(1, 30):
        life = Policed()
        life.make("q", duplicate_window=1000)
        sender = life.world.open(to_client=False)
        for number in range(crash_after):
            post(life, sender, number)
            write_full_blocks(life)
        confirmed = {*sender.confirmed}
        life.restart()
        assert confirmed <= set(taken := [int(message.id.removesuffix(KEY)) for message in life.take("q")])
        again = resend(life, range(crash_after))
        assert confirmed.isdisjoint(again), "what was confirmed came twice"
        assert {*taken, *again} == {*range(crash_after)}, "an id was remembered, and its message not there"


def test_the_id_of_a_message_that_is_not_stored_is_not_remembered_behind_it(policed: Policed) -> None:
    """After a crash, a resent transient message is stored, instead of being accepted as a duplicate of a lost one."""
    policed.make("q", duplicate_window=10)
    policed.send("q", "gone with the broker", durable=False, id=1)
    assert policed.send("q", "again", durable=False, id=1) == "accepted"
    policed.send("q", "stored", id=2)
    assert policed.world.queue().messages == 2
    policed.restart()
    policed.send("q", "sent again", durable=False, id=1)
    policed.send("q", "and again", id=2)
    assert sorted(policed.bodies("q")) == ["sent again", "stored"]


def test_ids_are_kept_from_the_first_message_on(policed: Policed) -> None:
    """No message is accepted before its ID can be stored, even if it arrives as soon as the queue is created."""
    sender: list[FakeTerminal] = []

    def made(queue: Any) -> None:
        sender.append(policed.world.open(to_client=False))
        sender[0].driver.receive([(1, numbered(1), 0)])

    policed.world.broker.nodes.create_queue("q", {"duplicate-window": 5}, made)
    while not sender or 1 not in sender[0].confirmed:
        policed.world.step()
    policed.restart()
    assert len(policed.take("q")) == 1
    assert resend(policed, range(1, 2)) == []


def test_ids_that_an_earlier_queue_left_do_not_count(policed: Policed) -> None:
    policed.make("q", duplicate_window=5)
    policed.send("q", "old", id=1)
    kept = policed.world.queue(PREFIX + "q")
    kept.change_lifetime(LifetimeEvent.DELETE)  # a deletion of the ID queue is in progress, and fails later
    policed.world.do(policed.world.broker.nodes.delete_queue, policed.world.queue(), lambda error: None)
    kept.change_lifetime(LifetimeEvent.NOT_DELETED)
    assert list(policed.world.broker.nodes.queues) == [PREFIX + "q"]
    policed.senders.clear()
    policed.make("q", duplicate_window=5)
    policed.send("q", "new", id=1)
    policed.restart()
    assert policed.bodies("q") == ["new"]


def test_what_comes_back_is_remembered_as_long_as_the_newest(policed: Policed) -> None:
    policed.make("q", duplicate_window=3, dead_letter_address="q")
    policed.send("q", "a", id="a")
    policed.send("q", "b", id="b")
    taker = policed.open("q", 1)
    policed.world.settle(taker, taker.forwarded[0][0], REJECTED)  # it is moved to its own queue
    policed.world.do(taker.driver.close, (), False, False)
    policed.send("q", "c", id="c")
    for life in ("the same", "another"):
        for key in "abc":
            policed.send("q", "again", id=key)
        assert policed.world.queue().messages == 3, life
        policed.restart()
    policed.send("q", "d", id="d")
    policed.send("q", "forgotten", id="b")
    assert sorted(message.body for message in policed.take("q")) == ["a", "b", "c", "d", "forgotten"]
    assert policed.world.queue(PREFIX + "q").messages == 3


@pytest.mark.parametrize("overflow", ["reject", "drop", "ring"])
def test_a_full_queue_knows_what_it_has_taken(policed: Policed, overflow: str) -> None:
    """A full queue accepts duplicates of stored messages, as a rejection would make clients consider them lost."""
    policed.make("q", duplicate_window=5, max_messages=2, overflow=overflow)
    assert [policed.send("q", number, id=number) for number in (1, 2, 1, 2)] == ["accepted"] * 4
    assert policed.bodies("q") == [1, 2]


def test_a_transactions_ids_are_kept_with_its_commit(policed: Policed) -> None:
    policed.make("q", duplicate_window=5)
    taker = policed.open("q")
    policed.send("q", "first", id=1)
    policed.world.settle(taker, taker.forwarded[0][0], ACCEPTED)
    policed.restart()
    policed.send("q", "again", id=1)
    assert policed.bodies("q") == []
