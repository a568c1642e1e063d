"""The load client: one sender or one receiver, with a separate connection in a separate process.

The client must not be the bottleneck, and shares the cores with the broker. Therefore, it calls the C functions of
proton and collects no events. A receiver reads the current delivery of its link; a sender checks its oldest unsettled
delivery, as a broker settles in order of receipt (the rate of another broker would be underestimated).

Every message is checked completely. All messages have the same encoding and differ only in their numbers:

header section  durable flag
data section    body: sequence (8 bytes), time of sending in ns (8 bytes), then the same bytes in every message

Thus the receiver proves that no message was lost, duplicated, reordered or altered.
"""

from __future__ import annotations

import multiprocessing
import socket
import struct
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from cairnmq.amqp.codec.header import redelivered
from cairnmq.amqp.native.proton_ffi import ACCEPTED, Pointer, ffi, lib
from cairnmq.tools.lab.cluster_lab import Lab
from cairnmq.tools.lab.cluster_lab_conf import address

from .table import BenchError, Percentiles
from .wire import FRAME_BYTES, Wire

MIN_BODY_BYTES = 32
FRAME_BODY_BYTES = 60_000
"""Largest body of a message in a single frame, as `send` and `receive` require."""
BURST = 100
"""Maximum number of messages passed to proton before its output is written."""
NUMBERS = struct.Struct("<QQ")


class Far(NamedTuple):
    """A node of a lab of daemons, in whose namespace the client connects to the broker."""

    lab: str
    root: str
    node: int


class Job(NamedTuple):
    """A job for one client process."""

    sender: bool
    port: int
    """Port of the broker on loopback; 0: the receiver waits for the connection of the sender."""
    address: str
    messages: int
    body_bytes: int
    window: int
    """Sender: maximum number of unsettled messages. Receiver: credit."""
    durable: bool
    recovered: bool = False
    """Receiver: whether the broker was restarted, so that messages are marked as possibly delivered."""
    work: Callable[[Wire, Job], Result] | None = None
    """Replacement for `send` or `receive`; a module-level function, as it is sent to another process."""
    rate_per_s: float = 0.0
    """Messages per second of `works.send_paced`."""
    per_transaction: int = 0
    """Messages per transaction of `works.send_in_transactions`."""
    far: Far | None = None
    """Lab node of the broker, unless on loopback."""
    sharers: int = 1
    """Receivers of the queue in `works.receive_share`; each also receives a message that marks the end."""


class Result(NamedTuple):
    """The result of a job, with times of `time.monotonic_ns`, which are comparable between processes."""

    begun_ns: int
    ended_ns: int
    latency: Percentiles
    """Sender: times from sent to settled. Receiver: times from sent to received."""
    cpu_s: float
    sequences: Sequence[int] = ()
    """Sequences of the messages delivered to one receiver of a shared queue."""


# ---- messages -----------------------------------------------------------------------------------------------------


