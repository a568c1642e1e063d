"""The impact of an attacking client on other clients: a real broker, a victim, and an attack beside it.

`measure(case)` starts a broker process with the users `admin`, `victim` and `evil`, and measures twice for a few
seconds: first beside processes that only burn CPU (the yardstick, which any attacker on the same machine costs), then
beside the attack. Throughout, the victim runs:

* The *ping*, repeatedly: log in with SCRAM, attach, send a durable message, receive and accept it, close.
* The *producer*: an established connection that sends `PRODUCER_RATE` durable messages a second.
* In a case with a console, a *page* of an existing session, between two pings.

To add an attack:

1. Write a function `(at: Address, proceed: Callable[[], bool]) -> None` at the top level of a module of this folder. It
   runs in a separate process. It calls `proceed()` when its preparations are done, and then in every round, and
   returns when that is False. `OSError` and `EOFError` end the function, and it is called again: an attacker whose
   connection the broker closes reconnects.
2. Add a `Case` with it to the module's `CASES`. Its `processes`, `options` (of the broker) and `access` (rules of
   `evil` beyond its own names) are optional.
3. Add these `CASES` to those of `test_isolation.py`. `assert_isolated` checks the limits.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException
from itertools import count
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NamedTuple

import trustme

from cairnmq.amqp.codec.decode import read_items
from cairnmq.amqp.codec.primitives import descriptor
from cairnmq.base.accounts import users
from cairnmq.base.accounts.credentials import make
from tests.harness.console.browser import ApiClient
from tests.harness.console.processes import descendants
from tests.harness.process import broker
from tests.harness.security.wire import (
    CLOSE,
    DISPOSITION,
    FLOW,
    TRANSFER,
    TRUE,
    Wire,
    attach,
    flow,
    message,
    performative,
    transfer,
    uint,
)  # fmt: skip

CONSOLE = "cairnmq.console.beside"
PASSWORDS = {name: f"the password of {name}" for name in ("admin", "victim", "evil")}
PRODUCER_RATE = 200
PRODUCER_EVERY_S = 0.02
PATIENCE_S = 15.0
"""The time after which the victim gives up; its round trip counts as this long."""
FEWEST_PINGS = 8
MOST_MEMORY_BYTES = 64 << 20
SLOWER, SLACK_S = 10.0, 2.0
"""The largest factor of the median and of the worst round trip, and the slack of the latter on a busy machine."""
LEAST_DENOMINATOR_S = 0.03
"""The lower limit of the median without the attack, for the ratio.

A round trip is a dozen messages between two processes, 20 ms on an idle machine. The attacker's process also uses the
cores: a dozen waits for a time slice of the scheduler (3 ms) are 36 ms that no broker can avoid. The ratio to a median
of a few milliseconds would measure these waits instead of the broker's turns.
"""
MOST_QUIET_S = 0.5
"""The limit of the median beside the attack, on a quiet machine."""
MOST_BUSY_S = 10.0
"""The limit of the median of a console page, on any machine."""
QUIET_SHARE = 0.1
"""A machine is quiet if other processes and the hypervisor use less than this share of it."""
LEAST_PRODUCER_SHARE = 0.5

RULES = """
[[rules]]
who = ["admin"]
may = ["*"]

[[rules]]
who = ["victim"]
may = ["*"]
on = ["victim.*", "amq.topic/*", "$management", "dynamic-*"]

[[rules]]
who = ["evil"]
may = ["*"]
on = ["evil.*", "$management", "dynamic-*"]

