"""Tests of the metrics server, including HTTP scrapes of a real broker that processes messages."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Gauge
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from proton import Message
from proton.utils import BlockingConnection

from cairnmq.base.errors import CairnError
from cairnmq.broker_plugin import metrics_server
from cairnmq.broker_plugin.health import Health
from cairnmq.broker_plugin.metrics_server import MetricsServer
from tests.conftest import Tell
from tests.harness.process import DEADLINE_S, BrokerProcess, broker
from tests.harness.security.quotas import wait_until


def scrape(url: str) -> dict[str, float]:
    """Return the value of each sample that has no labels."""
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        text = answer.read().decode()
    families = text_string_to_metric_families(text)
    return {sample.name: sample.value for family in families for sample in family.samples if not sample.labels}


class Pages:
    """A collector that counts the rendered pages and takes 5 ms for each."""

    def __init__(self) -> None:
        self.count = 0

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        self.count += 1
        until_s = time.perf_counter() + 0.005
        while time.perf_counter() < until_s:
            pass
        yield GaugeMetricFamily("pages", "The number of the page.", self.count)


def test_requests_share_pages_that_are_newer_than_they() -> None:  # W13
    """Clients that request without a pause share pages, and each response is newer than its request.

    With more clients, the server may still count a client's last request when the next one arrives, and refuse it.
    """
    pages, server = Pages(), MetricsServer("127.0.0.1", 0, Health())
    server.show(pages)
    stale: list[tuple[float, int]] = []
    requests = count()

    def request() -> None:
        for _ in range(20):
            before = pages.count
            number = scrape(server.url)["pages"]
            next(requests)
            if number <= before:
                stale.append((number, before))

    threads = [threading.Thread(target=request) for _ in range(7)]
    begun_s = time.perf_counter()
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        server.stop()
    passed_s = time.perf_counter() - begun_s
    assert stale == []
    assert next(requests) == 140
    assert pages.count < 140
    assert (pages.count - 1) * 0.005 * metrics_server.REST <= passed_s


class HeldPage:
    """A collector whose page is blocked until the test releases it."""

    def __init__(self) -> None:
        self.begun, self.released = threading.Event(), threading.Event()

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        self.begun.set()
        assert self.released.wait(DEADLINE_S)
        yield GaugeMetricFamily("held", "A page.", 1)


def request_page(port: int, query: str = "", method: str = "GET", headers: Sequence[str] = ()) -> socket.socket:
    """Return a connection on which a complete request for metrics was sent and no response was read."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
    sock.sendall("\r\n".join((f"{method} /metrics{query} HTTP/1.0", *headers, "", "")).encode())
    return sock


def read_all(sock: socket.socket) -> bytes:
    with sock:
        return b"".join(iter(lambda: sock.recv(65536), b""))


def test_health_is_answered_while_pages_are_requested() -> None:  # W13
    """Pending requests for many different pages leave threads for `/health`."""
    page, server = HeldPage(), MetricsServer("127.0.0.1", 0, Health())
    server.show(page)
    waiting: list[socket.socket] = []
    try:
        port = port_of(server)
        waiting = [request_page(port, f"?{number}") for number in range(3 * metrics_server.MOST_PAGES)]
        assert page.begun.wait(DEADLINE_S)
        for _ in range(3):
            assert b" 200 " in asked(port, path="/health")
    finally:
        page.released.set()
        server.stop()
        for sock in waiting:
            sock.close()


def test_requests_for_pages_above_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "MOST_REQUESTS", 1000)  # no request is closed while it is read
    page, server = HeldPage(), MetricsServer("127.0.0.1", 0, Health())
    server.show(page)
    try:
        port = port_of(server)
        waiting = [request_page(port, f"?{number}") for number in range(3 * metrics_server.MOST_PAGES)]
        refused: list[bytes] = []
        while len(refused) < 2 * metrics_server.MOST_PAGES:
            ready, _, _ = select.select(waiting, [], [], DEADLINE_S)
            assert ready
            for sock in ready:
                waiting.remove(sock)
                refused.append(read_all(sock).partition(b"\r\n")[0])
        page.released.set()
        answers = refused + [read_all(sock).partition(b"\r\n")[0] for sock in waiting]
        assert Counter(answers) == {
            b"HTTP/1.0 200 OK": metrics_server.MOST_PAGES,
            b"HTTP/1.0 503 Service Unavailable": 2 * metrics_server.MOST_PAGES,
        }
        assert b" 200 " in asked(port)
    finally:
        page.released.set()
        server.stop()


