"""Tests of console sessions: restarts of the broker, idle timeout, and pagination of long lists on the server."""

from __future__ import annotations

import asyncio
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cairnmq.amqp.client.login import BrokerLogin
from cairnmq.amqp.client.loop import Loop
from cairnmq.amqp.client.management import Management
from cairnmq.amqp.client.wire import Wire
from cairnmq.console.session.errors import ApiError
from cairnmq.console.session.sessions import Peer, Sessions
from tests.harness.console.browser import ApiClient
from tests.harness.console.own_process import console_process
from tests.harness.process import DEADLINE_S, BrokerProcess, broker
from tests.harness.thorough import amount

QUEUES = amount("CAIRN_CONSOLE_QUEUES", 10_000, 1_000)


@contextmanager
def console(*options: str) -> Iterator[ApiClient]:
    """Yield a client of a separate console process."""
    with console_process(*options) as port:
        yield ApiClient(port)


def test_session_outlasts_a_restart_of_the_broker(tmp_path: Path) -> None:
    with broker(tmp_path / "store") as first:
        port = first.port
        with console("--url", f"amqp://127.0.0.1:{port}") as client:
            assert client.login().status == 201
            client.done("POST", "/queues", {"name": "kept"})
            first.stop()
            reply = client.api("GET", "/queues/kept")
            assert (reply.status, reply.condition) == (503, "cairnmq:broker-unavailable")
            assert reply.headers["retry-after"]
            assert client.api("GET", "/session").status == 200
            with broker(tmp_path / "store", "--port", str(port)):
                assert client.get("/queues/kept")["name"] == "kept"


def test_login_without_a_broker_is_unavailable_and_not_delayed() -> None:
    with console("--url", "amqp://127.0.0.1:1") as client:
        for _ in range(4):
            assert client.login("root", "any").status == 503


def test_login_that_the_broker_breaks_off_is_unavailable_and_no_failed_guess() -> None:
    accepted = []

    def break_off(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                peer, _ = listener.accept()
                peer.recv(8)
                peer.close()
                accepted.append(peer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        serving = threading.Thread(target=break_off, args=(listener,))
        serving.start()
        try:
            with console("--url", f"amqp://127.0.0.1:{port}") as client:
                for _ in range(20):
                    reply = client.login("root", "right")
                    assert (reply.status, reply.condition) == (503, "cairnmq:broker-unavailable")
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            serving.join()
    assert len(accepted) >= 20


def test_sessions_end_when_they_are_idle_or_old(tmp_path: Path) -> None:
    now_s = [0.0]

    async def lives(port: int) -> None:
        with ThreadPoolExecutor(2) as threads:
            sessions = Sessions(BrokerLogin(port=port), 60.0, lambda: now_s[0], threads)
            _, token = await sessions.login(Peer("192.0.2.1"), None, "")
            now_s[0] += 50
            sessions.find(token)
            now_s[0] += 50
            sessions.find(token, is_use=False)
            now_s[0] += 50
            with pytest.raises(ApiError, match="expired"):
                sessions.find(token)
            _, token = await sessions.login(Peer("192.0.2.1"), None, "")
            for _ in range(12 * 60):
                now_s[0] += 60
                sessions.find(token)
            now_s[0] += 1
            sessions.expire()
            assert len(sessions) == 0
            await sessions.close()

    with broker(tmp_path / "store") as running:
        asyncio.run(lives(running.port))


def test_long_lists_are_paged_on_the_server(tmp_path: Path) -> None:
    """Pages are bounded and together form the complete list, which is rarely requested from the broker (see `lists`).

    A page of a cached list costs less than reading the list: most pages of 100 times as many queues take at most 100
    times as long, far below the time for the list itself.
    """
    options = ("--max-queues-per-user", "0")
    with (
        broker(tmp_path / "store", *options) as running,
        console("--url", f"amqp://127.0.0.1:{running.port}") as client,
    ):
        client.login()
        _create_queues(running, 0, QUEUES // 100)
        client.done("POST", "/queues", {"name": "last", "durable": False})
        few_s = _page_time_s(client)
        _create_queues(running, QUEUES // 100, QUEUES)
        client.done("DELETE", "/queues/last")
        seen: set[str] = set()
        for page in range(1, 6):
            found = client.api("GET", "/queues", sort="name", order="desc", page=page, per_page=100)
            assert found.value["total"] == QUEUES
            assert len(found.body) < 100 * 1024
            seen.update(row["name"] for row in found.value["items"])
        assert seen == {f"many-{number:05d}" for number in range(QUEUES - 500, QUEUES)}
        assert client.get("/queues", search=f"-{QUEUES - 7:05d}")["total"] == 1
        assert client.get("/queues", search="many-00", sort="messages", page=2, per_page=10)["page"] == 2
        assert client.get("/queues", page=10**6)["items"] == []
        ratio = _page_time_s(client) / few_s
        print(f"a page of {QUEUES} queues takes {ratio:.1f} times as long as one of {QUEUES // 100}")
        assert ratio < 100


def _page_time_s(client: ApiClient) -> float:
    """Return the median time of a sorted page; most are from a list that was read before."""
    times_s = []
    for page in range(1, 16):
        begun_s = time.perf_counter()
        client.get("/queues", sort="messages", order="desc", page=page, per_page=20)
        times_s.append(time.perf_counter() - begun_s)
    return statistics.median(times_s)


def _create_queues(running: BrokerProcess, first: int, end: int) -> None:
    wire = Wire(BrokerLogin(port=running.port, timeout_s=DEADLINE_S), "creator")
    loop = Loop()
    loop.add(wire, [])
    management = Management(wire, loop)
    for number in range(first, end):
        about = {"operation": "CREATE", "type": "queue", "name": f"many-{number:05d}"}
        assert management.ask(about, {"durable": False}).status == 201
    wire.close()