[[rules]]
who = ["victim", "evil"]
may = ["connect"]
"""


class Address(NamedTuple):
    """The ports on which the broker listens."""

    port: int
    metrics_port: int
    tls_port: int = 0
    """The TLS port; 0 unless the case uses TLS."""
    http_port: int = 0
    """The port of the console; 0 unless the case uses HTTP."""

    def connect(self) -> Wire:
        wire = Wire(self.port)
        wire.sock.settimeout(PATIENCE_S)
        return wire

    def log_in(self, user: str) -> Wire:
        """Return an open connection of *user*, with a session."""
        wire = self.connect()
        if wire.scram(user, PASSWORDS[user]):
            raise ConnectionError(f"{user} is not let in")
        return wire.open()


Proceed = Callable[[], bool]
Attack = Callable[[Address, Proceed], None]


class Case(NamedTuple):
    """An attack, and the configuration of the broker under attack."""

    name: str
    attack: Attack
    processes: int = 1
    options: tuple[str, ...] = ()
    access: str = ""
    """Additional rules, in the format of --acl-file, beside `RULES`."""
    seconds: float = 2.5
    finding: str = ""
    tls: bool = False
    """True if the broker has a TLS port, too."""
    http: bool = False
    """True if the broker has a console, whose memory counts, too."""
    burners: int = 0
    """The number of processes of the yardstick, if the attack starts programs; 0 for one per process of the attack."""


class Impact(NamedTuple):
    """The measured impact of an attack on the victim and on the broker."""

    round_trip_s: float
    """The median round trip beside the attack."""
    worst_s: float
    round_trip_ratio: float
    """The ratio of the median beside the attack to the median beside the yardstick, at least `LEAST_DENOMINATOR_S`."""
    foreign_share: float
    """The share of the machine's CPU time that other processes used beside the attack."""
    worst_before_s: float
    afterwards_s: float
    """The first round trip after the end of the attack."""
    producer_share: float
    """The rate of the producer, relative to its rate beside the yardstick."""
    memory_growth_bytes: int
    longest_turn_s: float
    """The longest turn of the core."""
    longest_worker_turn_s: float
    failed_pings: int
    console_s: float = 0.0
    """The median time of a console page beside the attack, for a session of the victim."""
    failed_pages: int = 0

    def __str__(self) -> str:
        return (
            f"x{self.round_trip_ratio:5.1f} {self.round_trip_s * 1e3:7.0f} ms, others {self.foreign_share:4.0%}, "
            f"worst {self.worst_s * 1e3:6.0f} ms, "
            f"after {self.afterwards_s * 1e3:6.0f} ms, producer {self.producer_share:4.0%}, "
            f"RSS {self.memory_growth_bytes / (1 << 20):+6.1f} MiB, "
            f"longest turn: core {self.longest_turn_s * 1e3:4.0f} ms, "
            f"worker {self.longest_worker_turn_s * 1e3:4.0f} ms, failed {self.failed_pings}"
            + (f", console {self.console_s * 1e3:4.0f} ms, failed {self.failed_pages}" if self.console_s else "")
        )


def assert_isolated(impact: Impact) -> None:
    """Check that a client delays others by at most a bounded factor, and uses bounded memory."""
    assert not impact.failed_pings, impact
    assert not impact.failed_pages, impact
    assert impact.console_s < MOST_QUIET_S or impact.foreign_share >= QUIET_SHARE, impact
    assert impact.console_s < MOST_BUSY_S, impact
    assert impact.round_trip_ratio < SLOWER, impact
    assert impact.round_trip_s < MOST_QUIET_S or impact.foreign_share >= QUIET_SHARE, impact
    most_s = SLOWER * impact.worst_before_s + SLACK_S
    assert impact.worst_s < most_s, impact
    assert impact.afterwards_s < most_s, impact
    assert impact.producer_share >= LEAST_PRODUCER_SHARE, impact
    assert impact.memory_growth_bytes < MOST_MEMORY_BYTES, impact


def measure(case: Case, directory: Path) -> Impact:
    """Return the impact of the attack of *case* on a new broker with its files in *directory*."""
    users_file, acl_file = directory / "users", directory / "acl.toml"
    kept = {name: make(password) for name, password in PASSWORDS.items()}
    users.change(str(users_file), lambda accounts: accounts.update(kept))
    acl_file.write_text(RULES + case.access)
    access: tuple[str, ...] = ("--users-file", str(users_file), "--acl-file", str(acl_file), "--metrics-port", "0")
    if case.tls:
        certificate = directory / "server.pem"
        trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(certificate))
        access = (*access, "--tls-port", "0", "--tls-cert", str(certificate))
    if case.http:
        access = (*access, "--http-port", "0")
    with ExitStack() as stack:
        running = stack.enter_context(broker(directory / "data", *access, *case.options))
        tls_port = int(running.wait_for(r"listening with TLS on .*:(\d+)")[1]) if case.tls else 0
        http_port = int(running.wait_for(r"web console at .*:(\d+)/")[1]) if case.http else 0
        at = Address(running.port, int(running.wait_for(r"metrics at .*:(\d+)/")[1]), tls_port, http_port)
        product = [running.process.pid, *descendants(running.process.pid, CONSOLE)]
        victim = stack.enter_context(_producing(at, product))
        for _ in range(2):
            ping(at)
        cores = max(1, (os.cpu_count() or 1) - 1)
        with _beside(_burn, at, case.burners or min(case.processes, cores)):
            before = victim.observe(at, case.seconds / 2)
        with _beside(case.attack, at, case.processes) as attackers:
            machine = _Machine([os.getpid(), *product, *attackers])
            during = victim.observe(at, case.seconds)
            foreign_share = machine.foreign_share()
        afterwards_s, failed = _tried_ping(at)
        core_s, worker_s = longest_turns_s(at)
        during_s, before_s = statistics.median(during.pings_s), statistics.median(before.pings_s)
        return Impact(
            during_s,
            max(during.pings_s),
            during_s / max(before_s, LEAST_DENOMINATOR_S),
            foreign_share,
            max(before.pings_s),
            afterwards_s,
            during.rate / before.rate,
            during.most_bytes - before.least_bytes,
            core_s,
            worker_s,
            during.failed + failed,
            statistics.median(during.pages_s) if case.http else 0.0,
            during.failed_pages,
        )