def test_head_has_no_body_and_leaves_pages_alone() -> None:
    page, server = HeldPage(), MetricsServer("127.0.0.1", 0, Health())
    server.show(page)
    try:
        port = port_of(server)
        first = request_page(port)
        assert page.begun.wait(DEADLINE_S)
        later = [request_page(port, method=method) for method in ("HEAD", "GET", "HEAD", "GET")]
        page.released.set()
        _, complete, shared, *_ = found = [read_all(sock) for sock in (first, *later)]
        assert all(one.startswith(b"HTTP/1.0 200 OK\r\n") for one in found), found
        assert complete.endswith(b"\r\n\r\n")
        head, _, body = shared.partition(b"\r\n\r\n")
        assert f"Content-Length: {len(body)}".encode() in head.splitlines()
    finally:
        page.released.set()
        server.stop()


def test_response_that_is_not_read_logs_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics_server, "REQUEST_S", 0.5)
    server, before = MetricsServer("127.0.0.1", 0, Health()), threading.active_count()
    for number in range(20):
        server.show(Gauge(f"wide_{number}", "x" * (1 << 20), registry=None))
    try:
        with request_page(port_of(server)):
            assert b" 200 " in asked(port_of(server), path="/health")  # accepted after that connection
            wait_until(lambda: threading.active_count() <= before)
    finally:
        server.stop()
    assert capfd.readouterr().err == ""


