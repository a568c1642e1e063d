"""Benchmarks of a broker under other loads than one sender and one receiver (`broker`).

10:10                ten senders and ten receivers, with a separate queue for each pair
1:10                 a sender to ten subscribers of a topic exchange; received messages are counted
transactions of 100  messages sent in transactions and received without transactions
1 MiB                messages of many frames, from one sender to one receiver
half load            messages at half of the rate just measured with 100 in flight: the latency without overload

The rate is measured from the first send to the last receipt, and times from sent to settled. The yardstick is one
sender and one receiver with 100 messages in flight.
"""

from __future__ import annotations

from itertools import count
from statistics import median

from .broker import Broker, Rounds
from .client import Clients, Job, Result
from .table import Row, row, show_size
from .works import receive_large, send_in_transactions, send_large, send_paced

SECTION = "broker, other loads"
CROWD = 10
PER_TRANSACTION = 100
_MIB = 1 << 20
KINDS = ("one to one", "half load", "10:10", "1:10", f"transactions of {PER_TRANSACTION}")
GUESSES_US = {"one to one": 15.0, "half load": 30.0, "10:10": 18.0, "1:10": 7.0, KINDS[4]: 25.0}
"""Guessed time per received message of at most one KiB."""
SIZES = {256: 1, 1024: 1, 16 << 10: 6}
"""Body sizes in bytes, with the factor of the guessed time."""
LARGE = {(1, True): 3_500.0, (10, True): 2_500.0, (100, True): 2_500.0, (1, False): 3_000.0, (10, False): 2_500.0}
"""Guessed time per message of 1 MiB, by the number in flight and durability."""


def measure(path: str, rounds: int, round_s: float) -> list[Row]:
    """Measure all patterns, each for about *round_s* per round, on one broker whose store is in *path*."""
    found: dict[tuple[str, int, bool], Rounds] = {}
    numbers = count()
    with Broker(path) as broker, Clients(2 * CROWD) as clients:
        for _ in range(rounds):
            for body_bytes, times in SIZES.items():
                for durable in (True, False):
                    for kind in KINDS:
                        alone = found.get(("one to one", body_bytes, durable))
                        rate = alone.per_s[-1] / 2 if alone else 0.0
                        guess_per_s = rate if kind == "half load" else 1e6 / GUESSES_US[kind] / times
                        messages = max(CROWD, round(guess_per_s * round_s))
                        jobs = _jobs(kind, broker.port, next(numbers), messages, body_bytes, durable, rate)
                        noted = found.setdefault((kind, body_bytes, durable), Rounds())
                        _run(broker, clients, jobs, noted)
            for (window, durable), guess_us in LARGE.items():
                messages = max(2, round(1e6 / guess_us * round_s))
                address = f"large-{next(numbers)}"
                jobs = [
                    Job(False, broker.port, address, messages, _MIB, window, durable, work=receive_large),
                    Job(True, broker.port, address, messages, _MIB, window, durable, work=send_large),
                ]
                _run(broker, clients, jobs, found.setdefault((f"{window} in flight", _MIB, durable), Rounds()))
    return [_row(*key, noted, found) for key, noted in found.items()]


def _jobs(
    kind: str, port: int, number: int, messages: int, body_bytes: int, durable: bool, rate_per_s: float
) -> list[Job]:
    """Return the jobs of one load, receivers first."""
    address = f"bench-{number}"
    one = Job(True, port, address, messages, body_bytes, 100, durable)
    if kind == "10:10":
        pairs = [one._replace(address=f"{address}-{pair}", messages=messages // CROWD) for pair in range(CROWD)]
        return [pair._replace(sender=False) for pair in pairs] + pairs
    if kind == "1:10":
        one = one._replace(address=f"topic://{address}", messages=messages // CROWD)
        return [one._replace(sender=False)] * CROWD + [one]
    receiver = one._replace(sender=False)
    if kind == "half load":
        one = one._replace(work=send_paced, rate_per_s=rate_per_s)
    elif kind.startswith("transactions"):
        one = one._replace(work=send_in_transactions, per_transaction=PER_TRANSACTION)
    return [receiver, one]


def _run(broker: Broker, clients: Clients, jobs: list[Job], found: Rounds) -> None:
    before_s = broker.cpu_s()
    results = clients.run_all(jobs)
    broker_s = broker.cpu_s() - before_s
    sent = [result for job, result in zip(jobs, results, strict=True) if job.sender]
    received = [result for job, result in zip(jobs, results, strict=True) if not job.sender]
    messages = sum(job.messages for job in jobs if not job.sender)
    latency = max((result.latency for result in sent), key=lambda latency: latency.p99_us)
    complete = Result(
        min(result.begun_ns for result in sent),
        max(result.ended_ns for result in received),
        latency,
        sum(result.cpu_s for result in sent),
    )
    found.add(messages, complete.begun_ns, complete, broker_s)


def _row(kind: str, body_bytes: int, durable: bool, noted: Rounds, found: dict[tuple[str, int, bool], Rounds]) -> Row:
    alone = found.get(("one to one", body_bytes, durable))
    guess_us = GUESSES_US[kind] * SIZES[body_bytes] if body_bytes in SIZES else LARGE[int(kind.split()[0]), durable]
    others = alone if alone is not None and alone is not noted else noted
    return row(
        SECTION,
        f"{'durable' if durable else 'transient'}, {show_size(body_bytes)}: {kind}",
        noted.per_s,
        1e6 / guess_us,
        "" if others is noted else "one to one",
        others.per_s,
        p50_us=median(noted.p50_us),
        p99_us=median(noted.p99_us),
        p999_us=median(noted.p999_us),
        broker_cpu_us=median(noted.broker_us),
        client_cpu_us=median(noted.client_us),
    )
