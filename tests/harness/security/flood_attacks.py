"""Attacks with frames that a client sends without waiting: SASL frames, control frames. See `isolation`."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

from proton import Message

from tests.harness.security.isolation import Address, Case, Proceed
from tests.harness.security.wire import (
    ATTACH,
    BEGIN,
    DETACH,
    DISPOSITION,
    END,
    FALSE,
    NULL,
    RESPONSE,
    TRANSFER,
    TRUE,
    Wire,
    attach,
    flow,
    frame,
    message,
    performative,
    string,
    symbol,
    transfer,
    uint,
    wired,
)

UNREAD_BYTES = 64 << 10


def empty_responses(at: Address, proceed: Proceed) -> None:
    """W1: before the login, send empty SASL responses as fast as the broker accepts them."""
    wire = at.connect()
    try:
        wire.sasl()
        wire.init("SCRAM-SHA-256", None)
        null = frame(performative(RESPONSE, NULL), kind=1) * (UNREAD_BYTES // 17)
        while proceed():
            wire.send(null)
    finally:
        wire.sock.close()


def begin_and_end(at: Address, proceed: Proceed) -> None:
    """W6: begin and immediately end sessions."""
    _pour(at, proceed, begin(1) + frame(performative(END), channel=1))


def many_begin_and_end(at: Address, proceed: Proceed) -> None:
    """W6: begin and immediately end sessions on twelve connections."""
    _pour(at, proceed, begin(1) + frame(performative(END), channel=1), connections=12)


def attach_and_detach(at: Address, proceed: Proceed) -> None:
    """Attack 43: attach and detach links to an own queue, and to one of the victim."""
    detach = performative(DETACH, uint(0), TRUE)
    pairs = [(attach(f"l{i}", 0, address, sends=True), detach) for i, address in enumerate(("evil.a", "victim.b"))]
    _pour(at, proceed, b"".join(frame(one) for pair in pairs for one in pair), connections=4)


def dynamic_nodes(at: Address, proceed: Proceed) -> None:
    """Attack 43: create and delete dynamic queues."""
    source = performative(0x28, NULL, uint(0), NULL, uint(0), TRUE)
    ends = performative(ATTACH, string("d"), uint(0), TRUE, NULL, NULL, source, performative(0x29, string("me")))
    _pour(at, proceed, frame(ends) + frame(performative(DETACH, uint(0), TRUE)), connections=4)


def flows(at: Address, proceed: Proceed) -> None:
    """Attack 42: alternate the credit of 200 links, each time with an echo."""
    links = b"".join(frame(attach(f"l{i}", i, "evil.a", sends=False)) for i in range(200))
    said = b"".join(frame(flow(i, credit, echo=True)) for credit in (0, 1000) for i in range(200))
    _pour(at, proceed, said, connections=4, first=links)


def dispositions(at: Address, proceed: Proceed) -> None:
    """Attack 42: send dispositions for the largest possible ranges of deliveries."""
    ranges = ((0, 0x7FFFFFFF), (0, 0xFFFFFFFF), (5, 4))
    said = [performative(DISPOSITION, TRUE, uint(a), uint(b), TRUE, performative(0x24)) for a, b in ranges]
    _pour(at, proceed, b"".join(map(frame, said)), connections=4)


def empty_frames(at: Address, proceed: Proceed) -> None:
    """Attack 42: send heartbeats where frames are also read outside proton: resumable links, transactions."""
    source = performative(0x28, string("evil.a"), uint(2), symbol("never"))
    ends = performative(0x29, string("me"), uint(2), symbol("never"))
    resumable = performative(ATTACH, string("r"), uint(0), TRUE, NULL, NULL, source, ends)
    coordinator = performative(ATTACH, string("c"), uint(1), FALSE, NULL, NULL, performative(0x28), performative(0x30))
    _pour(at, proceed, frame(b"") * 8, connections=4, first=frame(resumable) + frame(coordinator))


def begin_without_end(at: Address, proceed: Proceed) -> None:
    """Attack 46: begin as many sessions as permitted, and an endless message in frames of one byte."""
    first = b"".join(begin(channel) for channel in range(1, 255))
    first += frame(attach("l", 0, "evil.a", sends=True))
    _pour(at, proceed, frame(transfer(0, b"\x00", more=True)), connections=4, first=first)


def _pour(at: Address, proceed: Proceed, said: bytes, *, connections: int = 1, first: bytes = b"") -> None:
    """Send *said* repeatedly on *connections* connections without waiting, and discard the input."""
    many = said * max(1, UNREAD_BYTES // len(said))

    def pour(wire: Wire) -> None:
        with suppress(OSError):
            while proceed():
                wire.send(many)

    with ExitStack() as stack:
        wires = [stack.enter_context(received(at.log_in("evil"))) for _ in range(connections)]
        for wire in wires:
            wire.send(first)
        proceed()
        threads = [threading.Thread(target=pour, args=(wire,), daemon=True) for wire in wires]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def guesses(at: Address, proceed: Proceed) -> None:
    """W11: try wrong passwords of existing and unknown users, on 64 connections at a time."""

    def guess(number: int) -> None:
        names = ("victim", "admin", f"nobody-{number}")
        while proceed():
            with suppress(OSError, EOFError), wired(at.port) as wire:
                wire.plain(names[number % 3], "a guess")

    threads = [threading.Thread(target=guess, args=(number,), daemon=True) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def silent_connections(at: Address, proceed: Proceed) -> None:
    """W5: open more silent connections than permitted, and replace the oldest ones."""
    held: deque[Wire] = deque()
    while proceed():
        for _ in range(25):
            held.append(at.connect())
        while len(held) > 600:
            held.popleft().sock.close()
        time.sleep(0.05)


SCRAPES = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


def metrics(at: Address, proceed: Proceed) -> None:
    """W13: request all metrics repeatedly on 24 threads, beside 200 incomplete requests."""
    slow: deque[socket.socket] = deque()

    def scrape() -> None:
        while proceed():
            with suppress(OSError), socket.create_connection(("127.0.0.1", at.metrics_port), timeout=5) as sock:
                sock.sendall(SCRAPES)
                while proceed() and sock.recv(1 << 20):
                    pass

    with ExitStack() as stack:
        wire = stack.enter_context(received(at.log_in("evil")))
        wire.say(*[attach(f"q{number}", number, f"evil.{number}", sends=True) for number in range(500)])
        threads = [threading.Thread(target=scrape, daemon=True) for _ in range(24)]
        for thread in threads:
            thread.start()
        while proceed():
            with suppress(OSError):
                slow.append(socket.create_connection(("127.0.0.1", at.metrics_port), timeout=1))
                slow[-1].sendall(b"GET /metrics HTTP/1.1\r\nX: ")
            if len(slow) > 200:
                slow.popleft().close()
            time.sleep(0.005)
        for thread in threads:
            thread.join()


QUERIES_AT_ONCE = 40
"""The number of requests per link, which is less than its credit."""


def queries(at: Address, proceed: Proceed) -> None:
    """Attack 61: send QUERYs of a hundred queues on 8 links at a time, and read the answers."""
    wire = at.log_in("evil")
    with closing(wire.sock):
        for number in range(100):
            wire.attach(f"q{number}", number, f"evil.{number}", sends=True)
        for number in range(100, 108):
            wire.attach(f"m{number}", number, "$management", sends=True)
        wire.attach("answers", 200, "$management", sends=False)
        wire.say(flow(200, 1 << 20))
        sent = 0
        while proceed():
            for handle in range(100, 108):
                for _ in range(QUERIES_AT_ONCE):
                    wire.say(transfer(sent, QUERY, handle=handle))
                    sent += 1
            answers = 0
            while answers < 8 * QUERIES_AT_ONCE and proceed():
                code, fields, _ = wire.next()
                answers += code == TRANSFER and not (len(fields) > 5 and fields[5])


def unread_answers(at: Address, proceed: Proceed) -> None:
    """Attack 61: send requests whose answers cannot be delivered: 60 reply links have no credit."""
    wire = at.log_in("evil")
    with closing(wire.sock):
        for number in range(60):
            wire.say(attach(f"answers{number}", 100 + number, "$management", sends=False))
        wire.attach("m", 0, "$management", sends=True)
        sent = 0
        while proceed():
            for _ in range(QUERIES_AT_ONCE):
                wire.say(transfer(sent, LARGE_QUERY))
                sent += 1
            answered = 0
            while answered < QUERIES_AT_ONCE and proceed():
                answered += wire.next()[0] == DISPOSITION


QUERY = bytes(Message(properties={"operation": "QUERY", "entityType": "queue"}).encode())
LARGE_QUERY = bytes(Message(properties={"operation": "GET-OPERATIONS"}).encode())


def key_updates(at: Address, proceed: Proceed) -> None:
    """A18: send only TLS key updates after the handshake on 8 connections, with openssl: Python cannot send them."""
    command = ("openssl", "s_client", "-connect", f"127.0.0.1:{at.tls_port}", "-tls1_3")
    clients: list[subprocess.Popen[bytes]] = []
    try:
        while proceed():
            clients = [client for client in clients if client.poll() is None]
            while len(clients) < 8:
                silent = subprocess.DEVNULL
                clients.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=silent, stderr=silent))
            for client in clients:
                assert client.stdin is not None
                with suppress(BrokenPipeError):
                    client.stdin.write(b"K\n")  # s_client executes one command per read
                    client.stdin.flush()
    finally:
        for client in clients:
            client.kill()
            client.wait()


def handshakes(at: Address, proceed: Proceed) -> None:
    """Attacks 9 and 10: send half a ClientHello on 50 connections, and repeat handshakes without a login."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    hello = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), hello).do_handshake()
    half = hello.read()[:100]
    with ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(socket.create_connection(("127.0.0.1", at.tls_port))).sendall(half)
        while proceed():
            with socket.create_connection(("127.0.0.1", at.tls_port)) as sock, suppress(OSError):
                context.wrap_socket(sock).close()


