"""Tests that metrics follow Prometheus' conventions, and that docs/reference/metrics.md equals their table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.broker_plugin.broker_exposition import BROKER_FAMILIES, Figures, QueueChoice
from cairnmq.broker_plugin.exposition import FAMILIES, Family, FamilyCollector
from cairnmq.router.kernel.core import Core
from cairnmq.store.journaled.metrics import JournalMetrics, measure
from tests.harness.broker.world import World, message
from tests.harness.store.metered import create_queue, open_store

PAGE = Path(__file__).parents[2] / "docs" / "reference/metrics.md"


@pytest.fixture(scope="module")
def measured() -> JournalMetrics:
    store = open_store(MemoryDirectory())
    store.put(create_queue(store, 'a "strange"\\ name\n'), b"x" * 100, 1)
    store.kick()
    return measure(store)


@pytest.fixture(scope="module")
def scraped(measured: JournalMetrics) -> dict[str, Metric]:
    registry = CollectorRegistry()
    registry.register(FamilyCollector(FAMILIES, lambda: measured))
    text = generate_latest(registry).decode()
    return {metric.name: metric for metric in text_string_to_metric_families(text)}


@pytest.mark.parametrize("family", [*FAMILIES, *BROKER_FAMILIES], ids=lambda family: family.name)
def test_conventions(family: Family[Any]) -> None:
    """Names and help texts follow the rules that `promtool check metrics` enforces."""
    name = family.full_name
    assert re.fullmatch(r"cairnmq_[a-z0-9]+(_[a-z0-9]+)*", name)
    assert family.help.endswith(".")
    assert name.endswith("_total") == (family.kind == "counter")
    assert not name.endswith(("_count", "_sum", "_bucket"))
    assert not re.search(r"_(ms|us|ns|milliseconds|minutes|hours|days|kib|mib|kilobytes|percent)(_|$)", name)
    assert family.kind not in name
    for unit in ("seconds", "bytes", "ratio"):
        assert unit not in name or re.search(rf"_{unit}(_total)?$", name)


def test_every_family_is_scraped_as_it_says(scraped: dict[str, Metric]) -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    wanted = {(family.full_name.removesuffix("_total"), family.kind, family.help) for family in FAMILIES}
    assert {(metric.name, metric.type, metric.documentation) for metric in scraped.values()} == wanted


def test_values_are_the_figures(scraped: dict[str, Metric], measured: JournalMetrics) -> None:
    def value(name: str, **labels: str) -> float:
        metric = scraped[name]
        [found] = [sample.value for sample in metric.samples if labels.items() <= sample.labels.items()]
        return found

    assert value("cairnmq_journal_records") == measured.records == 2
    assert value("cairnmq_journal_appended_bytes", kind="user") == measured.user_bytes == 164
    assert value("cairnmq_journal_appended_bytes", kind="log") == 64
    assert value("cairnmq_journal_live_bytes") == 164
    assert value("cairnmq_disk_full") == 0
    [pin] = scraped["cairnmq_journal_base_pin_info"].samples
    assert pin.labels == {"held_by": "message"}  # IDs and names would create a new series for each message
    assert measured.base_held_by.endswith('on queue a "strange"\\ name\n')
    assert value("cairnmq_checkpoint_failing") == 0
    assert not scraped["cairnmq_checkpoint_age_seconds"].samples
    samples = scraped["cairnmq_journal_group_records"].samples
    groups = {sample.labels.get("le", sample.name): sample.value for sample in samples}
    assert groups["+Inf"] == groups["1.0"] == groups["cairnmq_journal_group_records_count"] == 2
    assert groups["cairnmq_journal_group_records_sum"] == 2


def test_the_page_is_the_table(measured: JournalMetrics) -> None:
    rows = []
    for family in FAMILIES:
        value = family.value(measured)
        labels = ", ".join(f"`{label}`" for label in getattr(value, "labels", ()))
        rows.append(f"| `{family.full_name}` | {family.kind} | {labels} | {family.help} |")
    figures = Figures(World(1).broker.parts, Core(lambda: None, lambda error: None), QueueChoice())
    for of_broker in BROKER_FAMILIES:
        labels = ", ".join(f"`{label}`" for label in getattr(of_broker.value(figures), "labels", ()))
        rows.append(f"| `{of_broker.full_name}` | {of_broker.kind} | {labels} | {of_broker.help} |")
    found = [line for line in PAGE.read_text().splitlines() if line.startswith("| `cairnmq_")]
    assert found == rows, "docs/reference/metrics.md should have:\n" + "\n".join(rows)


def test_the_page_names_only_metrics_there_are() -> None:
    families: list[Family[Any]] = [*FAMILIES, *BROKER_FAMILIES]
    known = {family.full_name for family in families}
    for name in re.findall(r"cairnmq_[a-z_]+", PAGE.read_text()):
        assert name in known or re.sub("_(sum|count|bucket)$", "", name) in known, name


def test_only_so_many_queues_have_series_of_their_own_and_totals_never_go_back() -> None:
    world = World(1 << 20)
    for number in range(7):
        world.broker.nodes.add_queue(f"orders-{number}", {})
        world.broker.nodes.add_queue(f"other-{number}", {})
    registry = CollectorRegistry()
    core = Core(lambda: None, lambda error: None)
    choice = QueueChoice(("orders-*",), 3)
    registry.register(FamilyCollector(BROKER_FAMILIES, lambda: Figures(world.broker.parts, core, choice)))
    terminal = world.open(to_client=False, address="orders-0")
    world.send(terminal, *[(object(), message(number, 10, False), 0) for number in range(5)])

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"cairnmq_{name}", labels)

    assert value("queues") == 14
    assert value("messages") == value("put_messages_total") == 5
    assert value("queue_messages", queue="orders-0") == 5
    assert value("queue_messages", queue="orders-2") == 0
    assert value("queue_messages", queue="orders-3") is None
    assert value("queue_messages", queue="other-0") is None
    world.do(world.broker.nodes.delete_queue, world.queue("orders-0"), lambda _: None)
    assert (value("messages"), value("put_messages_total")) == (0, 5)
    assert value("queue_messages", queue="orders-3") == 0


def test_dynamic_nodes_have_series_only_if_a_pattern_names_them() -> None:
    """Dynamic nodes have series only if a pattern matches: each client's reply queue would add a permanent series."""
    world = World(1)
    for name in ("orders", "dynamic-1", "dynamic-2"):
        world.broker.nodes.add_queue(name, {})
    queues = list(world.broker.nodes.queues.values())

    def shown(*patterns: str) -> list[str]:
        return [queue.name for queue in QueueChoice(patterns).among(queues)]

    assert shown("*") == ["orders"]
    assert shown("dynamic-*") == ["dynamic-1", "dynamic-2"]
    assert shown("dynamic-2", "o*") == ["orders", "dynamic-2"]
