"""Attacks through the HTTP API of the console. See `isolation`.

The requests of `queries` are those that took most time when each was measured alone on a queue of `LENGTH` messages.
"""

from __future__ import annotations

import json
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from typing import Any

from tests.harness.console.browser import ApiClient
from tests.harness.security.isolation import PASSWORDS, PATIENCE_S, Address, Case, Proceed
from tests.harness.security.management_attacks import Evil

LENGTH = 20_000
QUEUES = 200
BODY_BYTES = 500
SESSIONS = 8
"""The number of sessions of one user, each with event streams and one request of each kind at a time."""
STREAMS = 4
"""The number of event streams of each session, which are left unread."""
QUEUE = "evil.long"
GETS = (
    f"/queues/{QUEUE}/messages?search=not-there",
    f"/queues/{QUEUE}/messages?limit=200",
    "/queues?per_page=1000&sort=messages&internal=true",
    f"/queues/{QUEUE}",
    "/history/trace?message_id=not-there",
    f"/history/contents?at=end&queue={QUEUE}&limit=1000",
    f"/history/difference?from=0&to=end&queue={QUEUE}",
    "/history/contents?at=end&limit=1000",
    "/journal",
    "/overview",
    "/openapi.json",
)
REPLAY = {"from": "0", "to": "end", "queue": QUEUE, "target": "evil.copy", "count": 50_000, "create": True}
MANAGER = """
[[rules]]
who = ["evil"]
may = ["manage", "browse", "monitor"]
"""
"""The access rules of the attacker: the journal and requests about all queues require an administrator."""


def queries(at: Address, proceed: Proceed) -> None:
    """Send the most expensive requests in several sessions at a time, beside event streams that are left unread."""
    evil = Evil(at)
    for number in range(QUEUES):
        evil.ask("CREATE", f"evil.{number}", {})
        evil.answered(lambda: True)
    evil.fill(QUEUE, LENGTH, durable=True, body=b"x" * BODY_BYTES)
    with ExitStack() as stack:
        clients = [_session(at) for _ in range(SESSIONS)]
        for client in clients:
            for _ in range(STREAMS):
                stack.enter_context(_unread(client, "/events"))
        works: list[Callable[[], None]] = []
        for number, client in enumerate(clients):
            works += [_asker(client, path) for path in GETS]
            if number == 0:
                works.append(_asker(client, "/history/replay", "POST", REPLAY))
        _run(works, proceed)


def without_login(at: Address, proceed: Proceed) -> None:
    """Send requests without a login, and open connections that send none or never complete one."""
    works: list[Callable[[], None]] = []
    for number in range(8):
        name = ("victim", "admin", f"stranger-{number}")[number % 3]
        works.append(_asker(ApiClient(at.http_port), "/session", "POST", {"user": name, "password": "a guess"}))
    for path in ("/openapi.json", "/queues", "/journal", "/not-there"):
        works.append(_asker(ApiClient(at.http_port), path))
    works += [_sender(at, said) for said in (LONG_HEAD, LONG_BODY, ENDLESS_BODY, NESTED_BODY, NOT_HTTP)]
    works += [_holder(at, said, most) for said, most in ((b"", 1000), (SLOW_HEAD, 200), (SLOW_BODY, 200))]
    _run(works, proceed)


HEAD = b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LONG_HEAD = HEAD + b"".join(b"X-%d: %s\r\n" % (number, b"x" * 1000) for number in range(1000)) + b"\r\n"
LONG_BODY = HEAD + b"Content-Length: 1048576\r\n\r\n" + b'{"user": "' + b"x" * ((1 << 20) - 12) + b'"}'
NESTED_BODY = HEAD + b"Content-Length: 1048576\r\n\r\n" + b"[" * (1 << 20)
CHUNKS = b"1\r\nx\r\n" * 1000 + b"10000\r\n" + b"x" * 65536 + b"\r\n"
ENDLESS_BODY = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS * 64
NOT_HTTP = b"\0" * (1 << 20)
SLOW_HEAD = b"GET /api/v1/queues HTTP/1.1\r\nX: "
SLOW_BODY = HEAD + b"Content-Length: 1000000\r\n\r\n{"


def _session(at: Address) -> ApiClient:
    client = ApiClient(at.http_port)
    reply = client.login("evil", PASSWORDS["evil"])
    if reply.status != 201:
        raise ConnectionError(f"evil is not let in: {reply.body!r}")
    return client


def _asker(client: ApiClient, path: str, method: str = "GET", body: Any = None) -> Callable[[], None]:
    """Return a function that sends one request on a persistent connection."""
    connection = HTTPConnection("127.0.0.1", client.port, timeout=PATIENCE_S)
    headers = {"Cookie": client.cookie, "X-CSRF-Token": client.csrf, "Content-Type": "application/json"}

    def ask() -> None:
        try:
            connection.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), headers)
            connection.getresponse().read()
        except (OSError, HTTPException):
            connection.close()

    return ask


def _sender(at: Address, said: bytes) -> Callable[[], None]:
    """Return a function that sends *said* and reads until the server closes the connection."""

    def send() -> None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", at.http_port), timeout=2.0) as sock:
            sock.sendall(said)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                pass

    return send


def _holder(at: Address, said: bytes, most: int) -> Callable[[], None]:
    """Return a function that holds connections after sending *said*, and sends one more byte on each per round."""
    held: deque[socket.socket] = deque()

    def hold() -> None:
        for _ in range(25):
            with suppress(OSError):
                held.append(socket.create_connection(("127.0.0.1", at.http_port), timeout=1.0))
                held[-1].sendall(said)
        while len(held) > most:
            held.popleft().close()
        for sock in held if said else ():
            with suppress(OSError):
                sock.send(b"x", socket.MSG_DONTWAIT)

    return hold


@contextmanager
def _unread(client: ApiClient, path: str) -> Iterator[None]:
    """Send a request, and leave its response unread."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", client.port))
        sock.sendall(f"GET /api/v1{path} HTTP/1.1\r\nHost: localhost\r\nCookie: {client.cookie}\r\n\r\n".encode())
        yield


def _run(works: list[Callable[[], None]], proceed: Proceed) -> None:
    """Repeat each work in a thread of its own."""

    def run(work: Callable[[], None]) -> None:
        while proceed():
            work()

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


CASES = (
    Case("HTTP: expensive queries", queries, access=MANAGER, http=True),
    Case("HTTP: requests without a login", without_login, http=True),
)
