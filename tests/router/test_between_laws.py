"""Properties of messages between brokers, for random scripts of clients and of lost connections."""

from __future__ import annotations

import random
from typing import Any

import pytest
from proton import Delivery, Message

from cairnmq.broker_plugin.run import RunningBroker
from tests.clients.conftest import NewPeer, StartBroker
from tests.harness.clients.peers import Peer
from tests.harness.router.joined import all_reach_all, start, until


class Script:
    """Clients of several brokers, and their view of each message."""

    def __init__(self, brokers: list[RunningBroker], peer_at: NewPeer, seed: int) -> None:
        self.rng = random.Random(seed)
        self.brokers = brokers
        self.peer_at = peer_at
        self.senders: list[tuple[Peer, Any]] = []
        self.receivers: list[tuple[Peer, Any]] = []
        self.sent: dict[int, Any] = {}
        """The delivery of each message, by number."""
        self.seen: dict[int, list[int]] = {}
        """The outcomes that receivers sent for each message, by number."""
        self.number = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.rng.choices(
                (self.add_sender, self.add_receiver, self.send, self.take, self.kill_receiver, self.break_apart),
                (2, 3, 20, 12, 1, 1),
            )[0]()

    def address(self) -> str:
        return self.rng.choice(("any.a", "any.b", "all.a"))

    def add_sender(self) -> None:
        peer = self.peer_at(self.rng.choice(self.brokers).port)
        link = peer.session.sender(f"s{len(self.senders)}")
        self.senders.append((peer, peer.attach(link, self.address())))

    def add_receiver(self) -> None:
        if len(self.receivers) < 6:
            peer = self.peer_at(self.rng.choice(self.brokers).port)
            self.receivers.append((peer, peer.receiver(self.address(), 1000)))

    def send(self) -> None:
        if not self.senders:
            return
        peer, link = self.rng.choice(self.senders)
        peer._exchange()
        for _ in range(min(self.rng.randint(1, 8), link.credit)):
            self.number += 1
            size = self.rng.choice((10, 10, 10, 70_000, 300_000))
            self.sent[self.number] = link.send(Message(body={"number": self.number, "filler": b"x" * size}))
        peer._exchange()

    def take(self) -> None:
        for peer, link in self.receivers:
            peer._exchange()
            for received in peer.arrived(link):
                said = self.rng.choice(
                    (Delivery.ACCEPTED, Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED)
                )
                self.seen.setdefault(received.body["number"], []).append(said)
                received.settle(said, failed=said == Delivery.MODIFIED)
            peer._exchange()

    def kill_receiver(self) -> None:
        if len(self.receivers) > 1:
            peer, _ = self.receivers.pop(self.rng.randrange(len(self.receivers)))
            peer.cut()

    def break_apart(self) -> None:
        """Close the connection between two brokers, which reconnect by themselves."""
        broker = self.rng.choice(self.brokers)
        for there in list(broker._broker.remote.network.neighbours.values())[:1]:
            broker._post(there[0].connection.expel, "for a test")

    def finish(self) -> None:
        """Answer arriving messages until all sent ones are settled."""

        def over() -> bool:
            self.take()
            for peer, _ in self.senders:
                peer._exchange()
            return all(delivery.settled for delivery in self.sent.values())

        until(over, "all to be settled")


@pytest.mark.parametrize("seed", range(8))
def test_no_outcome_is_made_up_and_nothing_comes_twice(start_broker: StartBroker, peer_at: NewPeer, seed: int) -> None:
    """C12, C48, C58: outcomes are those of receivers, and anycast messages arrive once: in a pair, line and ring."""
    a = start(start_broker, "a")
    b = start(start_broker, "b", a)
    brokers = [a, b]
    if seed % 3:
        brokers.append(start(start_broker, "c", *brokers[1 if seed % 3 == 1 else 0 :]))
    all_reach_all(*brokers)
    script = Script(brokers, peer_at, seed)
    script.run(100)
    script.finish()
    for number, delivery in script.sent.items():
        said, received = script.seen.get(number, []), delivery.remote_state
        if received == Delivery.ACCEPTED:
            assert Delivery.ACCEPTED in said, "nobody says yes for a receiver"
        elif received == Delivery.REJECTED:
            assert Delivery.REJECTED in said
        if delivery.link.target.address.startswith("any"):
            assert len(said) <= 1, "one receiver gets it, and nobody tries again"
    all_reach_all(*brokers)
    for broker in brokers:
        until(lambda: not broker._broker.core.memory.used_bytes, "nothing to be left")  # noqa: B023
        until(lambda: not broker._broker.remote.network._transit, "nothing to be on its way")  # noqa: B023
