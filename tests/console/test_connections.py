"""Tests of the limits of number, time and memory for connections whose clients send or read slowly or never."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
import trustme

from cairnmq.console.http.connections import MOST_CONNECTIONS, Connections
from cairnmq.console.http.listener import MOST_HANDSHAKES, Listener
from cairnmq.console.http.protocol import TimedProtocol
from tests.conftest import Tell
from tests.harness.console.browser import ApiClient
from tests.harness.console.own_process import console_process
from tests.harness.console.processes import descendants
from tests.harness.console.served import Served
from tests.harness.process import DEADLINE_S
from tests.harness.security.quotas import wait_until

uvicorn = pytest.importorskip("uvicorn")

CONSOLE = "cairnmq.console.beside"
MOST_GROWTH_BYTES = 64 << 20
OTHER_FILES = 40
MANY = 1000
HEAD = b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


class Client:
    """A simulated connection that records if it was closed."""

    def __init__(self, unsent_bytes: int = 0) -> None:
        self.unsent = unsent_bytes
        self.is_ended = False

    def unsent_bytes(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.is_ended = True


def test_connection_that_waited_longest_ends_for_a_new_one() -> None:
    connections = Connections(most=3)
    clients = [Client() for _ in range(5)]
    assert all(map(connections.admit, clients[:3]))
    connections.note(clients[0], waits=False)
    connections.note(clients[1], waits=False)
    connections.note(clients[1], waits=True)
    assert connections.admit(clients[3])
    assert [one.is_ended for one in clients] == [False, False, True, False, False]
    for one in clients:
        connections.note(one, waits=False)
    assert not connections.admit(clients[4]), "all others have requests that the server works on"
    connections.discard(clients[0])
    assert connections.admit(clients[4])
    assert [one.is_ended for one in clients] == [False, False, True, False, False]


def test_connection_with_the_most_unsent_bytes_ends_first() -> None:
    connections = Connections(most_unsent_bytes=100)
    small, large, newest = Client(20), Client(60), Client(70)
    for one in (small, large, newest):
        assert connections.admit(one)
    connections.wrote(newest)
    assert [one.is_ended for one in (small, large, newest)] == [False, True, False]
    newest.unsent = 500
    connections.wrote(newest)
    assert [one.is_ended for one in (small, large, newest)] == [True, True, False], "one alone may be larger"


class Impatient(TimedProtocol):
    head_s = send_s = 0.2


@pytest.mark.parametrize("version", ["1.1", "1.0"], ids=["kept", "closed"])
@pytest.mark.parametrize("pieces", [1, 1000], ids=["at once", "in pieces"])
def test_client_that_does_not_read_its_response_is_closed(version: str, pieces: int) -> None:
    """A connection with an unread response is closed, also if the response is complete but not sent."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for left in reversed(range(pieces)):
            body = b"x" * ((32 << 20) // pieces)
            await send({"type": "http.response.body", "body": body, "more_body": left > 0})

    async def run(client: socket.socket) -> None:
        listener = Listener(socket.create_server(("127.0.0.1", 0)).detach())
        protocol: Any = partial(Impatient, Connections(most_unsent_bytes=64 << 20), listener)
        server = uvicorn.Server(uvicorn.Config(app, http=protocol, ws="none", lifespan="off", log_config=None))
        serving = asyncio.create_task(server.serve([listener]))
        await asyncio.to_thread(client.connect, listener.getsockname())
        client.sendall(f"GET / HTTP/{version}\r\nHost: localhost\r\n\r\n".encode())
        until_s = time.monotonic() + DEADLINE_S
        states = server.server_state
        while not states.total_requests and not states.connections and time.monotonic() < until_s:
            await asyncio.sleep(0.01)
        while states.connections:
            assert time.monotonic() < until_s, "the connection is open, and its response in memory"
            await asyncio.sleep(0.01)
        server.should_exit = True
        await serving

    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        asyncio.run(run(client))


def test_handshakes_of_tls_are_bounded(tmp_path: Path) -> None:
    """Many connections that never begin a handshake cause no event loop errors, and a new one is served."""
    authority = trustme.CA()
    certificate = tmp_path / "server.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
    with ExitStack() as stack:
        options = ("--url", "amqp://127.0.0.1:1", "--tls-cert", str(certificate))
        port = stack.enter_context(console_process(*options))
        [pid] = descendants(os.getpid(), "console\0--http-port")
        for _ in range(MANY):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), DEADLINE_S))
        context = ssl.create_default_context()
        authority.configure_trust(context)
        client = HTTPSConnection("127.0.0.1", port, timeout=DEADLINE_S, context=context)
        client.request("GET", "/api/v1/openapi.json")
        assert client.getresponse().status == 200
        client.close()
        assert len(os.listdir(f"/proc/{pid}/fd")) < MOST_HANDSHAKES + OTHER_FILES


# ---- the console as a process


@pytest.fixture
def held(served: Served) -> Iterator[Callable[[bytes], socket.socket]]:
    """Yield a function that connects, sends data as far as the server reads it, and keeps the connection open."""
    with ExitStack() as stack:

        def hold(said: bytes) -> socket.socket:
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", served.port), DEADLINE_S))
            sock.settimeout(0.05)
            with suppress(OSError):
                sock.sendall(said)
            return sock

        yield hold