class NumberedPage(HeldPage):
    """A collector of numbered pages, all of which are blocked until the test releases them."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def collect(self) -> Iterator[Metric]:
        self.count += 1
        number = self.count
        yield from super().collect()
        yield GaugeMetricFamily("pages", "The number of the page.", number)


def test_requests_that_differ_share_the_pages_of_four_formats(monkeypatch: pytest.MonkeyPatch, tell: Tell) -> None:
    """Requests with unique query strings and headers do not delay the scrape of another client."""
    monkeypatch.setattr(metrics_server, "REST", 0)
    monkeypatch.setattr(metrics_server, "MOST_REQUESTS", 1000)  # no request is closed while it is read
    page, server = NumberedPage(), MetricsServer("127.0.0.1", 0, Health())
    server.show(page)
    try:
        port = port_of(server)
        requests = [request_page(port)]
        assert page.begun.wait(DEADLINE_S)
        for number in range(1, metrics_server.MOST_PAGES):
            accept = "application/openmetrics-text" if number % 2 else "text/plain"
            encoding = "gzip" if number & 2 else "br"
            headers = f"Accept: {accept}; q=0.{number}", f"Accept-Encoding: {encoding};q=0.{number}"
            requests.append(request_page(port, f"?number={number}", headers=headers))
        wait_until(lambda: not server._pages._slots._value)
        page.released.set()
        found = [read_all(sock) for sock in requests]
    finally:
        page.released.set()
        server.stop()
    assert all(one.startswith(b"HTTP/1.0 200 OK\r\n") for one in found)
    kinds = [(b"openmetrics-text" in one, b"Content-Encoding: gzip" in one) for one in found]
    assert kinds == [(bool(number % 2), bool(number & 2)) for number in range(metrics_server.MOST_PAGES)]
    tell(f"{page.count} pages for {metrics_server.MOST_PAGES} requests that differ")
    assert page.count <= 8, "the first page, one of each format, and those for requests that were not yet waiting"


OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
PROMETHEUS_2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
PROMETHEUS_2 += "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("application/openmetrics-text", OPEN_METRICS),
        ('Application/OpenMetrics-Text; version="1.0.0"; q=0.3', OPEN_METRICS),
        (PROMETHEUS_2, OPEN_METRICS),
        ("application/openmetrics-text;version=0.0.1,text/plain;version=0.0.4;q=0.5", TEXT),
        ("application/openmetrics-text; version=0.0.1", TEXT),
        ("application/openmetrics-text; version=2.0.0, */*;q=0.1", TEXT),
        ("application/openmetrics-text;q=0", TEXT),
        ("application/openmetrics-text;q=none", TEXT),
        ("application/openmetrics-text;q=0.4, text/plain", TEXT),
        ("application/openmetrics-text;q=0.4, text/*;q=0.3, */*", OPEN_METRICS),
        ("application/openmetrics-text;q=0.4, */*", TEXT),
        ("x/application/openmetrics-text", TEXT),
        ("*/*", TEXT),
        (",;=,", TEXT),
        ("", TEXT),
    ],
)
def test_format_is_negotiated(accept: str, expected: str, tell: Tell) -> None:
    """OpenMetrics is served in version 1.0.0 only; a client that accepts another version gets the text format."""
    server = MetricsServer("127.0.0.1", 0, Health())
    try:
        head, _, body = read_all(request_page(port_of(server), headers=[f"Accept: {accept}"])).partition(b"\r\n\r\n")
    finally:
        server.stop()
    kind = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])["Content-Type"]
    tell(f"Accept: {accept}: {kind}")
    assert kind.split("; escaping")[0] == expected
    assert body.endswith(b"# EOF\n") == (expected == OPEN_METRICS)


class FailingPage(NumberedPage):
    """A collector of numbered pages that fails for the second page."""

    def collect(self) -> Iterator[Metric]:
        yield from super().collect()
        if self.count == 2:
            raise ValueError("the test has this page fail")


def test_page_that_fails_is_no_response_to_others(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """If two requests wait for the second page, which fails, one gets an error and the other one the third page."""
    monkeypatch.setattr(metrics_server, "REST", 0)
    page, server = FailingPage(), MetricsServer("127.0.0.1", 0, Health())
    server.show(page)
    try:
        port = port_of(server)
        requests = [request_page(port)]
        assert page.begun.wait(DEADLINE_S)
        requests += [request_page(port), request_page(port)]
        wait_until(lambda: server._pages._slots._value == metrics_server.MOST_PAGES - 3)
        page.released.set()
        first, *others = map(read_all, requests)
    finally:
        page.released.set()
        server.stop()
    assert b"pages 1.0" in first
    assert sorted((b" 500 " in one, b"pages 3.0" in one) for one in others) == [(False, True), (True, False)]


def test_figures_follow_the_traffic(tmp_path: Path) -> None:
    with broker(tmp_path / "store", "--metrics-port", "0") as running:
        url = running.wait_for(r" metrics at (http://127\.0\.0\.1:\d+/metrics)$")[1]
        seen = [scrape(url)]
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:  # usability 16
            assert f'cairnmq_build_info{{version="{version("cairnmq")}"}} 1.0\n'.encode() in answer.read()
        connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
        sender = connection.create_sender("orders")
        for _ in range(3):
            for _ in range(20):
                sender.send(Message(body="x" * 500, durable=True))
            seen.append(scrape(url))
        first, last = seen[0], seen[-1]
        assert last["cairnmq_journal_records_total"] == first["cairnmq_journal_records_total"] + 60
        assert last["cairnmq_journal_live_bytes"] > 60 * 500
        assert last["cairnmq_journal_fsync_seconds_count"] > first["cairnmq_journal_fsync_seconds_count"]
        assert last["cairnmq_journal_fsync_seconds_sum"] > 0
        assert last["process_resident_memory_bytes"] > 0
        for name in first:
            if name.endswith(("_total", "_count", "_bucket")):
                assert [at[name] for at in seen] == sorted(at[name] for at in seen), name
        assert last["cairnmq_messages"] == last["cairnmq_put_messages_total"] == 60
        assert last["cairnmq_connections"] == last["cairnmq_links"] == 1
        assert last["cairnmq_core_steps_total"] > first["cairnmq_core_steps_total"]
        receiver = connection.create_receiver("orders", credit=100)
        for _ in range(60):
            receiver.receive()
            receiver.accept()
        receiver.close()  # the response shows that the broker has processed all earlier settlements
        connection.close()
        assert running.stop() == 0
        with pytest.raises(urllib.error.URLError):
            scrape(url)


def get(url: str) -> tuple[int, str, Any]:
    """Return the status, the content type and the body of the response."""
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_a_broker_that_serves_is_healthy_and_ready(tmp_path: Path) -> None:
    with broker(tmp_path / "store", "--metrics-port", "0") as running:
        base = running.wait_for(r" metrics at (http://127\.0\.0\.1:\d+)/metrics$")[1]
        for path in ("/health", "/ready"):
            status, kind, body = get(base + path)
            assert (status, kind) == (200, "application/json")
            assert json.loads(body) == {"status": "ok", "reasons": []}
        assert get(base + "/")[0] == get(base + "/metrics/more")[0] == 404
        with pytest.raises(urllib.error.HTTPError, match="405"):
            urllib.request.urlopen(base + "/metrics", data=b"x", timeout=DEADLINE_S)


def test_what_is_wrong_is_told_with_a_503() -> None:
    health = Health()
    server = MetricsServer("127.0.0.1", 0, health)
    try:
        base = server.url.removesuffix("/metrics")
        assert get(base + "/health")[0] == 200  # during a long recovery
        assert get(base + "/ready")[0] == 503
        full = [""]
        health.serving(lambda: full[0])
        assert get(base + "/ready")[0] == 200
        full[0] = "no room"
        status, _, body = get(base + "/ready")
        assert (status, json.loads(body)) == (503, {"status": "failing", "reasons": ["the store is full: no room"]})
        assert get(base + "/health")[0] == 200
        health.has_failed = True
        assert get(base + "/health")[0] == get(base + "/ready")[0] == 503
    finally:
        server.stop()


def test_without_the_option_nothing_listens(tmp_path: Path) -> None:
    with broker(tmp_path / "store") as running:
        assert not [line for line in running.lines if "metrics" in line]


@pytest.mark.parametrize(
    ("host", "reason"), [("127.0.0.1", "Address already in use"), ("not-a-host.invalid", ""), ("192.0.2.1", "assign")]
)
def test_a_port_that_can_not_be_had_is_told(host: str, reason: str, tmp_path: Path) -> None:
    """An unavailable metrics port is reported in one line, and the store is not created."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = ("--port", "0", "--metrics-port", str(port), "--metrics-listen", host)
        process = BrokerProcess(tmp_path / "store", *options)
        assert process.wait() == 1
    [line] = process.lines
    assert line.startswith(f"cairnmq: metrics on {host}:{port}: can't listen: ")
    assert reason in line
    assert "--metrics-port" in line
    assert not (tmp_path / "store").exists()


