"""Tests of the console with hostile input, clients that hold connections, and clients that disconnect."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPConnection

import pytest

from cairnmq.console.history.readers import MOST_READERS, MOST_WAITING_OF_USER
from cairnmq.console.http.connections import MOST_CONNECTIONS
from tests.conftest import Tell
from tests.harness.console.browser import ApiClient, Reply, encoded
from tests.harness.console.processes import descendants
from tests.harness.console.served import Served
from tests.harness.process import DEADLINE_S

READER = "cairnmq.console.history.worker"
QUESTIONS = 50
"""Number of parallel requests about the history."""
NAMES = [
    "<script>alert(1)</script>", "=cmd|' /C calc'!A0", "\u202egpj.exe", "\u0000", "a\r\nSet-Cookie: x=1",
    "../../etc/passwd", "e\u0301", "\ufeff", "%2e%2e%2f", "x" * 4096, "\U0001f9ff" * 64, "--", "queue;drop", "a/b?c#d",
]  # fmt: skip


@pytest.fixture
def events(root: ApiClient) -> Iterator[Callable[[], tuple[int, HTTPConnection]]]:
    """Yield a function that opens a stream of events and returns its status and its connection."""
    with ExitStack() as stack:

        def open_stream() -> tuple[int, HTTPConnection]:
            connection = HTTPConnection("127.0.0.1", root.port, timeout=60)
            stack.callback(connection.close)
            connection.request("GET", "/api/v1/events", headers={"Cookie": root.cookie})
            response = connection.getresponse()
            stack.callback(response.close)
            return response.status, connection

        yield open_stream


@pytest.mark.parametrize("name", NAMES)
def test_hostile_name_is_kept_or_refused(root: ApiClient, name: str) -> None:
    reply = root.api("POST", "/queues", {"name": name})
    assert reply.status in (201, 400, 409)
    if reply.status == 201:
        assert root.get(f"/queues/{encoded(name)}")["name"] == name
        assert name in [row["name"] for row in root.get("/queues", search=name)["items"]]
        assert root.api("DELETE", f"/queues/{encoded(name)}").status == 204
    for method, path in [("GET", "/queues/{}"), ("GET", "/queues/{}/messages"), ("GET", "/exchanges/{}/reach"),
                         ("DELETE", "/connections/{}"), ("GET", "/history/contents?at={}"),
                         ("GET", "/history/trace?message_id={}"), ("GET", "/access?user={}")]:  # fmt: skip
        reply = root.api(method, path.format(encoded(name)))
        assert reply.status < 500, (method, path, reply.body)
        assert reply.headers["content-type"] == "application/json"
        assert "set-cookie" not in reply.headers


@pytest.mark.parametrize(
    "body",
    [
        b'{"name": "a", "arguments": ' + b'{"a": ' * 15 + b"1" + b"}" * 16,
        b'{"name": "a", "arguments": ' + b'{"a": ' * 20_000 + b"1" + b"}" * 20_001,
        b"[" * 500_000,
        b'{"name": "\\ud800"}',
        b'{"name": "a", "arguments": {"max-messages": 1' + b"0" * 5000 + b"}}",
        b'{"name": "a", "arguments": {"max-messages": 1e400}}',
        b'{"name": "a", "arguments": {"max-messages": 18446744073709551616}}',
        b'{"name": "a", "arguments": {"max-messages": -9223372036854775809}}',
        b'{"name": "a", "arguments": {"' + b"k" * 900_000 + b'": 1}}',
        b"\xff\xfe{}",
        b"",
    ],
    ids=["deep", "deeper", "arrays", "surrogate", "digits", "infinite", "2^64", "-2^63-1", "key", "utf-16", "empty"],
)
def test_hostile_json_is_refused(root: ApiClient, body: bytes) -> None:
    headers = {
        "Content-Type": "application/json", "Cookie": root.cookie, "X-CSRF-Token": root.csrf,
        "Content-Length": str(len(body)),
    }  # fmt: skip
    connection = HTTPConnection("127.0.0.1", root.port, timeout=60)
    connection.request("POST", "/api/v1/queues", body, headers)
    reply = connection.getresponse()
    assert reply.status in (400, 409), reply.read()[:200]
    connection.close()
    assert root.api("GET", "/queues/a").status == 404, "nothing was created, and the session goes on"


def test_content_type_that_is_not_ascii_is_refused(root: ApiClient) -> None:
    assert root.api("POST", "/queues", {"name": "typed"}).status in (201, 409)
    reply = root.api("POST", "/queues/typed/publish", {"body": "x", "content_type": "\u00dcbersicht"})
    assert (reply.status, reply.value["error"]["field"]) == (400, "content_type")


def test_numbers_of_many_digits_are_refused(root: ApiClient) -> None:
    digits = "9" * 5000
    assert root.api("GET", f"/queues/a/messages/{digits}").status == 404
    assert root.api("GET", f"/queues?page={digits}").status == 400
    assert root.api("GET", f"/history/contents?at={digits}").status in (400, 409)
    assert root.api("GET", f"/history/trace?id={digits}").status == 400


@pytest.mark.parametrize("origin", ["http://[", "null", "http://evil.example", "", "http://127.0.0.1:1"])
def test_change_from_another_origin_is_refused(root: ApiClient, origin: str) -> None:
    reply = root.request("POST", "/api/v1/queues", {"name": "foreign"}, {"Origin": origin})
    assert (reply.status, reply.condition) == (403, "cairnmq:request-refused")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_login_needs_json_which_forms_cannot_send(served: Served, kind: str) -> None:
    client = ApiClient(served.port)
    reply = client.request("POST", "/api/v1/session", {"user": "root", "password": "x"}, {"Content-Type": kind})
    assert reply.status == 415


def test_login_ignores_the_session_that_a_client_brings(served: Served) -> None:
    client = ApiClient(served.port)
    client.cookie = "cairnmq-session=chosen-by-the-attacker"
    planted = client.cookie
    assert client.login("shop", "shop-password").status == 201
    assert client.cookie != planted
    for cookie in (planted, "cairnmq-session=", "cairnmq-session=" + "a" * 8000):
        assert client.request("GET", "/api/v1/session", None, {"Cookie": cookie}).status == 401
    first = client.cookie
    assert client.login("shop", "shop-password").status == 201
    assert client.cookie != first
    old = client.request("GET", "/api/v1/session", None, {"Cookie": first})
    assert old.status == 401, "the session before a login ends"
    assert client.api("DELETE", "/session").status == 204


def test_streams_of_a_session_are_bounded(
    root: ApiClient, login: Callable[[str], ApiClient], events: Callable[[], tuple[int, HTTPConnection]]
) -> None:
    opened = [events() for _ in range(6)]
    assert [status for status, _ in opened] == [200] * 4 + [429] * 2
    assert root.get("/overview")["broker"]
    assert login("shop").get("/queues")["items"] is not None, "other users are served"
    for _, connection in opened:
        assert connection.sock is not None
        connection.sock.shutdown(socket.SHUT_RDWR)
    until_s = time.monotonic() + DEADLINE_S
    while events()[0] == 429:
        assert time.monotonic() < until_s, "closed streams make room"


def test_idle_connections_give_way_to_new_ones(served: Served, root: ApiClient) -> None:
    with ExitStack() as stack:
        held = [
            stack.enter_context(socket.create_connection(("127.0.0.1", served.port), 30))
            for _ in range(MOST_CONNECTIONS + 50)
        ]
        assert root.get("/session")["user"] == "root"
        held[0].settimeout(DEADLINE_S)
        with pytest.raises((ConnectionError, AssertionError)):
            assert held[0].recv(1), "the oldest was closed"


def test_history_ends_when_its_reader_leaves(served: Served, root: ApiClient) -> None:
    """The reader process of a history request ends when its client disconnects, and other requests are answered."""
    with ExitStack() as stack:
        for _ in range(5):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", served.port), 30))
            head = f"GET /api/v1/journal HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {root.cookie}\r\n\r\n"
            sock.sendall(head.encode())
        until_s = time.monotonic() + DEADLINE_S
        while not descendants(served.process.process.pid, READER):
            assert time.monotonic() < until_s
    until_s = time.monotonic() + DEADLINE_S
    while descendants(served.process.process.pid, READER):
        assert time.monotonic() < until_s, "the readers end with their clients"
    assert root.get("/journal")["containers"]


def test_many_history_questions_start_few_processes(
    served: Served, login: Callable[[str], ApiClient], root: ApiClient, tell: Tell
) -> None:
    """50 parallel history requests of two users start few processes, and a third user is answered meanwhile."""
    clients = [login(user) for user in ("reader", "shop") for _ in range(10)]
    most = 0

    def ask(client: ApiClient) -> Reply:
        return client.api("GET", "/history/range")

    with ThreadPoolExecutor(QUESTIONS + 1) as pool:
        asked = [pool.submit(ask, clients[number % len(clients)]) for number in range(QUESTIONS)]
        while not most:
            assert not all(one.done() for one in asked), "no reader was seen"
            most = len(descendants(served.process.process.pid, READER))
        other = pool.submit(ask, root)
        while not all(one.done() for one in (*asked, other)):
            most = max(most, len(descendants(served.process.process.pid, READER)))
    statuses = Counter(one.result().status for one in asked)
    tell(f"{QUESTIONS} questions about the history: at most {most} processes, statuses {dict(statuses)}")
    assert other.result().status == 200
    assert 1 <= most <= MOST_READERS
    assert set(statuses) == {200, 429}
    assert statuses[200] >= 2 * MOST_WAITING_OF_USER, "those that waited are answered"
    assert all(int(one.result().headers["retry-after"]) > 0 for one in asked if one.result().status == 429)
    assert not descendants(served.process.process.pid, READER)


def test_reading_stops_at_the_budget_of_a_search(root: ApiClient) -> None:
    root.done("POST", "/queues", {"name": "long"})
    for _ in range(12):
        root.done("POST", "/queues/long/publish", {"body": "x" * 60_000})
    found = root.get("/queues/long/messages", search="not there")
    assert found["items"] == []
    assert found["searched"] == 12
    assert found["next"] is None
    root.done("DELETE", "/queues/long")
