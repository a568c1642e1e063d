"""Jobs that send at a steady rate or in transactions, transfer messages of many frames, or share a queue."""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Sequence
from itertools import chain

from cairnmq.amqp.codec.transaction_types import DECLARED, TRANSACTIONAL, read_state, write_id
from cairnmq.amqp.native.proton_ffi import ACCEPTED, NULL, Pointer, encoded, ffi, lib, put_encoded

from .client import BURST, NUMBERS, Job, Result, Template, now_ns, percentiles
from .table import BenchError
from .wire import Wire

STEP_MS = 1
_CHUNK_BYTES = 60_000
_AHEAD_BYTES = 1 << 20
_DECLARE = b"\x00\x53\x77\x00\x53\x31\x45"
_DISCHARGE = b"\x00\x53\x77\x00\x53\x32\xc0"


class _Message:
    """An encoded message whose numbers change with each delivery."""

    def __init__(self, wire: Wire, job: Job) -> None:
        template = Template(job.body_bytes, job.durable)
        self._link = wire.link
        self._message = bytearray(template.encoded)
        self._pointer = ffi.from_buffer("char[]", self._message)
        self._size, self._place = len(self._message), template.place
        self._number = ffi.new("uint64_t *")
        self._tag = ffi.new("pn_delivery_tag_t *", {"size": 8, "start": ffi.cast("char *", self._number)})

    def begin(self, sequence: int, at_ns: int) -> Pointer:
        NUMBERS.pack_into(self._message, self._place, sequence, at_ns)
        self._number[0] = sequence
        return lib.pn_delivery(self._link, self._tag[0])

    def send(self, sequence: int, at_ns: int) -> Pointer:
        delivery = self.begin(sequence, at_ns)
        lib.pn_link_send(self._link, self._pointer, self._size)
        lib.pn_link_advance(self._link)
        return delivery

    def part(self, at: int, size: int) -> None:
        lib.pn_link_send(self._link, self._pointer + at, size)

    @property
    def size_bytes(self) -> int:
        return self._size


def _settle(flying: deque[Pointer], settled_ns: array[int], wanted: int = ACCEPTED) -> None:
    """Settle the deliveries whose outcomes have arrived and record the time."""
    before = len(flying)
    while flying and (state := lib.pn_delivery_remote_state(flying[0])):
        if state != wanted:
            raise BenchError(f"a message was not accepted, but given state {state:#x}")
        lib.pn_delivery_settle(flying.popleft())
    if before > len(flying):
        settled_ns.extend([now_ns()] * (before - len(flying)))


def _result(begun_ns: int, begun_cpu_s: float, sent_ns: array[int], settled_ns: array[int]) -> Result:
    times_ns = [end - begin for begin, end in zip(sent_ns, settled_ns, strict=True)]
    return Result(begun_ns, now_ns(), percentiles(times_ns), time.process_time() - begun_cpu_s)


def send_paced(wire: Wire, job: Job) -> Result:
    """Send `rate_per_s` messages per second in steps of a millisecond, regardless of the time of the answers.

    The time of a message starts when the message is due, so a late message does not appear faster.
    """
    message, flying = _Message(wire, job), deque[Pointer]()
    sent_ns, settled_ns = array("Q"), array("Q")
    step_ns = 1e9 / job.rate_per_s
    begun_ns, begun_cpu_s = now_ns(), time.process_time()
    while len(settled_ns) < job.messages:
        due = min(job.messages, int((now_ns() - begun_ns) / step_ns))
        for sequence in range(len(sent_ns), min(due, len(sent_ns) + lib.pn_link_credit(wire.link))):
            due_ns = begun_ns + int(sequence * step_ns)
            flying.append(message.send(sequence, due_ns))
            sent_ns.append(due_ns)
        wire.turn(STEP_MS)
        _settle(flying, settled_ns)
    return _result(begun_ns, begun_cpu_s, sent_ns, settled_ns)


def send_in_transactions(wire: Wire, job: Job) -> Result:
    """Send messages in transactions of `per_transaction`; a message is settled when its transaction is committed."""
    control = wire.coordinator()
    message = _Message(wire, job)
    sent_ns, settled_ns = array("Q"), array("Q")
    begun_ns, begun_cpu_s = now_ns(), time.process_time()
    while len(sent_ns) < job.messages:
        txn_id = _ask(wire, control, _DECLARE, DECLARED)
        state = write_id(txn_id)  # the encoding of a delivery state without outcome
        flying = deque[Pointer]()
        number = min(job.per_transaction, job.messages - len(sent_ns))
        provisional_ns = array("Q")
        while len(provisional_ns) < number:
            at_ns = now_ns()
            some = min(number - len(provisional_ns) - len(flying), lib.pn_link_credit(wire.link), BURST)
            for _ in range(some):
                delivery = message.begin(len(sent_ns), at_ns)
                put_encoded(lib.pn_disposition_data(lib.pn_delivery_local(delivery)), state)
                lib.pn_delivery_update(delivery, TRANSACTIONAL)
                message.part(0, message.size_bytes)
                lib.pn_link_advance(wire.link)
                flying.append(delivery)
                sent_ns.append(at_ns)
            wire.turn()
            _settle(flying, provisional_ns, TRANSACTIONAL)
        body = b"\xa0" + bytes((len(txn_id),)) + txn_id + b"\x42"
        _ask(wire, control, _DISCHARGE + bytes((len(body) + 1, 2)) + body, ACCEPTED)
        settled_ns.extend([now_ns()] * number)
    return _result(begun_ns, begun_cpu_s, sent_ns, settled_ns)


