"""Tests of queue limits in messages and bytes, with each overflow policy, for messages in one or several pieces.

Recovered messages and messages of transactions count like all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from proton import Message

from cairnmq.amqp.native.proton_ffi import ACCEPTED
from cairnmq.amqp.ports import MORE
from tests.harness.broker.policies import either
from tests.harness.broker.transacting import Transacting

ROOM = 3
"""The number of messages that fit on a queue."""
SIZES = {"short": 100, "long": 150_000}
PIECE_BYTES = 70_000


class Limited(Transacting):
    """Messages of one size, in one or several pieces, in transactions or not, and a queue `q` with room for three."""

    def __init__(self, size: str, by: str, overflow: str, **policy: Any) -> None:
        super().__init__()
        self.world.broker.core.memory.limit_bytes = 16 << 20
        self.body_bytes = SIZES[size]
        room = {"messages": ROOM, "bytes": ROOM * len(self.encoded(0, True)) + 40}[by]
        self.make("q", overflow=overflow, **{f"max_{by}": room}, **policy)

    def encoded(self, number: int, durable: bool, **fields: Any) -> bytes:
        return bytes(Message(body=str(number).rjust(self.body_bytes), durable=durable, **fields).encode())

    def put(self, number: int, durable: bool = True, txn_id: bytes = b"", **fields: Any) -> str:
        """Send one message; return "accepted", "unsettled", or the error condition of the rejection."""
        if "q" not in self.senders:
            self.senders["q"] = self.world.open(to_client=False)
        terminal, content = self.senders["q"], self.encoded(number, durable, **fields)
        self.number += 1
        ends = range(0, len(content), PIECE_BYTES)
        pieces = [
            (self.number, content[at : at + PIECE_BYTES], MORE if at + PIECE_BYTES < len(content) else 0) for at in ends
        ]
        if txn_id:
            self.world.do(terminal.driver.receive_in, self.connection, txn_id, pieces)
        else:
            self.world.send(terminal, *pieces)
        told = {one for _, one in terminal.accepted_in} if txn_id else {*terminal.confirmed}
        return terminal.rejected.get(self.number, "accepted" if self.number in told else "unsettled")

    def numbers(self, credit: int = 100) -> list[int]:
        """Consume all messages; return their numbers."""
        return [int(body) for body in (message.body for message in self.take("q", credit))]

    def look(self) -> Sequence[int]:
        """Return the numbers of the messages on the queue as a browser sees them."""
        looker = self.world.open(to_client=True, browse=True)
        self.world.do(looker.driver.request, 100, False)
        self.world.read_all()
        found = [int(self.decode(content).body) for _, content in looker.forwarded]
        self.world.do(looker.driver.close, (), False, False)
        return found

    @staticmethod
    def decode(content: Any) -> Message:
        message = Message()
        message.decode(content if isinstance(content, bytes) else b"".join(map(content.piece, range(content.pieces))))
        return message


REFUSED = "amqp:resource-limit-exceeded"
by = pytest.mark.parametrize("by", ["messages", "bytes"])
size = pytest.mark.parametrize("size", [*SIZES])


@either
@by
@size
@pytest.mark.parametrize("overflow", ["reject", "drop", "ring"])
def test_a_queue_never_has_more_than_it_may(size: str, by: str, overflow: str, durable: bool) -> None:
    queue = Limited(size, by, overflow)
    told = [queue.put(number, durable) for number in range(5)]
    assert told == ["accepted"] * ROOM + (["accepted"] if overflow != "reject" else [REFUSED]) * 2
    there = [2, 3, 4] if overflow == "ring" else [0, 1, 2]
    assert queue.look() == there
    if durable:
        queue.restart()
        assert queue.look() == there
    assert queue.put(5, durable) == (REFUSED if overflow == "reject" else "accepted")
    there = [3, 4, 5] if overflow == "ring" else there
    assert queue.numbers(credit=1) == there[:1]
    assert queue.put(6, durable) == "accepted"
    assert queue.numbers() == [*there[1:], 6]
    assert queue.world.queue().messages == 0
    gate = queue.world.queue().limits
    assert gate is not None
    assert gate.bytes == 0


@by
@size
@pytest.mark.parametrize("policy", [{}, {"priorities": True}], ids=["plain", "sorted"])
def test_ring_is_trimmed_after_a_crash_between_a_message_and_what_it_displaces(
    policy: dict[str, Any], size: str, by: str
) -> None:  # V3
    queue = Limited(size, by, "ring", **policy)
    assert [queue.put(number) for number in range(ROOM)] == ["accepted"] * ROOM
    sender, world = queue.senders["q"], queue.world
    confirmed = len(sender.confirmed)
    content = queue.encoded(ROOM, True)
    pieces = [content[at : at + PIECE_BYTES] for at in range(0, len(content), PIECE_BYTES)]
    fragments = [(99, piece, MORE if piece is not pieces[-1] else 0) for piece in pieces]
    world.begin_step(sender.driver.receive, fragments, until=lambda: len(sender.confirmed) > confirmed)
    assert queue.world.queue().messages == ROOM, "the message is durable, and its displaced one is taken off"
    for _ in range(2):
        queue.restart()
        world.step()
        world.read_all()  # a sorted queue reads its messages first
        assert queue.look() == [*range(1, ROOM + 1)]


@either
@by
@size
def test_where_it_blocks_credit_comes_back_when_there_is_room(size: str, by: str, durable: bool) -> None:
    queue = Limited(size, by, "block")
    assert [queue.put(number, durable) for number in range(ROOM + 1)] == ["accepted"] * (ROOM + 1)
    sender = queue.senders["q"]
    spent = 1000 - (sender.credit - (ROOM + 1))
    assert spent > 0, "the sender gets no credit back for what was too much"
    assert sender.granted == []
    taker = queue.open("q", ROOM)
    for tag, _ in taker.forwarded:
        queue.world.settle(taker, tag, ACCEPTED)
    assert sum(sender.granted) == spent
    if durable:
        for number in range(ROOM):
            queue.put(number)
        queue.restart()
        late = queue.world.open(to_client=False)
        assert late.credit == 0, "a sender that comes to a full queue waits"
        queue.numbers()
        assert sum(late.granted) > 0


@either
@by
@size
@pytest.mark.parametrize("overflow", ["reject", "drop", "ring", "block"])
def test_what_a_transaction_puts_counts(size: str, by: str, overflow: str, durable: bool) -> None:
    queue = Limited(size, by, overflow)
    txn_id = queue.declare()
    told = [queue.put(number, durable, txn_id) for number in range(ROOM + 1)]
    assert told[:ROOM] == ["accepted"] * ROOM
    assert told[ROOM] == (REFUSED if overflow == "reject" else "accepted")
    assert queue.discharge(txn_id) == ("amqp:transaction:rollback" if overflow == "reject" else "")
    there = {"reject": [], "drop": [0, 1, 2], "ring": [1, 2, 3], "block": [0, 1, 2, 3]}[overflow]
    if durable:
        queue.restart()
    assert queue.numbers() == there


@by
@size
def test_open_transactions_share_the_room(size: str, by: str) -> None:
    """Transactions reserve room on a queue until they end; a rollback frees the room, a commit uses it."""
    queue = Limited(size, by, "reject")
    lost, kept = queue.declare(), queue.declare()
    assert [queue.put(number, True, lost) for number in (1, 2)] == ["accepted"] * 2
    assert queue.put(3, True, kept) == "accepted"
    assert queue.put(4) == REFUSED
    assert queue.discharge(lost, fail=True) == ""
    assert queue.put(5) == "accepted"
    assert queue.discharge(kept) == ""
    assert queue.put(6) == "accepted"
    assert queue.put(7) == REFUSED
    assert sorted(queue.numbers()) == [3, 5, 6]


@size
@pytest.mark.parametrize("overflow", ["reject", "drop", "ring", "block"])
def test_what_can_never_be_there_is_refused(size: str, overflow: str) -> None:
    queue = Limited(size, "bytes", overflow)
    queue.put(1)
    queue.body_bytes *= 5
    assert queue.put(2) == REFUSED
    assert queue.look() == [1]
    assert not queue.world.broker.core.memory.used_bytes > 2 * SIZES["long"], "nothing is kept of it"


@size
@pytest.mark.parametrize(("durable", "most_bytes"), [(True, 50), (False, 50), (False, 0)])
def test_what_is_too_long_is_refused_alike_in_a_transaction(size: str, durable: bool, most_bytes: int) -> None:
    """A message that is too long for its queue or the broker is rejected also in a transaction, in pieces or not."""
    queue = Limited(size, "messages", "reject")
    queue.make("small", max_bytes=most_bytes)
    queue.world.broker.core.memory.limit_bytes = 16 << 20 if most_bytes else 10
    queue.senders["q"] = queue.world.open(to_client=False, address="small")
    assert queue.put(1, durable) == REFUSED
    txn_id = queue.declare()
    assert queue.put(2, durable, txn_id) == REFUSED
    assert queue.discharge(txn_id) == "amqp:transaction:rollback"
    assert queue.world.broker.core.memory.used_bytes == 0
    assert queue.world.queue("small").messages == 0


@either
@size
def test_an_id_is_taken_once_however_it_comes(size: str, durable: bool) -> None:
    """Duplicates are detected in messages sent in pieces, in transactions and after a restart."""
    queue = Limited(size, "messages", "ring")
    queue.make("once", duplicate_window=100)
    queue.senders["q"] = queue.world.open(to_client=False, address="once")
    there = queue.world.queue("once")
    assert [queue.put(number, durable, id="a") for number in range(2)] == ["accepted"] * 2
    assert there.messages == 1
    txn_id, lost = queue.declare(), queue.declare()
    for number, name in enumerate(("a", "b", "b", "c")):
        assert queue.put(number, durable, txn_id, id=name) == "accepted"
    queue.put(9, durable, lost, id="d")
    assert queue.discharge(txn_id) == ""
    assert queue.discharge(lost, fail=True) == ""
    assert there.messages == 3
    if durable:
        queue.restart()
        queue.senders["q"] = queue.world.open(to_client=False, address="once")
        there = queue.world.queue("once")
    for name in "abcd":
        assert queue.put(1, durable, id=name) == "accepted"
    assert there.messages == 4, "what was rolled back never came"


@size
def test_what_is_prepared_counts_behind_a_restart(size: str) -> None:
    queue = Limited(size, "bytes", "reject")
    txn_id = queue.declare(b"xid")
    assert [queue.put(number, True, txn_id) for number in (1, 2)] == ["accepted"] * 2
    assert queue.discharge(txn_id) == ""
    queue.world.do(queue.world.broker.in_doubt.prepare, b"xid", lambda: None)
    queue.world.kill_and_start()
    queue.senders.clear()
    assert [queue.put(number) for number in (3, 4)] == ["accepted", REFUSED]
    queue.world.do(queue.world.broker.in_doubt.commit, b"xid", lambda: None)
    assert queue.put(5) == REFUSED
    assert sorted(queue.numbers()) == [1, 2, 3]
    assert queue.put(6) == "accepted"


@pytest.mark.parametrize("policy", [{"duplicate_window": 9}, {"priorities": True}], ids=["ids", "priorities"])
@size
def test_a_transaction_holds_no_contents_for_what_a_queue_wants_to_know(size: str, policy: dict[str, Any]) -> None:
    queue = Limited(size, "messages", "ring")
    queue.make("curious", **policy)
    queue.senders["q"] = queue.world.open(to_client=False, address="curious")
    queue.body_bytes = max(60_000, queue.body_bytes)
    txn_id = queue.declare()
    for number in range(40):  # more than a store transaction holds in memory
        assert queue.put(number, txn_id=txn_id, id=str(number), priority=number % 10) == "accepted"
    posts = queue.world.broker.transactions.find(queue.connection, txn_id).staging.posts
    assert sum(len(post.beginning) for post in posts) < 40 * 200
    assert queue.discharge(txn_id) == ""
    taken = [int(message.body) for message in queue.take("curious")]
    order = sorted(range(40), key=lambda number: -(number % 10)) if "priorities" in policy else [*range(40)]
    assert taken == order