class Template:
    """An encoded message and the position of its numbers."""

    def __init__(self, body_bytes: int, durable: bool, recovered: bool = False) -> None:
        if body_bytes < MIN_BODY_BYTES:
            raise BenchError(f"a body of {body_bytes} bytes: {MIN_BODY_BYTES} at least can be measured")
        header = b"\x00\x53\x70\xc0\x02\x01" + (b"\x41" if durable else b"\x42")
        if recovered:
            header = redelivered(header, 1)
        size = b"\xa0" + bytes((body_bytes,)) if body_bytes < 256 else b"\xb0" + body_bytes.to_bytes(4)
        self.prefix = header + b"\x00\x53\x75" + size
        self.place = len(self.prefix)
        filler = bytes(number * 31 + 7 & 0xFF for number in range(256)) * (body_bytes // 256 + 1)
        self.filler = filler[: body_bytes - NUMBERS.size]
        self.encoded = self.prefix + bytes(NUMBERS.size) + self.filler


def percentiles(times_ns: list[int]) -> Percentiles:
    ordered = sorted(times_ns)
    last = len(ordered) - 1
    return Percentiles(*(ordered[last * part // 1000] / 1000 for part in (500, 990, 999)))


# ---- jobs ---------------------------------------------------------------------------------------------------------


def send(wire: Wire, job: Job) -> Result:
    """Send all messages, each once, and wait until all are accepted."""
    template = Template(job.body_bytes, job.durable)
    message = bytearray(template.encoded)
    pointer, size, place = ffi.from_buffer("char[]", message), len(message), template.place
    number = ffi.new("uint64_t *")
    tag = ffi.new("pn_delivery_tag_t *", {"size": 8, "start": ffi.cast("char *", number)})
    make, put, advance, credit_of = lib.pn_delivery, lib.pn_link_send, lib.pn_link_advance, lib.pn_link_credit
    state_of, settle, pack = lib.pn_delivery_remote_state, lib.pn_delivery_settle, NUMBERS.pack_into
    link, count, window = wire.link, job.messages, job.window
    flying: deque[Pointer] = deque()
    sent_ns, settled_ns = array("Q"), array("Q")
    sent = settled = 0
    begun_ns, begun_cpu_s = now_ns(), time.process_time()
    while settled < count:
        room = min(count - sent, window - len(flying), credit_of(link), BURST)
        while room > 0:
            at_ns = now_ns()
            for sequence in range(sent, sent + room):
                pack(message, place, sequence, at_ns)
                number[0] = sequence
                flying.append(make(link, tag[0]))
                put(link, pointer, size)
                advance(link)
            sent += room
            sent_ns.extend([at_ns] * room)
            wire.write()
            room = min(count - sent, window - len(flying), credit_of(link), BURST)
        wire.turn()
        before = settled
        while flying and (state := state_of(flying[0])):
            if state != ACCEPTED:
                raise BenchError(f"message {settled} was not accepted, but given state {state:#x}")
            settle(flying.popleft())
            settled += 1
        if settled > before:
            settled_ns.extend([now_ns()] * (settled - before))
    ended_ns, cpu_s = now_ns(), time.process_time() - begun_cpu_s
    times_ns = [end - begin for begin, end in zip(sent_ns, settled_ns, strict=True)]
    return Result(begun_ns, ended_ns, percentiles(times_ns), cpu_s)


def receive(wire: Wire, job: Job) -> Result:
    """Receive and accept all messages, check each of them, and check that no more arrive."""
    template = Template(job.body_bytes, job.durable, job.recovered)
    prefix, filler, size, place = template.prefix, template.filler, len(template.encoded), template.place
    message = bytearray(FRAME_BYTES)
    pointer, room = ffi.from_buffer("char[]", message), len(message)
    recv, current, advance, queued_at = lib.pn_link_recv, lib.pn_link_current, lib.pn_link_advance, lib.pn_link_queued
    update, settle, unpack = lib.pn_delivery_update, lib.pn_delivery_settle, NUMBERS.unpack_from
    link, count = wire.link, job.messages
    times_ns = array("q")
    received = owed = 0
    begun_ns, begun_cpu_s = now_ns(), time.process_time()
    while received < count:
        wire.turn()
        queued = queued_at(link)
        at_ns = now_ns()
        for sequence in range(received, received + queued):
            delivery = current(link)
            got = recv(link, pointer, room)
            found, sent_at_ns = unpack(message, place)
            if got != size or found != sequence or not _same(message, prefix, filler, size):
                raise BenchError(_difference(message[: max(got, 0)], template, sequence))
            times_ns.append(at_ns - sent_at_ns)
            advance(link)
            update(delivery, ACCEPTED)
            settle(delivery)
        received += queued
        owed += queued
        if owed * 4 >= job.window:
            lib.pn_link_flow(link, owed)
            owed = 0
        wire.write()
    ended_ns, cpu_s = now_ns(), time.process_time() - begun_cpu_s
    if received > count:
        raise BenchError(f"{received} messages came, {count} were sent")
    return Result(begun_ns, ended_ns, percentiles(list(times_ns)), cpu_s)


now_ns = time.monotonic_ns


def _same(message: bytearray, prefix: bytes, filler: bytes, size: int) -> bool:
    return message.startswith(prefix) and message.endswith(filler, 0, size)


def _difference(message: bytes | bytearray, template: Template, sequence: int) -> str:
    """Return a description of the error in *message*."""
    if len(message) != len(template.encoded):
        return f"message {sequence}: {len(message)} bytes came, {len(template.encoded)} were sent"
    found = NUMBERS.unpack_from(message, template.place)[0]
    if _same(bytearray(message), template.prefix, template.filler, len(message)):
        return f"message {found} came where message {sequence} should have"
    return f"message {sequence} was altered"


# ---- processes ----------------------------------------------------------------------------------------------------


def _do(job: Job, listener: socket.socket, tell: Callable[[object], None], await_go: Callable[[], object]) -> Result:
    name = f"bench-{'sender' if job.sender else 'receiver'}"
    if job.port:
        wire = Wire(_connect(job), name)
        wire.attach(job.address, name, sender=job.sender)
    else:
        wire = Wire(listener.accept()[0], name, server=True)
        wire.await_attach()
    try:
        if not job.sender:
            lib.pn_link_flow(wire.link, job.window)
        wire.write()
        tell("ready")
        await_go()
        result = (job.work or (send if job.sender else receive))(wire, job)
        wire.close()
        if not job.sender and job.sharers == 1 and (more := lib.pn_link_queued(wire.link)):
            raise BenchError(f"{more} messages came after all {job.messages} had come")
        return result
    finally:
        wire.free()


def _connect(job: Job) -> socket.socket:
    if job.far is None:
        return socket.create_connection(("127.0.0.1", job.port))
    with Lab(job.far.lab, Path(job.far.root)).inside(job.far.node):
        return socket.create_connection((address(job.far.node), job.port))


def _serve(pipe: Connection) -> None:
    """Run a client process: send its port for peers, then do one job at a time."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pipe.send(listener.getsockname()[1])
        while (job := pipe.recv()) is not None:
            try:
                pipe.send(_do(job, listener, pipe.send, pipe.recv))
            except (BenchError, OSError) as error:
                pipe.send(BenchError(f"{'sender' if job.sender else 'receiver'}: {error}"))


class Clients:
    """A sender and a receiver, or more client processes, for any number of jobs."""

    def __init__(self, number: int = 2) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes = []
        self.ports: list[int] = []
        for _ in range(number):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        for pipe in self._pipes:
            self.ports.append(pipe.recv())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.send(None) if error is None else process.kill()
            process.join()
            pipe.close()

    def run(
        self, port: int, address: str, messages: int, body_bytes: int, window: int, durable: bool
    ) -> tuple[Result, Result]:
        """Run a sender and a receiver at the same time and return both results.

        *port* is the port of the broker, or 0 to connect the sender to the receiver, which shows the client's limit.
        """
        sending, receiving = self._pipes[:2]
        receiving.send(Job(False, port, address, messages, body_bytes, window, durable))
        if port:
            self._answer(receiving)
        sending.send(Job(True, port or self.ports[1], address, messages, body_bytes, window, durable))
        self._answer(sending)
        if not port:
            self._answer(receiving)
        for pipe in (receiving, sending):
            pipe.send("go")
        results: list[Result] = []
        for pipe in (sending, receiving):
            result = self._answer(pipe)
            assert isinstance(result, Result)
            results.append(result)
        return results[0], results[1]

    def run_all(self, jobs: Sequence[Job]) -> list[Result]:
        """Run all *jobs* at the same time on one broker and return their results; receivers attach first."""
        for sender in (False, True):
            those = [(job, pipe) for job, pipe in zip(jobs, self._pipes, strict=False) if job.sender is sender]
            for job, pipe in those:
                pipe.send(job)
            for _, pipe in those:
                self._answer(pipe)
        for pipe in self._pipes[: len(jobs)]:
            pipe.send("go")
        results: list[Result] = []
        for pipe in self._pipes[: len(jobs)]:
            result = self._answer(pipe)
            assert isinstance(result, Result)
            results.append(result)
        return results

    def run_one(self, job: Job) -> Result:
        """Run one sender or receiver alone and return its result."""
        pipe = self._pipes[0 if job.sender else 1]
        pipe.send(job)
        self._answer(pipe)
        pipe.send("go")
        result = self._answer(pipe)
        assert isinstance(result, Result)
        return result

    def _answer(self, pipe: Connection) -> object:
        try:
            answer = pipe.recv()
        except EOFError:
            raise BenchError("a client process died") from None
        if isinstance(answer, BenchError):
            raise answer
        return answer
