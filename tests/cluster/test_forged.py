"""Tests of a process that joins the group and multicasts invalid events: the members continue with their messages.

The forged events are truncated, mixed or changed events of each kind, so most of them are almost valid. The process may
own a queue or have consumers while it is a member, as any member may, but no effect of this remains after it leaves.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from cairnmq.amqp.ports import Forward
from cairnmq.broker.messages.entry import ARRIVAL_MASK
from cairnmq.cluster.group.group import MAX_PAYLOAD_BYTES
from cairnmq.cluster.group.member import GroupMember
from cairnmq.cluster.kernel import events
from cairnmq.store.contract.dequeue_reason import DequeueReason
from tests.harness.broker.world import message
from tests.harness.cluster.cluster_harness import ACCEPT, ClusterHarness, Receiver, Sender
from tests.harness.cluster.control_samples import VALID
from tests.harness.cluster.memory_group import memory_member
from tests.harness.thorough import amount

LIVES = amount("CAIRN_FORGERIES", 120, 10)
SAID = 60
GOOD = [(message(7, 30, True), True), (message(8, 30, False), False)]
PLAIN = [
    events.enqueue(["q"], GOOD, False),
    events.enqueue(["q", "nobody's"], GOOD, True),
    events.dequeue(DequeueReason.ACCEPTED, "q", [1, 2, 1 << 60]),
    events.release("q", [1, 3], [True, False]),
    events.move(DequeueReason.REJECTED, "q", 1, ["q", "x"], GOOD[0]),
    events.update_front(1, "q", [1, 2], [0, 3], GOOD),
    events.transaction(
        [events.EnqueueEvent(["q"], GOOD, False), events.DequeueEvent(DequeueReason.ACCEPTED, "q", (2,))]
    ),
    bytes([events.PART, events.FIRST]) + b"x" * 50,
    bytes([events.PART, events.LAST]) + b"x" * 50,
    bytes([events.PART, 0xFF]),
    b"",
]


CHANGES: list[dict[str, object]] = [
    {"do": "queue", "name": "new", "arguments": {"priorities": "many"}},
    {"do": "queue", "name": "new", "arguments": {"max-messages": -1, "what": [1, {"nobody": None}]}},
    {"do": "queue", "name": "", "arguments": {}},
    {"do": "queue", "name": "x" * 40_000, "arguments": {}},
    {"do": "queue", "name": "\x00\n", "arguments": {"replicated": False}},
    {"do": "queue", "name": "$cluster", "arguments": {}},
    {"do": "queue", "name": "amq.topic", "arguments": {"dead-letter-address": 5}},
    {"do": "no-queue", "name": "$cluster", "why": ""},
    {"do": "exchange", "name": "e", "type": "what", "arguments": {"alternate": 7}},
    {"do": "exchange", "name": "e", "type": "headers", "arguments": {}},
    {"do": "exchange", "name": "q", "type": "fanout", "arguments": {}},
    {"do": "no-exchange", "name": "amq.topic", "why": ""},
    {"do": "binding", "exchange": "e", "queue": "q", "key": "k", "arguments": {"x-match": 1}},
    {"do": "binding", "exchange": "amq.topic", "queue": "q", "key": "#." * 500, "arguments": {}},
    {"do": "no-binding", "exchange": "amq.topic", "queue": "q", "key": "other"},
    {"do": "template", "name": "[", "arguments": {"message-ttl-ms": "soon"}},
    {"do": "no-template", "name": "nobody's"},
    {"do": "new-arguments", "queue": "q", "changes": {"max-messages": "x"}},
    {"do": "new-arguments", "queue": "$cluster", "changes": {"paused": True}},
    {"do": "new-arguments", "queue": "q", "changes": {"priorities": True, "what": 1}},
]


class Taker(Receiver):
    """A receiver that also accepts messages without a number."""

    def forward(self, messages: Sequence[Forward]) -> None:
        for number, (entry, content) in enumerate(messages, 10**6 + len(self.order)):
            try:
                super().forward([(entry, content)])
            except (ValueError, AssertionError):
                self.order.append((number, False))
                self.unsettled[number] = (entry, False)


def positions(harness: ClusterHarness, node: int) -> list[int]:
    """Return the positions of the messages on the queue of *node*."""
    replica = harness[node].core.owners.replicas["q"]
    there = [entry.position & ARRIVAL_MASK for entry in replica.entries() if not entry.is_dequeued]
    return sorted({*there, *[position for position, _ in replica.stored()]})


class Forger:
    """A process on node 3 that joins the group without a broker."""

    def __init__(self, harness: ClusterHarness, seed: int) -> None:
        self.harness = harness
        self.random = random.Random(seed)
        self.member: GroupMember = memory_member(harness.network, 3)
        self.member.join("test")
        assert harness.until(self._is_in), harness.reason()

    def _is_in(self) -> bool:
        self.member.step()
        return self.member.me is not None

    def say(self, payload: bytes) -> None:
        self.member.multicast(payload[:MAX_PAYLOAD_BYTES])
        self.member.flush()
        self.harness.tick()
        self.member.step()

    def forged(self) -> bytes:
        draw = self.random
        kind = draw.random()
        if kind < 0.1:
            return draw.randbytes(draw.randrange(1, 60))
        if kind < 0.5:
            what = draw.choice([*VALID])
            about = {name: self._bent(value) for name, value in VALID[what].items()}
            return self._cut(events.control(what, **about))
        if kind < 0.6:
            return events.control("change", change=draw.choice(CHANGES))
        if kind < 0.7:
            senders = [*self.harness[1].core.state.members]
            return self._cut(events.ack({draw.choice(senders): draw.choice([0, 1, 5, 1 << 63])}))
        return self._cut(draw.choice(PLAIN))

    def _bent(self, value: object) -> object:
        """Return *value*, or replace it, often with an existing member or queue, sometimes with an extreme value."""
        draw = self.random
        if draw.random() < 0.5:
            return value
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return draw.choice([0, -1, 1 << 62, self.harness[1].core.apply_loop.position])
        if isinstance(value, list) and len(value) == 3 and all(isinstance(one, int) for one in value):
            return [*draw.choice(self.harness[1].core.state.members)]
        if isinstance(value, str):
            return draw.choice(["q", "", "x" * 300, "$cluster", "\udcff"])
        if isinstance(value, dict):
            return {name: self._bent(one) for name, one in value.items()}
        return [self._bent(one) for one in value] if isinstance(value, list) else value

    def _cut(self, payload: bytes) -> bytes:
        draw = self.random
        if payload and draw.random() < 0.3:
            at = draw.randrange(len(payload))
            bent = bytearray(payload)
            bent[at] ^= 1 << draw.randrange(8)
            payload = bytes(bent)
        return payload[: draw.randrange(len(payload))] if payload and draw.random() < 0.1 else payload


def one(seed: int) -> None:
    """Check that two members with clients serve and agree after a forger has joined and left."""
    harness = ClusterHarness(seed=seed)
    for node in (1, 2):
        harness[node].start()
    assert harness.until(lambda: harness[1].serves and harness[2].serves), harness.reason()
    sender = Sender(harness[1])
    harness.run(0.2)
    sender.send(range(5))
    assert harness.until(lambda: len(sender.confirmed) == 5)
    forger = Forger(harness, seed)
    for _ in range(SAID):
        forger.say(forger.forged())
    forger.member.close()
    assert harness.until(lambda: len(harness[1].core.state.members) == 2), seed
    assert not [str(harness[node].failures[0]) for node in (1, 2) if harness[node].failures], seed
    assert harness.until(lambda: harness[1].serves and harness[2].serves), (seed, harness.reason())
    late = Sender(harness[2])
    harness.run(0.2)
    late.send([50, 51])
    assert harness.until(lambda: late.confirmed == [50, 51]), seed
    receiver = Taker(harness[1])
    harness.run(0.2)
    receiver.request(10_000)
    assert harness.until(lambda: {50, 51} <= {*receiver.unsettled}), seed
    receiver.settle_as([*receiver.unsettled], ACCEPT)
    assert harness.until(lambda: not receiver.unsettled), seed
    harness.run(0.5)
    assert positions(harness, 1) == positions(harness, 2), seed


@pytest.mark.parametrize("first", range(0, LIVES, 20))
def test_who_forges_events_harms_nobody_for_good(first: int) -> None:
    for seed in range(first, first + 20):
        one(seed)
