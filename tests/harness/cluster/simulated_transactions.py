"""Transactions in the simulation: clients that enqueue to and consume from two queues, and checks of atomicity.

Each transaction enqueues messages on both queues. Properties by outcome:

* confirmed: its messages count as confirmed, and its accepts as settled;
* refused, or not discharged: none of its messages was ever delivered or stored;
* without a response: it took effect completely or not at all.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Container
from collections.abc import Set as AbstractSet
from typing import Any

from tests.harness.cluster.cluster_harness import ACCEPT, REJECT, RELEASE, SimulatedMember
from tests.harness.cluster.numbered_messages import written
from tests.harness.cluster.transaction_client import Source, Transactor

QUEUES = ("q", "r")
OnSend = Callable[[str, range, int], None]
"""Called with the queue, the numbers of the messages, and the size of each."""


class Attempt:
    """A transaction of a client, with its outcome."""

    def __init__(self) -> None:
        self.puts: set[int] = set()
        self.takes: dict[int, int] = {}
        """The outcome for each message that it consumes, by number."""
        self.asked: int | None = None
        self.commits = False
        """True if the discharge requests a commit."""
        self.done: bool | None = False
        """True if the transaction took effect; None if unknown."""

    def of(self, state: int) -> set[int]:
        return {number for number, found in self.takes.items() if found == state}

    @property
    def of_accepted(self) -> set[int]:
        return self.of(ACCEPT)

    @property
    def of_rejected(self) -> set[int]:
        return self.of(REJECT)


class Worker:
    """A client and its current transaction."""

    def __init__(self, member: SimulatedMember, on_forward: Callable[[Source, Any, bool], None]) -> None:
        self.client = Transactor(member, QUEUES)
        self.client.write = written
        self.attempt: Attempt | None = None
        self.declared = 0
        for receiver in self.client.receivers.values():
            receiver.on_forward = on_forward

    def work(self, random: random.Random, fresh: Callable[[int], range], on_send: OnSend) -> None:
        for _ in range(random.choice((1, 2, 4))):
            self._do_one_thing(random, fresh, on_send)

    def _do_one_thing(self, random: random.Random, fresh: Callable[[int], range], on_send: OnSend) -> None:
        client, attempt = self.client, self.attempt
        if not client.is_ready:
            return
        if attempt is None:
            client.declare()
            self.declared += 1
            self.attempt = Attempt()
            return
        if len(client.control.declared_ids) < self.declared or attempt.asked is not None:
            return
        draw = random.random()
        if draw < 0.2 or not attempt.puts:
            for name in QUEUES:
                numbers = fresh(random.choice((1, 1, 3, 10)))
                attempt.puts.update(numbers)
                size_bytes = random.choice((10, 100, 5000, 100_000 if len(numbers) < 3 else 10))
                client.send(name, numbers, size_bytes=size_bytes)
                on_send(name, numbers, size_bytes)
        elif draw < 0.4:
            client.request(random.choice(QUEUES), random.choice((1, 5, 50)))
        elif draw < 0.75:
            name = random.choice(QUEUES)
            there = [one for one in client.receivers[name].unsettled if one not in attempt.takes]
            taken = [one for one in there if random.random() < 0.5]
            state = random.choice((ACCEPT, ACCEPT, ACCEPT, REJECT, RELEASE))
            attempt.takes.update(dict.fromkeys(taken, state))
            client.take(name, taken, state, settled=random.random() < 0.5)
        else:
            attempt.commits = random.random() < 0.8
            attempt.asked = client.discharge(fail=not attempt.commits)

    def look(self) -> Attempt | None:
        """Return the transaction if it has ended, with `done` set; else None."""
        control, attempt = self.client.control, self.attempt
        if attempt is None or attempt.asked is None:
            if attempt is not None and self.client.is_dead:
                self.attempt = None
                return attempt
            return None
        if attempt.asked in control.confirmed:
            attempt.done = attempt.commits
        elif attempt.asked in control.rejected:
            attempt.done = False
        elif self.client.is_dead:
            attempt.done = None if attempt.commits else False
        else:
            return None
        self.attempt = None
        return attempt


def halves(
    attempts: list[Attempt],
    seen: Container[int],
    there: set[int],
    claims: Counter[int],
    excused: AbstractSet[int] = frozenset(),
) -> list[str]:
    """Return a description of each transaction that took effect partly, or despite a rollback.

    *seen*: messages ever delivered, or on a queue; *there*: messages on a queue; *claims*: accepts of each message;
    *excused*: messages that may be missing for another reason.
    """
    wrong: list[str] = []
    for attempt in attempts:
        found = {number for number in attempt.puts if number in seen}
        if attempt.done is False and found:
            wrong.append(f"rolled back, and was seen: {sorted(found)[:9]}")
        elif attempt.done is None and found and attempt.puts - found - excused:
            wrong.append(f"half a transaction: {sorted(found)[:9]}, and not {sorted(attempt.puts - found)[:9]}")
        elif attempt.done is None and found and attempt.of(ACCEPT) & there:
            wrong.append(f"half a transaction: it put, and did not take {sorted(attempt.of(ACCEPT) & there)[:9]}")
        elif attempt.done is None and attempt.puts - excused and not found:
            lost = {number for number in attempt.of(ACCEPT) - there - excused if claims[number] == 1}
            if lost:
                wrong.append(f"half a transaction: it did not put, and took {sorted(lost)[:9]}")
    return wrong
