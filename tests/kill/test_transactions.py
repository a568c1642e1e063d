"""Tests that transactions are atomic if the broker is killed while they are committed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

from proton import Message

from tests.harness.clients.peers import Peer
from tests.harness.clients.transacting import Control, post, retire
from tests.harness.process import broker

KILLS = 15
QUEUES = ("a", "b", "c")
TOKENS = 20
SEED = os.environ.get("CAIRN_SEED") or str(SystemRandom().randrange(10**6))


class Client:
    """A client whose transactions send a number to all queues, and consume and send back a token."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.number = 0
        self.under_way: list[tuple[Any, int, bool]] = []
        self.committed: set[int] = set()
        self.rolled_back: set[int] = set()
        self.on_commit: Callable[[], None] | None = None
        """Callback for the first answered commit."""

    def work(self, peer: Peer) -> None:
        """Commit transactions until the broker is killed."""
        control = Control(peer)
        senders = [peer.sender(name) for name in QUEUES]
        tokens, back = peer.receiver("tokens", TOKENS), peer.sender("tokens")
        self.under_way = []
        while True:
            txn_id = control.declare()
            self.number += 1
            for sender in senders:
                size = self.random.choice((0, 100, 100, 2000, 200_000))
                body = self.number.to_bytes(4) + bytes(size)
                post(peer, sender, txn_id, Message(body=body, durable=True), settled=self.random.random() < 0.3)
            fail = self.random.random() < 0.2
            for token in peer.arrived(tokens):
                post(peer, back, txn_id, Message(body=token.body, durable=True))
                retire(token, txn_id, settled=True)
                tokens.flow(1)
            self.under_way.append((control.send(0x32, txn_id, fail), self.number, fail))
            if self.random.random() < 0.5:
                peer.wait(lambda: len(self.answered(self.under_way)) == len(self.under_way))
            self.learn()

    def answered(self, asked: list[tuple[Any, int, bool]]) -> list[tuple[Any, int, bool]]:
        return [one for one in asked if one[0].settled]

    def learn(self) -> None:
        """Record the outcomes of answered discharges."""
        for delivery, number, fail in self.answered(self.under_way):
            assert delivery.remote_state == delivery.ACCEPTED, delivery.remote.condition
            (self.rolled_back if fail else self.committed).add(number)
        self.under_way = [one for one in self.under_way if not one[0].settled]
        if self.committed and self.on_commit is not None:
            self.on_commit()
            self.on_commit = None


def read(peer: Peer, name: str) -> list[bytes]:
    receiver = peer.receiver(name)
    bodies: list[bytes] = []
    while received := peer.drain(receiver, 500):
        for one in received:
            bodies.append(one.body)
            one.accept()
    peer.settle_down()
    peer.detach(receiver)
    return bodies


def test_a_transaction_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    random = Random(SEED)
    client = Client(random)
    committed = 0
    for life in range(KILLS + 1):
        with broker(tmp_path / "store", "--container-size", "524288", "--checkpoint-interval", "300000") as running:
            peer = Peer(running.port)
            if life:
                before = client.committed
                numbers = [[int.from_bytes(body[:4]) for body in read(peer, name)] for name in QUEUES]
                assert numbers[0] == numbers[1] == numbers[2], f"seed {SEED}"
                there = {*numbers[0]}
                assert len(there) == len(numbers[0])
                assert numbers[0] == sorted(there)
                assert before <= there, f"seed {SEED}"
                assert not client.rolled_back & there, f"seed {SEED}"
                assert sorted(read(peer, "tokens")) == [bytes((n,)) for n in range(TOKENS)], f"seed {SEED}"
                committed += len(before)
                client.committed, client.rolled_back = set(), set()
            peer.put(peer.sender("tokens"), [bytes((n,)) for n in range(TOKENS)])
            killer = threading.Timer(random.uniform(0.05, 0.5), lambda: running.process.send_signal(signal.SIGKILL))
            client.on_commit = killer.start if life % 3 else None  # in most runs, the kill follows a commit
            if client.on_commit is None:
                killer.start()
            try:
                client.work(peer)
            except ConnectionError:
                client.learn()
            finally:
                if killer.ident is None:  # the failure came before the kill
                    killer.start()
                killer.join()
                peer.cut()
                running.wait()
    assert committed >= KILLS * 2 // 3