def _ask(wire: Wire, control: Pointer, request: bytes, wanted: int) -> bytes:
    """Send a request to the coordinator and return the transaction ID in its answer, if any."""
    while not lib.pn_link_credit(control):
        wire.turn()
    tag = ffi.new("char[]", b"ask")
    delivery = lib.pn_delivery(control, ffi.new("pn_delivery_tag_t *", {"size": 3, "start": tag})[0])
    lib.pn_link_send(control, request, len(request))
    lib.pn_link_advance(control)
    while not (state := lib.pn_delivery_remote_state(delivery)):
        wire.turn()
    if state != wanted:
        raise BenchError(f"the coordinator gave state {state:#x}")
    found = encoded(lib.pn_disposition_data(lib.pn_delivery_remote(delivery))) if state == DECLARED else b""
    lib.pn_delivery_settle(delivery)
    return read_state(found).txn_id if found else b""


def send_large(wire: Wire, job: Job) -> Result:
    """Send messages of many frames, part by part as the session window permits."""
    message, flying = _Message(wire, job), deque[Pointer]()
    session = lib.pn_link_session(wire.link)
    sent_ns, settled_ns = array("Q"), array("Q")
    begun_ns, begun_cpu_s = now_ns(), time.process_time()
    while len(settled_ns) < job.messages:
        while len(sent_ns) < job.messages and len(flying) < job.window and lib.pn_link_credit(wire.link):
            at_ns = now_ns()
            flying.append(message.begin(len(sent_ns), at_ns))
            sent_ns.append(at_ns)
            for at in range(0, message.size_bytes, _CHUNK_BYTES):
                message.part(at, min(_CHUNK_BYTES, message.size_bytes - at))
                wire.flush()
                while lib.pn_session_outgoing_bytes(session) > _AHEAD_BYTES:
                    wire.turn()
            lib.pn_link_advance(wire.link)
            wire.write()
        wire.turn()
        _settle(flying, settled_ns)
    return _result(begun_ns, begun_cpu_s, sent_ns, settled_ns)


def receive_large(wire: Wire, job: Job) -> Result:
    """Receive and accept messages of many frames; check their lengths, order and numbers."""
    template, link = Template(job.body_bytes, job.durable), wire.link
    room = len(template.encoded)
    content = bytearray(room + 1)
    pointer = ffi.from_buffer("char[]", content)
    times_ns: list[int] = []
    begun_ns, begun_cpu_s = now_ns(), time.process_time()
    at = 0
    while len(times_ns) < job.messages:
        wire.turn()
        while (delivery := lib.pn_link_current(link)) != NULL:
            while (got := lib.pn_link_recv(link, pointer + at, room + 1 - at)) > 0:
                at += got
            if lib.pn_delivery_partial(delivery):
                break
            sequence, sent_at_ns = NUMBERS.unpack_from(content, template.place)
            if at != room or sequence != len(times_ns) or not content.startswith(template.prefix):
                raise BenchError(f"message {sequence} of {at} bytes came where message {len(times_ns)} should have")
            at = 0
            times_ns.append(now_ns() - sent_at_ns)
            lib.pn_link_advance(link)
            lib.pn_delivery_update(delivery, ACCEPTED)
            lib.pn_delivery_settle(delivery)
            lib.pn_link_flow(link, 1)
        wire.write()
    return Result(begun_ns, now_ns(), percentiles(times_ns), time.process_time() - begun_cpu_s)


def receive_share(wire: Wire, job: Job) -> Result:
    """Receive, check and accept messages until a message arrives that was sent after all `job.messages`.

    The sender sends one such message for each receiver of the queue. A receiver closes its link after that message, so
    that other receivers get any further ones that were dispatched to that link.
    """
    template, link = Template(job.body_bytes, job.durable), wire.link
    size = len(template.encoded)
    content = bytearray(2 * size)
    pointer = ffi.from_buffer("char[]", content)
    sequences, times_ns = array("Q"), array("q")
    begun_ns, begun_cpu_s = now_ns(), time.process_time()
    ended_ns = begun_ns
    last, owed = -1, 0
    while last < job.messages:
        wire.turn()
        queued, at_ns = lib.pn_link_queued(link), now_ns()
        while queued and last < job.messages:
            queued -= 1
            delivery = lib.pn_link_current(link)
            got = lib.pn_link_recv(link, pointer, len(content))
            before, (last, sent_at_ns) = last, NUMBERS.unpack_from(content, got - job.body_bytes)
            if last < job.messages:  # later messages may be marked as dispatched before
                if got != size or last <= before or not content.startswith(template.prefix):
                    raise BenchError(f"message {last} of {got} bytes came after message {before}")
                sequences.append(last)
                times_ns.append(at_ns - sent_at_ns)
                ended_ns = at_ns
            lib.pn_link_advance(link)
            lib.pn_delivery_update(delivery, ACCEPTED)
            lib.pn_delivery_settle(delivery)
            owed += 1
        if owed * 4 >= job.window and last < job.messages:
            lib.pn_link_flow(link, owed)
            owed = 0
        wire.write()
    cpu_s = time.process_time() - begun_cpu_s
    return Result(begun_ns, ended_ns, percentiles(list(times_ns) or [0]), cpu_s, sequences)


def check_shares(results: Sequence[Result], messages: int) -> None:
    """Raise `BenchError` unless the receivers together received each message exactly once."""
    came = sorted(chain.from_iterable(result.sequences for result in results))
    if came != list(range(messages)):
        raise BenchError(f"{len(came)} messages came to {len(results)} receivers, {messages} were sent, each once")