# ---- the victim -----------------------------------------------------------------------------------------------------


_pings = count()


def ping(at: Address) -> float:
    """Return the time in which the victim logs in, sends, receives and accepts. Raises `OSError`, `EOFError`."""
    queue = f"victim.ping.{next(_pings) % 4}"
    begun_s = time.perf_counter()
    wire = at.log_in("victim")
    try:
        wire.attach("out", 0, queue, sends=True)
        wire.say(transfer(0, message("ping", durable=True)))
        wire.until(DISPOSITION)
        wire.attach("in", 1, queue, sends=False)
        wire.say(flow(1, 1))
        fields, _ = wire.until(TRANSFER)
        number = fields[1]
        assert isinstance(number, int)
        wire.say(performative(DISPOSITION, TRUE, uint(number), uint(number), TRUE, performative(0x24)))
        wire.say(performative(CLOSE))
        while wire.next()[0] != CLOSE:
            pass
        return time.perf_counter() - begun_s
    finally:
        wire.sock.close()


def _tried_ping(at: Address) -> tuple[float, bool]:
    """Return the time of a ping, `PATIENCE_S` if it fails, and whether it failed: refused, closed or too slow."""
    try:
        return ping(at), False
    except (OSError, EOFError, AssertionError):
        return PATIENCE_S, True


def _tried_page(visitor: ApiClient) -> tuple[float, bool]:
    """Return the time of a page of the console, `PATIENCE_S` if it fails, and whether it failed."""
    begun_s = time.perf_counter()
    try:
        is_failed = visitor.api("GET", "/queues/victim.steady").status != 200
    except (OSError, HTTPException):
        is_failed = True
    return PATIENCE_S if is_failed else time.perf_counter() - begun_s, is_failed


class Observed(NamedTuple):
    """Measurements of the victim in one phase."""

    pings_s: list[float]
    failed: int
    rate: float
    """The rate of messages confirmed to the producer, per second."""
    least_bytes: int
    most_bytes: int
    pages_s: list[float]
    failed_pages: int


class _Producer:
    """A connection that sends at a steady rate, and samples the memory of the broker."""

    def __init__(self, at: Address, product: list[int]) -> None:
        self._product = product
        self._wire = at.log_in("victim")
        self._wire.say(attach("steady", 0, "victim.steady", sends=True))
        self._limit = self._sent = self.confirmed = 0
        self._over = False
        self._visitor = ApiClient(at.http_port) if at.http_port else None
        if self._visitor is not None:
            assert self._visitor.login("victim", PASSWORDS["victim"]).status == 201
        self.sizes_bytes: list[int] = []
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._read, self._send)]
        for thread in self._threads:
            thread.start()

    def observe(self, at: Address, seconds: float) -> Observed:
        """Ping for *seconds*, and at least `FEWEST_PINGS` times unless that takes more than four times as long."""
        self.sizes_bytes = [_resident_bytes(self._product)]
        begun_s, confirmed = time.perf_counter(), self.confirmed
        pings_s: list[float] = []
        pages_s: list[float] = []
        failed = failed_pages = 0
        while True:
            passed_s = time.perf_counter() - begun_s
            if passed_s >= seconds and (len(pings_s) >= FEWEST_PINGS or passed_s > 4 * seconds):
                break
            took_s, is_failed = _tried_ping(at)
            pings_s.append(took_s)
            failed += is_failed
            if self._visitor is not None:
                took_s, is_failed = _tried_page(self._visitor)
                pages_s.append(took_s)
                failed_pages += is_failed
        rate = (self.confirmed - confirmed) / (time.perf_counter() - begun_s)
        return Observed(pings_s, failed, rate, min(self.sizes_bytes), max(self.sizes_bytes), pages_s, failed_pages)

    def stop(self) -> None:
        self._over = True
        self._threads[1].join()
        with suppress(OSError):
            self._wire.sock.shutdown(2)
        self._threads[0].join()
        self._wire.sock.close()

    def _send(self) -> None:
        each, content = int(PRODUCER_RATE * PRODUCER_EVERY_S), message("steady", durable=True)
        due_s = time.perf_counter()
        with suppress(OSError):
            while not self._over:
                many = min(each, self._limit - self._sent)
                if many > 0:
                    self._wire.say(*[transfer(self._sent + number, content) for number in range(many)])
                    self._sent += many
                self.sizes_bytes.append(_resident_bytes(self._product))
                due_s = max(due_s + PRODUCER_EVERY_S, time.perf_counter())
                time.sleep(max(0.0, due_s - time.perf_counter()))

    def _read(self) -> None:
        self._wire.sock.settimeout(None)
        with suppress(OSError, EOFError):
            while not self._over:
                code, _, body = self._wire.next()
                fields: list[Any] = read_items(body, descriptor(body, 0)[1])
                if code == FLOW and len(fields) > 6:
                    self._limit = fields[5] + fields[6]
                elif code == DISPOSITION:
                    first, last = fields[1:3]
                    self.confirmed += (first if last is None else last) - first + 1


