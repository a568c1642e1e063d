"""Benchmarks of a store with 100 operations in flight, against embedded and other stores, and of single puts.

Operations in flight are called separately and then made durable together in the same thread. An embedded store executes
100 operations as one synced transaction, regardless of the size of the measured transactions; this is its best case, as
it would have to wait for each of 100 separate owners.

put           enqueue a message
take          dequeue the oldest message
transactions  the given number of operations in each transaction, alternating puts and takes

Single puts are 512 separate calls followed by one flush in the same thread, the best case of a group commit. Their
yardstick is one call of `put_all` for all messages.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Protocol

from . import embedded
from .running import now_us
from .store_kinds import JOURNAL, KINDS, make_durable, open_with_queue
from .store_memory import measure_memory
from .table import Row, row

SECTION = "store, 100 operations in flight"
SINGLE = "store, single puts, one thread"
IN_FLIGHT = 100
_GROUP = 512
_BYTES = 256
GUESSES = {
    "put": 190_000,
    "take": 190_000,
    "transactions of 1": 110_000,
    "transactions of 10": 140_000,
    "transactions of 100": 120_000,
}
"""Guessed operations per second: 4 us for a put or take and 110 us for a sync; more for transactions."""
SINGLE_GOAL_PER_S = 300_000


class Way(Protocol):
    """A measured store, whose calls return durable operations per second."""

    def put(self, until_s: float) -> float:
        """Put messages until the time *until_s* and keep their IDs."""
        ...

    def take(self) -> float:
        """Dequeue the messages that were put."""
        ...

    def transact(self, size: int, until_s: float) -> float:
        """Commit transactions of *size* operations until the time *until_s*."""
        ...

    def close(self) -> None: ...


class Store:
    """A CairnMQ store of one kind."""

    def __init__(self, kind: str, path: str) -> None:
        self._store, self._queue_id = open_with_queue(kind, path)
        self._here: deque[int] = deque()
        self._content = os.urandom(_BYTES)

    def put(self, until_s: float) -> float:
        return self._repeat(self._put, lambda: time.perf_counter() < until_s)

    def take(self) -> float:
        return self._repeat(self._take, lambda: len(self._here) >= IN_FLIGHT)

    def transact(self, size: int, until_s: float) -> float:
        self._repeat(self._put, lambda: len(self._here) < 4 * IN_FLIGHT)
        return self._repeat(lambda: self._transact(size), lambda: time.perf_counter() < until_s)

    def close(self) -> None:
        self._store.close()

    def _put(self) -> int:
        put, queue_id, time_us = self._store.put, self._queue_id, now_us()
        for _ in range(IN_FLIGHT):
            message_id, lsn = put(queue_id, self._content, time_us)
            self._here.append(message_id)
        return lsn

    def _take(self) -> int:
        dequeue, queue_id, time_us = self._store.dequeue, self._queue_id, now_us()
        for _ in range(IN_FLIGHT):
            lsn = dequeue(self._here.popleft(), queue_id, time_us)
        return lsn

    def _transact(self, size: int) -> int:
        queue_id, time_us, transactions = self._queue_id, now_us(), self._store.transactions
        puts = True
        for _ in range(IN_FLIGHT // size):
            transaction = transactions.begin(time_us)
            for _ in range(size):
                if puts:
                    transaction.put(queue_id, self._content, time_us)
                else:
                    transaction.dequeue(self._here.popleft(), queue_id, time_us)
                puts = not puts
            lsn = transaction.commit(time_us)
            self._here += transaction.message_ids
        return lsn

    def _repeat(self, call_all: Callable[[], int], goes_on: Callable[[], bool]) -> float:
        done = 0
        begun_s = time.perf_counter()
        while not done or goes_on():
            make_durable(self._store, call_all())
            done += IN_FLIGHT
        return done / (time.perf_counter() - begun_s)


class Peer:
    """An embedded store as a yardstick."""

    def __init__(self, store: embedded.Embedded) -> None:
        self._store = store
        self._first = self._end = 0
        self._contents = [os.urandom(_BYTES)] * IN_FLIGHT

    def put(self, until_s: float) -> float:
        return self._repeat(IN_FLIGHT, 0, lambda: time.perf_counter() < until_s)

    def take(self) -> float:
        return self._repeat(0, IN_FLIGHT, lambda: self._end - self._first >= IN_FLIGHT)

    def transact(self, size: int, until_s: float) -> float:
        self._repeat(IN_FLIGHT, 0, lambda: self._end - self._first < 4 * IN_FLIGHT)
        return self._repeat(IN_FLIGHT // 2, IN_FLIGHT // 2, lambda: time.perf_counter() < until_s)

    def close(self) -> None:
        self._store.close()

    def _repeat(self, puts: int, takes: int, goes_on: Callable[[], bool]) -> float:
        contents = self._contents[:puts]
        done = 0
        begun_s = time.perf_counter()
        while not done or goes_on():
            self._store.change(self._end, contents, range(self._first, self._first + takes))
            self._end += puts
            self._first += takes
            done += puts + takes
        return done / (time.perf_counter() - begun_s)


def measure(path: str, rounds: int, round_s: float, memory_messages: int) -> list[Row]:
    """Measure all kinds of store in *path*, and their memory with *memory_messages* messages."""
    os.mkdir(path)
    rates = _in_flight(path, rounds, round_s)
    notes = measure_memory(path, memory_messages)
    rows = [
        row(SECTION, f"{_BYTES} B: {what}", rates[JOURNAL][what], guess, name, found[what], goal_ratio=1.0,
            note=notes.pop(what, ""))
        for what, guess in GUESSES.items()
        for name, found in rates.items()
        if name != JOURNAL
    ]  # fmt: skip
    return [*rows, _single(path, rounds, round_s)]


def _in_flight(path: str, rounds: int, round_s: float) -> dict[str, dict[str, list[float]]]:
    """Return the rates of each operation, for each store by name."""
    rates: dict[str, dict[str, list[float]]] = {}
    with ExitStack() as opened:
        ways: dict[str, Way] = {}
        for name in KINDS:
            ways[name] = opened.enter_context(closing(Store(name, os.path.join(path, name))))
        for name, peer in embedded.installed().items():
            os.mkdir(os.path.join(path, name))
            ways[name] = opened.enter_context(closing(Peer(peer(os.path.join(path, name)))))
        for turn in range(rounds):
            first = turn % len(ways)
            for name in [*ways][first:] + [*ways][:first]:
                found = rates.setdefault(name, {what: [] for what in GUESSES})
                for what, rate in _round(ways[name], round_s):
                    found[what].append(rate)
    return {name: rates[name] for name in ways}


def _round(way: Way, round_s: float) -> Iterator[tuple[str, float]]:
    yield "put", way.put(time.perf_counter() + round_s)
    yield "take", way.take()
    for size in (1, 10, 100):
        yield f"transactions of {size}", way.transact(size, time.perf_counter() + round_s)


def _single(path: str, rounds: int, round_s: float) -> Row:
    store, queue_id = open_with_queue(JOURNAL, os.path.join(path, "single"))
    contents = [os.urandom(_BYTES) for _ in range(_GROUP)]
    with closing(store):

        def one_by_one() -> list[int]:
            put, time_us = store.put, now_us()
            return [put(queue_id, content, time_us)[0] for content in contents]

        def together() -> list[int]:
            return list(store.put_all(queue_id, contents, now_us())[0])

        def rate(group: Callable[[], list[int]]) -> float:
            """Return puts per second; dequeues, which keep the queue empty, are excluded from the time."""
            spent_s, groups = 0.0, 0
            while spent_s < round_s:
                begun_s = time.perf_counter()
                message_ids = group()
                store.kick()
                spent_s += time.perf_counter() - begun_s
                for message_id in message_ids:
                    store.dequeue(message_id, queue_id, now_us())
                store.kick()
                groups += 1
            return groups * _GROUP / spent_s

        single: list[float] = []
        batch: list[float] = []
        for turn in range(rounds):
            ways = [(one_by_one, single), (together, batch)]
            for group, rates in ways if turn % 2 else ways[::-1]:
                rates.append(rate(group))
    return row(
        SINGLE, f"{_BYTES} B, groups of {_GROUP}: put", single, 300_000, "put_all", batch,
        goal_per_s=SINGLE_GOAL_PER_S,
    )  # fmt: skip