def asked(port: int, *headers: str, path: str = "/metrics") -> bytes:
    """Return the status line of the response."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as sock:
        sock.sendall("\r\n".join((f"GET {path} HTTP/1.0", *headers, "", "")).encode())
        answer = b""
        while more := sock.recv(65536):
            answer += more
    return answer.partition(b"\r\n")[0]


def port_of(server: MetricsServer) -> int:
    return int(server.url.rpartition(":")[2].partition("/")[0])


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    (tmp_path / "token").write_text("a-long-token\n")
    return str(tmp_path / "token")


def test_metrics_are_read_with_the_token_only(token_file: str) -> None:  # W13
    server = MetricsServer("127.0.0.1", 0, Health(), token_file)
    try:
        port = port_of(server)
        for wrong in ("", "Bearer", "Bearer a-long-toke", "Bearer a-long-token2", "Basic a-long-token", "a-long-token"):
            assert b" 401 " in asked(port, f"Authorization: {wrong}"), wrong
        assert b" 200 " in asked(port, "Authorization: Bearer a-long-token")
        assert b" 401 " not in asked(port, path="/health")
    finally:
        server.stop()


def test_metrics_off_loopback_without_a_token_are_warned_of(  # A12
    token_file: str, caplog: pytest.LogCaptureFixture
) -> None:
    for host, token, expected in (("127.0.0.1", "", 0), ("0.0.0.0", token_file, 0), ("0.0.0.0", "", 1)):
        caplog.clear()
        MetricsServer(host, 0, Health(), token).stop()
        assert [getattr(one, "event", "") for one in caplog.records].count("metrics.open") == expected


def test_token_is_read_again_and_put_in_place_later(token_file: str) -> None:  # A6
    server = MetricsServer("127.0.0.1", 0, Health(), token_file)
    try:
        port = port_of(server)
        Path(token_file).write_text("another-token")
        put_in_place = server.read_again()
        assert b" 200 " in asked(port, "Authorization: Bearer a-long-token")
        put_in_place()
        assert b" 401 " in asked(port, "Authorization: Bearer a-long-token")
        assert b" 200 " in asked(port, "Authorization: Bearer another-token")
    finally:
        server.stop()


@pytest.mark.parametrize("content", ["", " \n", "two words", "x" * 5000, "caf\xe9"])
def test_a_token_file_without_a_token_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content)
    with pytest.raises(CairnError, match="token"):
        MetricsServer("127.0.0.1", 0, Health(), str(tmp_path / "token"))


def test_a_page_of_another_site_reads_nothing_from_loopback() -> None:  # W13: DNS rebinding
    server = MetricsServer("127.0.0.1", 0, Health())
    try:
        port = port_of(server)
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil.example:80"):
            for path in ("/metrics", "/health", "/ready"):
                assert b" 421 " in asked(port, f"Host: {host}", path=path), host
        for host in ("localhost", f"LOCALHOST:{port}", "127.0.0.1", f"127.0.0.1:{port}", "[::1]", f"[::1]:{port}"):
            assert b" 200 " in asked(port, f"Host: {host}"), host
        assert b" 200 " in asked(port)
    finally:
        server.stop()


def is_over(sock: socket.socket) -> bool:
    """Return True if the server has closed the connection."""
    try:
        return sock.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_slow_clients_keep_nobody_out(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """W13: many clients that send headers slowly use few threads, are disconnected, and cause no traceback."""
    monkeypatch.setattr(metrics_server, "REQUEST_S", 1.0)
    server, slow = MetricsServer("127.0.0.1", 0, Health()), list[socket.socket]()
    try:
        port, before = port_of(server), threading.active_count()
        slow += [socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) for _ in range(60)]
        for sock in slow:
            with suppress(OSError):
                sock.sendall(b"GET /metrics HTTP/1.0\r\nX: ")
        assert b" 200 " in asked(port)
        assert threading.active_count() - before <= 2 * metrics_server.MOST_REQUESTS
        assert sum(is_over(sock) for sock in slow) >= 60 - 2 * metrics_server.MOST_REQUESTS
        wait_until(lambda: threading.active_count() <= before)
    finally:
        server.stop()
        for sock in slow:
            sock.close()
    assert "Traceback" not in capfd.readouterr().err


def test_a_client_that_sends_a_byte_now_and_then_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:  # W13
    monkeypatch.setattr(metrics_server, "REQUEST_S", 0.5)
    server = MetricsServer("127.0.0.1", 0, Health())
    try:
        with socket.create_connection(("127.0.0.1", port_of(server)), timeout=0.1) as sock:
            deadline_s = time.monotonic() + DEADLINE_S
            while True:
                try:
                    sock.sendall(b"x")
                    if not sock.recv(100):
                        break
                except TimeoutError:
                    assert time.monotonic() < deadline_s
                except ConnectionError:
                    break
    finally:
        server.stop()
