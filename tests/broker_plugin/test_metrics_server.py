"""A real broker is scraped over HTTP while messages go through it."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from proton import Message
from proton.utils import BlockingConnection

from cairnmq.broker_plugin.health import Health
from cairnmq.broker_plugin.metrics_server import MetricsServer
from tests.process import DEADLINE_S, BrokerProcess, broker


def scrape(url: str) -> dict[str, float]:
    """The value of each sample without labels."""
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        text = answer.read().decode()
    families = text_string_to_metric_families(text)
    return {sample.name: sample.value for family in families for sample in family.samples if not sample.labels}


def test_figures_follow_the_traffic(tmp_path: Path) -> None:
    with broker(tmp_path / "store", "--metrics-port", "0") as running:
        url = running.wait_for(r"^metrics at (http://127\.0\.0\.1:\d+/metrics)$")[1]
        seen = [scrape(url)]
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
        receiver.close()  # what was settled before is done with when this is answered
        connection.close()
        assert running.stop() == 0
        with pytest.raises(urllib.error.URLError):
            scrape(url)


def get(url: str) -> tuple[int, str, Any]:
    """The status, the kind and the body."""
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_a_broker_that_serves_is_healthy_and_ready(tmp_path: Path) -> None:
    with broker(tmp_path / "store", "--metrics-port", "0") as running:
        base = running.wait_for(r"^metrics at (http://127\.0\.0\.1:\d+)/metrics$")[1]
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
        assert get(base + "/health")[0] == 200  # while a long recovery is under way
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
    """And nothing was begun: there is no store yet."""
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
