"""Tests of the dashboards and alert rules of monitoring/ with a real Prometheus that scrapes a real broker."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from proton import Message
from proton.utils import BlockingConnection

from cairnmq.broker_plugin.broker_exposition import BROKER_FAMILIES
from cairnmq.broker_plugin.cluster_exposition import CLUSTER_FAMILIES
from cairnmq.broker_plugin.exposition import FAMILIES, Family
from cairnmq.store.journaled.retention_leases import Bookmark, write_bookmark
from tests.harness.process import CAIRNMQ, DEADLINE_S, BrokerProcess, broker

from .dashboards import DASHBOARDS, FOLDER, document, text_of

RULES = FOLDER.parent / "prometheus" / "alerts.yml"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool of Debian's package prometheus is missing")
needs_prometheus = pytest.mark.skipif(PROMETHEUS is None, reason="Debian's package prometheus is missing")
_ALL: list[Family[Any]] = [*FAMILIES, *BROKER_FAMILIES, *CLUSTER_FAMILIES]
KNOWN = {family.full_name for family in _ALL}
WITHOUT_DATA = {"cairnmq_checkpoint_age_seconds": "absent before the first checkpoint"}
"""Metrics on dashboards that a newly started broker does not have."""
QUERIES = [
    pytest.param(target["expr"], id=f"{dashboard.name}: {panel['title']} {target['refId']}")
    for dashboard in DASHBOARDS
    for panel in document(dashboard)["panels"]
    for target in panel.get("targets", ())
]


CONDITIONS = (
    "count(up == 1) == 2",
    "cairnmq_federated_queue_up == 1",
    "cairnmq_federated_queue_lag_seconds < 60",
    "cairnmq_downstream_behind_bytes",
    "cairnmq_journal_bookmark_behind_bytes",
    "cairnmq_delivery_seconds_count > 0",
    'cairnmq_queue_messages{queue="waiting"} == 1',
    "increase(cairnmq_journal_records_total[1m]) > 0",
)
"""Conditions for the data in Prometheus before the tests begin."""


class Monitored(NamedTuple):
    """A Prometheus with the alert rules that has scraped a broker with traffic."""

    url: str
    metrics_url: str
    at_s: float | None = None
    """Time of a scrape with all data, as a later one may be too slow on a busy machine; None for the current time."""

    def ask(self, path: str, **arguments: str) -> Any:
        query = urllib.parse.urlencode(arguments)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=DEADLINE_S) as answer:
            document = json.load(answer)
        assert document["status"] == "success"
        return document["data"]

    def query(self, expression: str) -> list[Any]:
        at = {} if self.at_s is None else {"time": str(self.at_s)}
        data = self.ask("query", query=expression, **at)
        assert data["resultType"] == "vector"
        return list(data["result"])


def rules() -> list[tuple[str, str]]:
    """Return the name and the expression of each alert, read without a YAML parser."""
    text = RULES.read_text()
    found = re.findall(r"- alert: (\w+)\n +expr: (?:>-\n +)?(.+)\n", text)
    assert len(found) == text.count("alert: ")
    return found


def names_in(expression: str) -> set[str]:
    """Return the broker metrics in an expression, without the suffixes of histograms."""
    found = set(re.findall(r"\bcairnmq_\w+", expression))
    return {name if name in KNOWN else re.sub(r"_(bucket|sum|count)$", "", name) for name in found}


def traffic(port: int) -> None:
    connection = BlockingConnection(f"127.0.0.1:{port}", timeout=DEADLINE_S)
    sender = connection.create_sender("orders")
    receiver = connection.create_receiver("orders", credit=10)
    sender.send(Message(body="x" * 500, durable=True))
    receiver.receive()
    receiver.accept()
    connection.create_sender("waiting").send(Message(body="x", durable=True))
    connection.close()


def metrics_of(running: BrokerProcess) -> str:
    return running.wait_for(r" metrics at (http://127\.0\.0\.1:\d+/metrics)$")[1]


def federate(port: int) -> None:
    """Create the federated queue `waiting` of the hub on the broker."""
    command = [CAIRNMQ, "ctl", "--url", f"amqp://127.0.0.1:{port}", "federated-queues", "create", "waiting", "hub"]
    subprocess.run(command, check=True, timeout=DEADLINE_S)


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    place: Path = tmp_path_factory.mktemp("monitored")
    options = ("--metrics-port", "0", "--cluster-name", "watched", "--cluster-size", "1", "--auto-create", "*")
    with ExitStack() as stack:
        running = stack.enter_context(broker(place / "store", *options))
        metrics_url = metrics_of(running)
        if PROMETHEUS is None:
            traffic(running.port)
            yield Monitored("", metrics_url)
            return
        hub = f"amqp://127.0.0.1:{running.port}?name=hub"
        copy = stack.enter_context(broker(place / "copy", "--metrics-port", "0", "--connect-to", hub))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        targets = [url.removeprefix("http://").removesuffix("/metrics") for url in (metrics_url, metrics_of(copy))]
        config = {
            "global": {"scrape_interval": "250ms", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "cairnmq", "static_configs": [{"targets": targets}]}],
        }
        (place / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        command = [
            PROMETHEUS, f"--config.file={place / 'prometheus.yml'}", f"--storage.tsdb.path={place / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
        ]  # fmt: skip
        with open(place / "log", "wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        found = Monitored(f"http://127.0.0.1:{port}", metrics_url)
        try:
            scraped(found, process, "count_over_time(up[1m]) >= 2")  # so that counters have earlier values
            traffic(running.port)
            federate(copy.port)
            write_bookmark(str(place / "store"), Bookmark("reader", 0, 1 << 30))
            for condition in CONDITIONS:
                scraped(found, process, condition)
            yield at_complete_scrape(found, process)
        finally:
            process.terminate()
            process.wait(DEADLINE_S)


def at_complete_scrape(monitored: Monitored, process: subprocess.Popen[bytes]) -> Monitored:
    """Return *monitored* at a time at which Prometheus has samples of all targets, and always will.

    A scrape that fails later marks the series as ended at the time at which it began. Such a scrape begins after the
    last complete one of its target, so no failure can reach the earliest of these.
    """
    until_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < until_s:
        earliest = scraped(monitored, process, "min(timestamp(up)) and count(up == 1) == 2")[0]
        found = monitored._replace(at_s=float(earliest["value"][1]))
        if all(found.query(condition) for condition in CONDITIONS):
            return found
        time.sleep(0.1)
    raise AssertionError("no time at which all targets have been scraped")


def scraped(monitored: Monitored, process: subprocess.Popen[bytes], expression: str) -> list[Any]:
    """Wait until Prometheus has samples for *expression*, and return them."""
    until_s = time.monotonic() + DEADLINE_S
    while process.poll() is None and time.monotonic() < until_s:
        try:
            if found := monitored.query(expression):
                return found
        except OSError:
            pass  # Prometheus does not listen or serve yet
        time.sleep(0.1)
    raise AssertionError(f"no data: {expression}")


@needs_promtool
def test_rules_are_valid_and_fire_as_their_tests_say() -> None:
    assert PROMTOOL is not None
    for command in (["check", "rules", RULES.name], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(
            [PROMTOOL, *command], cwd=RULES.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=DEADLINE_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)
def test_dashboard_files_are_up_to_date(dashboard: Any) -> None:
    path = FOLDER / f"{dashboard.name}.json"
    assert path.read_text() == text_of(dashboard), "write it anew: python -m tests.monitoring.dashboards"


def test_dashboards_and_rules_name_only_metrics_there_are() -> None:
    expressions = [str(query.values[0]) for query in QUERIES] + [expression for _, expression in rules()]
    assert len(expressions) > 60
    assert {name for expression in expressions for name in names_in(expression)} - KNOWN == set()


@needs_promtool
def test_a_running_broker_follows_the_conventions(monitored: Monitored) -> None:
    assert PROMTOOL is not None
    with urllib.request.urlopen(monitored.metrics_url, timeout=DEADLINE_S) as answer:
        done = subprocess.run(
            [PROMTOOL, "check", "metrics"], input=answer.read(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=DEADLINE_S,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, b"")


def test_open_metrics_are_served_on_request(monitored: Monitored) -> None:
    request = urllib.request.Request(monitored.metrics_url, headers={"Accept": OPEN_METRICS})
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        families = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}  # type: ignore[no-untyped-call]
    for name in ("settle", "dispatch", "delivery"):
        samples = {sample.name: sample.value for sample in families[f"cairnmq_{name}_seconds"].samples}
        assert samples[f"cairnmq_{name}_seconds_count"] >= 1
        assert 0 < samples[f"cairnmq_{name}_seconds_sum"] < DEADLINE_S


@needs_prometheus
@pytest.mark.parametrize("expression", QUERIES)
def test_a_panel_has_data(monitored: Monitored, expression: str) -> None:
    expression = expression.replace("$__rate_interval", "1m").replace("$job", "cairnmq").replace("$instance", ".*")
    assert "$" not in expression
    found = monitored.query(expression)
    assert bool(found) != bool(names_in(expression) & WITHOUT_DATA.keys())


@needs_prometheus
def test_rules_are_evaluated_and_no_alert_is_pending_on_a_healthy_broker(monitored: Monitored) -> None:
    expressions = dict(rules())
    for name, expression in expressions.items():
        found = monitored.query(expression)
        assert bool(found) == (name == "CairnmqQueueWithoutConsumers"), name
    loaded = [rule for group in monitored.ask("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in loaded} == expressions.keys()
    assert {rule["lastError"] for rule in loaded if "lastError" in rule} == set()
