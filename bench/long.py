"""Benchmarks of small messages during the transfer of a very long message through the broker.

A durable message is streamed in and then out by two separate clients, while small durable messages are sent one at a
time over other connections. The results are:

* the 99th percentile of the time of a small message from sent to settled, with an otherwise idle broker, while the long
  message arrives, and while it is delivered
* the growth of the memory of the broker, and the rate of the long message relative to its rate alone

The yardstick for the disk is the percentile while a file is written and synced directly at the rate of the long
message. The yardstick for the machine is the percentile while the long message passes through another broker; only the
excess over that yardstick is due to the measured broker.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from itertools import count
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, NamedTuple

from cairnmq.amqp.native.proton_ffi import ACCEPTED, ffi, lib

from .broker import Broker
from .client import Clients
from .table import BenchError, Row, row, show_size
from .wire import Wire

CHUNK_BYTES = 60_000
SECTION = "1 / p99 of a small durable message"
_GOAL = 0.5
"""Goal: the time of a small message at most doubles."""
_AHEAD_BYTES = 1 << 20
_HEADER = b"\x00\x53\x70\xc0\x02\x01\x41"


def stream_in(port: int, address: str, size_bytes: int) -> None:
    """Send one durable message of *size_bytes* and wait for its acceptance."""
    wire = Wire(socket.create_connection(("127.0.0.1", port)), "long-sender")
    wire.attach(address, "long", sender=True)
    link, session = wire.link, lib.pn_link_session(wire.link)
    while not lib.pn_link_credit(link):
        wire.turn()
    tag = ffi.new("char[]", b"long")
    delivery = lib.pn_delivery(link, ffi.new("pn_delivery_tag_t *", {"size": 4, "start": tag})[0])
    chunk = bytes(range(256)) * (CHUNK_BYTES // 256)
    put = lib.pn_link_send
    start = _HEADER + b"\x00\x53\x75\xb0" + min(size_bytes, 0xFFFFFFFF).to_bytes(4)
    put(link, start, len(start))
    left = size_bytes
    while left:
        while lib.pn_session_outgoing_bytes(session) > _AHEAD_BYTES:  # the session window is closed
            wire.turn()
            wire.flush()  # otherwise the next turn would wait for input after writing
        part = min(left, len(chunk))
        put(link, chunk, part)
        left -= part
        wire.flush()
    lib.pn_link_advance(link)
    while not (state := lib.pn_delivery_remote_state(delivery)):
        wire.turn()
    if state != ACCEPTED:
        raise BenchError(f"the long message was not accepted, but given state {state:#x}")
    wire.close()
    wire.free()


def stream_out(port: int, address: str, size_bytes: int) -> None:
    """Receive and accept one message; check that its content has *size_bytes*."""
    wire = Wire(socket.create_connection(("127.0.0.1", port)), "long-receiver")
    wire.attach(address, "long", sender=False)
    link, room = wire.link, 1 << 20
    buffer = ffi.new("char[]", room)
    lib.pn_link_flow(link, 1)
    got = 0
    while True:
        wire.turn()
        delivery = lib.pn_link_current(link)
        if not delivery:
            continue
        while (size := lib.pn_link_recv(link, buffer, room)) > 0:
            got += size
        if not lib.pn_delivery_partial(delivery):
            break
    if got != size_bytes + len(_HEADER) + 8:
        raise BenchError(f"{got} bytes came of a message of {size_bytes}")
    lib.pn_link_advance(link)
    lib.pn_delivery_update(delivery, ACCEPTED)
    lib.pn_delivery_settle(delivery)
    wire.write()
    wire.close()
    wire.free()


def write_beside(path: str, size_bytes: int, per_s: float) -> None:
    """Write a file of *size_bytes* at *per_s* bytes per second, with a sync after each MiB."""
    block, begun_s, written = bytes(1 << 20), time.monotonic(), 0
    with open(path, "wb", buffering=0) as file:
        while written < size_bytes:
            file.write(block)
            os.fdatasync(file.fileno())
            written += len(block)
            time.sleep(max(0.0, begun_s + written / per_s - time.monotonic()))
    os.unlink(path)


class Found(NamedTuple):
    """The measurements of one round, where each percentile is the median over the batches of small messages."""

    idle_p99_us: float
    in_p99_us: float
    disk_p99_us: float
    """Percentile while a file is written."""
    far_in_p99_us: float
    """Percentile while the long message arrives at another broker."""
    out_p99_us: float
    far_out_p99_us: float
    in_share: float
    """Rate of the arriving long message among small messages, as a fraction of its rate alone."""
    out_share: float
    grown_bytes: int
    """Maximum growth of the memory of the broker."""


class _Beside:
    """Work in another process with a measured duration."""

    def __init__(self, work: Callable[..., None], *args: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_timed, args=(theirs, work, *args))
        self._process.start()
        theirs.close()

    def done(self) -> bool:
        return not self._process.is_alive()

    def finish(self) -> float:
        """Wait for the end of the work and return its duration in seconds."""
        try:
            took_s = self._pipe.recv()
        except EOFError:
            raise BenchError("the client of the long message failed") from None
        self._process.join()
        assert isinstance(took_s, float)
        return took_s


def _timed(pipe: Connection, work: Callable[..., None], *args: Any) -> None:
    begun_s = time.monotonic()
    work(*args)
    pipe.send(time.monotonic() - begun_s)


def measure_once(
    broker: Broker, far: Broker, clients: Clients, path: str, size_bytes: int, messages: int, number: int
) -> Found:
    """Measure one round: batches of *messages* small messages on *broker* while a long message is in transit."""
    names = (f"small-{number}-{name}" for name in count())
    address = f"long-{number}"

    def p99_us(done: Callable[[], bool]) -> float:
        found: list[float] = []
        while not found or not done():
            found.append(clients.run(broker.port, next(names), messages, 256, 1, durable=True)[0].latency.p99_us)
        return median(found)

    def beside(work: Callable[..., None], *args: Any) -> tuple[float, float]:
        """Return the percentile and the duration of *work* in seconds."""
        other = _Beside(work, *args)
        return p99_us(other.done), other.finish()

    p99_us(lambda: True)  # warm-up
    broker.reset_peak()
    before_bytes = broker.peak_bytes()
    alone_in_s = _Beside(stream_in, broker.port, address, size_bytes).finish()
    alone_out_s = _Beside(stream_out, broker.port, address, size_bytes).finish()
    idle_us = median([p99_us(lambda: True) for _ in range(3)])
    in_us, in_s = beside(stream_in, broker.port, address, size_bytes)
    disk_us, _ = beside(write_beside, os.path.join(path, "beside"), size_bytes, size_bytes / in_s)
    far_in_us, _ = beside(stream_in, far.port, address, size_bytes)
    out_us, out_s = beside(stream_out, broker.port, address, size_bytes)
    far_out_us, _ = beside(stream_out, far.port, address, size_bytes)
    grown_bytes = broker.peak_bytes() - before_bytes
    shares = alone_in_s / in_s, alone_out_s / out_s
    return Found(idle_us, in_us, disk_us, far_in_us, out_us, far_out_us, *shares, grown_bytes)


def measure(path: str, rounds: int, size_bytes: int, messages: int) -> list[Row]:
    """Measure all rounds with long messages of *size_bytes* on a broker whose store is in *path*."""
    options = "--max-message-size", str(size_bytes * 2)
    beside = os.path.join(path, "far")
    os.makedirs(beside)
    with Broker(path, *options) as broker, Broker(beside, *options) as far, Clients() as clients:
        found = [measure_once(broker, far, clients, path, size_bytes, messages, number) for number in range(rounds)]
    idle = [1e6 / one.idle_p99_us for one in found]
    size = show_size(size_bytes)
    shares = [
        f"{median(shares):.0%} of its rate alone"
        for shares in zip(*[(one.in_share, one.out_share) for one in found], strict=True)
    ]
    grown = f"the broker's memory grew by {max(one.grown_bytes for one in found) / (1 << 20):.0f} MiB at most"
    kinds = (
        (f"{size} coming", 1, _GOAL, f"it keeps {shares[0]}; {grown}"),
        ("a file written at that rate", 2, None, ""),
        (f"{size} coming to another broker", 3, None, ""),
        (f"{size} going", 4, _GOAL, f"it keeps {shares[1]}"),
        (f"{size} going from another broker", 5, None, ""),
    )
    return [
        row(
            SECTION,
            f"beside {what}",
            [1e6 / one[at] for one in found],
            1e6 / 3_000,
            "idle",
            idle,
            goal_ratio=goal,
            p99_us=median(one[at] for one in found),
            note=note,
        )
        for what, at, goal, note in kinds
    ]