def unfinished_messages(at: Address, proceed: Proceed) -> None:
    """Attack 54: send 180 kB of an unfinished message on each of 50 links of 20 connections."""
    part = message("x" * 200_000, durable=True)[:15_000]
    with ExitStack() as stack:
        for number in range(20):
            wire = stack.enter_context(received(at.log_in("evil")))
            for handle in range(50):
                if not proceed():
                    return
                wire.say(attach(f"send {handle}", handle, f"evil.part.{number}", sends=True))
                wire.say(*[transfer(handle, part, handle=handle, more=True)] * 12)
        while proceed():
            time.sleep(0.05)


def many_links(at: Address, proceed: Proceed) -> None:
    """Attack 55: attach 50 links on each of 200 connections."""
    with ExitStack() as stack:
        wires = [stack.enter_context(received(at.log_in("evil"))) for _ in range(200)]
        proceed()
        for number, wire in enumerate(wires):
            wire.say(*[attach(f"send {handle}", handle, f"evil.links.{number}", sends=True) for handle in range(50)])
        while proceed():
            time.sleep(0.05)


def long_message(at: Address, proceed: Proceed) -> None:
    """Attack 56: repeatedly send 1 GiB of an unfinished durable message, of which the broker takes 256 MiB."""
    part = message("x" * 100_000, durable=True)[:60_000]
    frames = frame(transfer(0, part, more=True))
    while proceed():
        with received(at.log_in("evil")) as wire:
            wire.say(attach("send", 0, "evil.long", sends=True))
            for _ in range((1 << 30) // len(part)):
                if not proceed():
                    return
                wire.send(frames)


def begin(channel: int) -> bytes:
    return frame(performative(BEGIN, NULL, uint(0), uint(9), uint(9)), channel=channel)


@contextmanager
def received(wire: Wire) -> Iterator[Wire]:
    """Read and discard the answers on *wire*; close it at the end."""

    def read() -> None:
        with suppress(OSError):
            while wire.sock.recv(1 << 20):
                pass

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield wire
    finally:
        with suppress(OSError):
            wire.sock.shutdown(socket.SHUT_RDWR)
        reader.join()
        wire.sock.close()


CASES = (
    Case("SASL responses that say nothing", empty_responses, finding="W1"),
    Case("begin and end", begin_and_end, finding="W6"),
    Case("begin and end on 12 connections", many_begin_and_end, finding="W6"),
    Case("attach and detach", attach_and_detach, finding="43"),
    Case("dynamic nodes", dynamic_nodes, finding="43"),
    Case("flows", flows, finding="42"),
    Case("dispositions", dispositions, finding="42"),
    Case("empty frames", empty_frames, finding="42"),
    Case("guesses of passwords", guesses, options=("--allow-insecure-auth",), finding="W11"),
    Case("connections that say nothing", silent_connections, options=("--max-unauthenticated", "300"), finding="W5"),
    Case("metrics", metrics, finding="W13"),
    Case("queries", queries, finding="61"),
    Case("unread answers", unread_answers, finding="61"),
    Case("sessions and endless messages", begin_without_end, finding="46"),
    Case("messages without an end", unfinished_messages, options=("--memory-limit", "16M"), finding="54"),
    Case("50 links on 200 connections", many_links, seconds=6.0, finding="55"),
    Case("one message without an end", long_message, finding="56"),
    Case("TLS handshakes", handshakes, finding="10", tls=True),
    Case("TLS key updates", key_updates, finding="A18", tls=True, burners=2),  # openssl uses 1.6 cores
)
