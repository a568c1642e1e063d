"""Benchmarks of many idle connections and queues: their memory, and their effect on the rate of a queue in use.

Each round measures the rate of one queue with one sender and one receiver on a new broker, opens connections or creates
queues, and measures again. Queues are created by attaching to each, many at a time. The note contains the memory per
connection or queue, from the resident memory of the broker before and after.
"""

from __future__ import annotations

import os
import resource
import socket
from statistics import median

from .broker import Broker
from .client import Clients, Job
from .table import Row, row
from .wire import Wire

SECTION = "scale: durable, 256 B, 100 in flight"
CONNECTIONS, QUEUES = 5_000, 10_000
AT_ONCE = 200
"""Number of links per connection that creates queues."""
_GUESS_PER_S = 1e6 / 15
_GOAL_RATIO = 0.9
_FREE_FILES = 64


def measure(path: str, rounds: int, round_s: float, connections: int, queues: int) -> list[Row]:
    """Measure idle connections and idle queues on brokers whose stores are in *path*."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    connections = min(connections, max(1, hard - _FREE_FILES))
    try:
        return [
            _measure(os.path.join(path, what), rounds, round_s, what, number)
            for what, number in (("connections", connections), ("queues", queues))
        ]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _measure(path: str, rounds: int, round_s: float, what: str, number: int) -> Row:
    before: list[float] = []
    after: list[float] = []
    grown_bytes: list[float] = []
    messages = max(10, round(_GUESS_PER_S * round_s))
    with Clients() as clients:
        for turn in range(rounds):
            with Broker(os.path.join(path, str(turn)), "--max-connections", str(number + 100)) as broker:
                clients.run(broker.port, "warm", messages, 256, 100, durable=True)
                before.append(_rate(clients, broker, "before", messages))
                resident = broker.resident_bytes()
                idle = _connect(broker.port, number) if what == "connections" else _make_queues(broker.port, number)
                grown_bytes.append((broker.resident_bytes() - resident) / number)
                after.append(_rate(clients, broker, "after", messages))
                for wire in idle:
                    wire.free()
    return row(
        SECTION,
        f"beside {number:,} idle {what}",
        after,
        _GUESS_PER_S,
        "alone",
        before,
        goal_ratio=_GOAL_RATIO,
        note=f"{median(grown_bytes) / 1024:.1f} KiB of memory for each of the {what}",
    )


def _rate(clients: Clients, broker: Broker, address: str, messages: int) -> float:
    receiver, sender = (Job(is_sender, broker.port, address, messages, 256, 100, True) for is_sender in (False, True))
    came, sent = clients.run_all([receiver, sender])
    return messages / (came.ended_ns - sent.begun_ns) * 1e9


def _connect(port: int, number: int) -> list[Wire]:
    """Open *number* connections, each with a session and a receiving link to the same queue without credit."""
    wires: list[Wire] = []
    for index in range(number):
        wire = Wire(socket.create_connection(("127.0.0.1", port)), f"idle-{index}", buffer_bytes=4096)
        wire.attach("idle", "idle", sender=False)
        wires.append(wire)
    return wires


def _make_queues(port: int, number: int) -> list[Wire]:
    """Create *number* queues by attaching to each, close the links with their connections, and return no wires."""
    for begin in range(0, number, AT_ONCE):
        wire = Wire(socket.create_connection(("127.0.0.1", port)), "maker")
        wire.attach_all([f"idle-{index}" for index in range(begin, min(begin + AT_ONCE, number))])
        wire.close()
        wire.free()
    return []