def console_of(served: Served) -> int:
    [pid] = descendants(served.process.process.pid, CONSOLE)
    return pid


def own_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


@pytest.mark.parametrize(
    "said",
    [
        HEAD + b"Content-Length: 1048576\r\n\r\n" + b"x" * ((1 << 20) - 1),
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffff\r\n" + b"x" * 0xFFFFE,
        b"GET /api/v1/queues HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\n\r\n" + b"x" * ((1 << 20) - 1),
        b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000,
    ],
    ids=["login", "chunks", "refused", "pipeline"],
)
def test_incomplete_bodies_and_unread_responses_keep_little_memory(
    served: Served, root: ApiClient, held: Callable[[bytes], socket.socket], said: bytes, tell: Tell
) -> None:
    pid = console_of(served)
    before_bytes = own_bytes(pid)
    for _ in range(MOST_CONNECTIONS):
        held(said)
    assert root.get("/session")["user"] == "root"
    growth_bytes = own_bytes(pid) - before_bytes
    tell(f"{MOST_CONNECTIONS} connections: the console grew by {growth_bytes / (1 << 20):.1f} MiB")
    assert growth_bytes < MOST_GROWTH_BYTES


def test_large_bodies_of_a_session_share_their_memory(
    served: Served, root: ApiClient, held: Callable[[bytes], socket.socket]
) -> None:
    pid = console_of(served)
    before_bytes = own_bytes(pid)
    more = f"Cookie: {root.cookie}\r\nX-CSRF-Token: {root.csrf}\r\nContent-Length: 1048576\r\n\r\n".encode()
    said = HEAD.replace(b"session", b"queues") + more + b"x" * ((1 << 20) - 1)
    socks = [held(said) for _ in range(40)]
    answers = []
    for sock in socks:
        with suppress(TimeoutError):
            answers.append(sock.recv(12))
    assert set(answers) == {b"HTTP/1.1 503"}
    assert len(answers) < len(socks), "others wait for the ends of their bodies"
    assert root.api("POST", "/queues", {"name": "small"}).status == 201, "a small request is answered"
    root.done("DELETE", "/queues/small")
    assert own_bytes(pid) - before_bytes < MOST_GROWTH_BYTES


def test_large_pages_that_are_not_read_keep_little_memory(
    served: Served, root: ApiClient, held: Callable[[bytes], socket.socket], tell: Tell
) -> None:
    """Unread pages of 6 MB (1 MiB of escaped control characters) occupy a bounded amount of memory."""
    root.done("POST", "/queues", {"name": "large"})
    properties = {str(number): "\x01" * 1000 for number in range(50)}
    for _ in range(25):
        root.done("POST", "/queues/large/publish", {"body": "x", "application_properties": properties})
    path = "/queues/large/messages?limit=200"
    assert len(root.api("GET", path).body) > 5_000_000
    pid = console_of(served)
    before_bytes = own_bytes(pid)
    request = f"GET /api/v1{path} HTTP/1.1\r\nHost: localhost\r\nCookie: {root.cookie}\r\n\r\n".encode()
    unread = [held(request) for _ in range(MOST_CONNECTIONS)]
    assert root.get("/session")["user"] == "root"
    growth_bytes = own_bytes(pid) - before_bytes
    tell(f"{MOST_CONNECTIONS} pages of 6 MB that are not read: the console grew by {growth_bytes / (1 << 20):.1f} MiB")
    for one in unread:
        one.close()
    wait_until(lambda: root.api("DELETE", "/queues/large").status < 300)  # delayed by the requests above
    assert growth_bytes < MOST_GROWTH_BYTES


def test_thousand_connections_take_bounded_files_and_others_are_answered(
    served: Served, root: ApiClient, held: Callable[[bytes], socket.socket], tell: Tell
) -> None:
    pid = console_of(served)
    threads = len(os.listdir(f"/proc/{pid}/task"))
    for _ in range(MANY):
        held(b"")
    begun_s = time.monotonic()
    assert root.get("/session")["user"] == "root"
    took_s = time.monotonic() - begun_s
    files = len(os.listdir(f"/proc/{pid}/fd"))
    tell(f"{MANY} connections: {files} files of the console, a request took {took_s * 1e3:.0f} ms")
    assert files < MOST_CONNECTIONS + OTHER_FILES
    assert len(os.listdir(f"/proc/{pid}/task")) <= threads + 1


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"\0\r\n\r\n", b"400"),
        (HEAD + b"Content-Length: 70000\r\n\r\n", b"413"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n20000\r\n" + b"x" * 0x20000, b"413"),
    ],
    ids=["no HTTP", "length", "chunks"],
)
def test_refused_requests_write_no_log(
    served: Served, held: Callable[[bytes], socket.socket], said: bytes, status: bytes
) -> None:
    lines = len(served.process.lines)
    for _ in range(50):
        with held(said) as sock:
            sock.settimeout(DEADLINE_S)
            assert sock.recv(12) == b"HTTP/1.1 " + status
    assert served.process.lines[lines:] == []
