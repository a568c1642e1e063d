"""Breakdown of the CPU time of a broker, sampled during a transfer of messages from one sender to one receiver.

py-spy samples the threads of the broker from outside, hundreds of times per second, with a short pause for each sample.
Each sample counts for the part that contains the innermost Python function, which includes the C code that the function
calls, such as proton or a system call. Samples of waiting threads are omitted. The time of a part per message is its
share of the CPU time of the broker as measured by the operating system.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from itertools import count

from .broker import Broker
from .client import Clients, Job
from .table import BenchError, Row, row

SECTION = "1 s / CPU time of a durable message"
PARTS = {
    "proton and its driver": ("amqp/",),
    "sockets and turns": ("router/",),
    "the core": ("broker/", "management/"),
    "store and journal": ("store/", "journal/", "base/disk/", "recovery/"),
    "the rest": ("",),
}
_GUESSES_US = (4.5, 1.0, 2.5, 3.5, 0.5)
_WAITING = ("(threading.py:", "_worker (concurrent/futures/", "Flusher._turn (", "Worker._step (")
"""Innermost functions of threads that wait for other threads, for work, or for sockets."""
SAMPLES_PER_S = 300


def installed() -> str:
    """Return the path of py-spy, or an empty string if it is not installed."""
    return shutil.which("py-spy", path=os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))) or ""


def left_out() -> list[str]:
    """Return a remark if py-spy, and thus the breakdown, is missing."""
    return [] if installed() else ["where the CPU time goes is left out: pip install py-spy"]


def measure(path: str, rounds: int, round_s: float) -> list[Row]:
    """Measure all parts for about *round_s* per round; return no rows without py-spy."""
    program = installed()
    if not program:
        return []
    found: dict[str, list[float]] = {part: [] for part in PARTS}
    messages = max(1000, round(1e6 / 12 * round_s))
    addresses = (f"parts-{number}" for number in count())
    with Broker(path) as broker, Clients() as clients:
        for _ in range(rounds):
            for part, us in _round(program, path, broker, clients, next(addresses), messages).items():
                found[part].append(1e6 / us)
    complete = [sum(1e6 / rates[number] for rates in found.values()) for number in range(rounds)]
    return [
        row(SECTION, part, found[part], 1e6 / guess_us, "all of it", [1e6 / us for us in complete])
        for part, guess_us in zip(PARTS, _GUESSES_US, strict=True)
    ]


def _round(program: str, path: str, broker: Broker, clients: Clients, address: str, messages: int) -> dict[str, float]:
    """Run one round and return the CPU time of each part per message in microseconds."""
    samples_path = os.path.join(path, "samples")
    command = [program, "record", "-p", str(broker.pid), "-f", "raw", "-o", samples_path, "-r", str(SAMPLES_PER_S)]
    with subprocess.Popen([*command, "-d", "3600"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as spy:
        assert spy.stdout is not None
        spy.stdout.readline()  # sampling has begun
        before_s = broker.cpu_s()
        clients.run_all([Job(sender, broker.port, address, messages, 256, 1000, True) for sender in (False, True)])
        broker_us = (broker.cpu_s() - before_s) / messages * 1e6
        spy.send_signal(2)
        said = spy.stdout.read()
    if not os.path.exists(samples_path):
        raise BenchError(f"py-spy wrote no samples: {said}")
    with open(samples_path) as samples:
        counted = Counter(dict.fromkeys(PARTS, 1))  # a part of zero would have an infinite rate
        for line in samples:
            stack, _, number = line.rpartition(" ")
            part = _part_of(stack.rpartition(";")[2])
            if part:
                counted[part] += int(number)
    os.unlink(samples_path)
    return {part: broker_us * counted[part] / counted.total() for part in PARTS}


def _part_of(function: str) -> str:
    """Return the part of *function* (a name with file and line in parentheses), or an empty string if it waits."""
    if any(waiting in function for waiting in _WAITING):
        return ""
    place = function.rpartition("(")[2]
    return next(part for part, folders in PARTS.items() if any(place.startswith(folder) for folder in folders))
