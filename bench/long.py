"""A very long message passes through the broker, and small ones beside it.

One durable message is streamed in and then out again, each by a client of its own, while small durable messages go one
at a time over other connections. Told are the 99th percentile of these, sent until settled, beside an idle broker,
beside the long message coming and beside it going, and how much memory the broker took meanwhile. A yardstick for a
disk and cores that are busy: the same while a file of that length is written and synced, with no broker in between.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable
from itertools import count
from statistics import median
from typing import Any, NamedTuple

from cairnmq.amqp.proton import ACCEPTED, ffi, lib

from .broker import Broker
from .client import Clients, Wire
from .table import BenchError

CHUNK_BYTES = 60_000
_AHEAD_BYTES = 1 << 20
_HEADER = b"\x00\x53\x70\xc0\x02\x01\x41"


def stream_in(port: int, address: str, size_bytes: int) -> None:
    """Send one durable message of that length, and wait until it is accepted."""
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
        while lib.pn_session_outgoing_bytes(session) > _AHEAD_BYTES:  # the window is closed
            wire.turn()
            wire.flush()  # else what the window lets go would be written only to wait for one more word
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
    """Receive and accept one message, which must have that much content."""
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


def write_beside(path: str, size_bytes: int) -> None:
    """Write a file of that length, a mebibyte and a sync at a time."""
    block = bytes(1 << 20)
    with open(path, "wb", buffering=0) as file:
        for _ in range(max(1, size_bytes >> 20)):
            file.write(block)
            os.fdatasync(file.fileno())
    os.unlink(path)


class Found(NamedTuple):
    """What one round found."""

    idle_p99_us: float
    disk_p99_us: float
    """Beside a file being written."""
    in_p99_us: float
    out_p99_us: float
    grown_bytes: int
    """How much the broker's memory was above where it began, at most."""


class _Beside:
    """Something done in another process, and whether it is done."""

    def __init__(self, work: Callable[..., None], *args: Any) -> None:
        self._process = multiprocessing.get_context("spawn").Process(target=work, args=args)
        self._process.start()

    def done(self) -> bool:
        return not self._process.is_alive()

    def finish(self) -> None:
        self._process.join()
        if self._process.exitcode:
            raise BenchError("the client of the long message failed")


def measure_once(broker: Broker, clients: Clients, path: str, size_bytes: int, messages: int, number: int) -> Found:
    """One round. Small messages go *messages* at a time, for as long as the long one is on its way."""
    names = (f"small-{number}-{name}" for name in count())
    address = f"long-{number}"

    def p99_us(done: Callable[[], bool]) -> float:
        found: list[float] = []
        while not found or not done():
            found.append(clients.run(broker.port, next(names), messages, 256, 1, durable=True)[0].latency.p99_us)
        return median(found)

    p99_us(lambda: True)  # everything was done once
    broker.reset_peak()
    before_bytes = broker.peak_bytes()
    idle = median([p99_us(lambda: True) for _ in range(3)])
    found: list[float] = []
    for work in (
        (write_beside, os.path.join(path, "beside"), size_bytes),
        (stream_in, broker.port, address, size_bytes),
        (stream_out, broker.port, address, size_bytes),
    ):
        beside = _Beside(*work)
        found.append(p99_us(beside.done))
        beside.finish()
    disk, coming, going = found
    return Found(idle, disk, coming, going, broker.peak_bytes() - before_bytes)


def main(path: str, size_bytes: int, rounds: int, messages: int = 300) -> None:
    """Print what was found."""
    with Broker(path, "--max-message-size", str(size_bytes * 2)) as broker, Clients() as clients:
        for number in range(rounds):
            found = measure_once(broker, clients, path, size_bytes, messages, number)
            print(
                f"p99 of small ones: idle {found.idle_p99_us:.0f} us, beside a file {found.disk_p99_us:.0f},"
                f" long coming {found.in_p99_us:.0f} ({found.in_p99_us / found.idle_p99_us:.1f}x),"
                f" going {found.out_p99_us:.0f} ({found.out_p99_us / found.idle_p99_us:.1f}x);"
                f" memory {found.grown_bytes / (1 << 20):+.0f} MiB",
                flush=True,
            )