@contextmanager
def _producing(at: Address, product: list[int]) -> Iterator[_Producer]:
    producer = _Producer(at, product)
    try:
        yield producer
    finally:
        producer.stop()


# ---- the broker -----------------------------------------------------------------------------------------------------


def _resident_bytes(pids: list[int]) -> int:
    found = 0
    for pid in pids:
        with open(f"/proc/{pid}/statm") as file:
            found += int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return found


def longest_turns_s(at: Address) -> tuple[float, float]:
    """Return the longest turns of the core and of the workers in the last 15 to 30 seconds."""
    with urllib.request.urlopen(f"http://127.0.0.1:{at.metrics_port}/metrics", timeout=PATIENCE_S) as page:
        text = page.read().decode()

    def value(name: str) -> float:
        match = re.search(rf"^cairnmq_{name}_longest_turn_seconds (\S+)$", text, re.MULTILINE)
        assert match, name
        return float(match[1])

    return value("core"), value("worker")


class _Machine:
    """A meter of the share of the machine's CPU time that processes outside the measurement use."""

    def __init__(self, own: list[int]) -> None:
        """*own*: the IDs of the processes of the measurement, which run until its end."""
        self._own = own
        self._begun = self._ticks()

    def foreign_share(self) -> float:
        all_, busy, own = (now - then for now, then in zip(self._ticks(), self._begun, strict=True))
        return max(0, busy - own) / max(1, all_)

    def _ticks(self) -> tuple[int, int, int]:
        """Return clock ticks of all cores: all, those not idle (stolen ones included), and those of *own* processes.

        Ended children of these count, too: the history readers of the console.
        """
        with open("/proc/stat") as file:
            user, nice, system, idle, waits, irq, softirq, stolen = map(int, file.readline().split()[1:9])
        busy = user + nice + system + irq + softirq + stolen
        own = 0
        for pid in self._own:
            with open(f"/proc/{pid}/stat") as file:
                own += sum(map(int, file.read().rpartition(")")[2].split()[11:15]))
        return busy + idle + waits, busy, own


# ---- the attack -----------------------------------------------------------------------------------------------------


@contextmanager
def _beside(attack: Attack, at: Address, processes: int) -> Iterator[list[int]]:
    """Run *attack* in *processes* processes; yield their IDs when all of them have begun."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    begun = [context.Event() for _ in range(processes)]
    started = [context.Process(target=_attack, args=(attack, at, one, stop), daemon=True) for one in begun]
    for process in started:
        process.start()
    try:
        for event, process in zip(begun, started, strict=True):
            while not event.wait(0.1):
                assert process.is_alive(), f"the attack {attack.__name__} ended before it began"
        yield [process.pid for process in started if process.pid is not None]
    finally:
        stop.set()
        for process in started:
            process.join(1.0)
            if process.is_alive():
                process.kill()
                process.join()


def _attack(attack: Attack, at: Address, begun: Event, stop: Event) -> None:
    def proceed() -> bool:
        if not begun.is_set():
            begun.set()
        return not stop.is_set()

    while not stop.is_set():
        with suppress(OSError, EOFError):
            attack(at, proceed)


def _burn(at: Address, proceed: Proceed) -> None:
    """Burn CPU without using the broker, as the yardstick."""
    number = 0
    while proceed():
        for _ in range(10_000):
            number += 1
