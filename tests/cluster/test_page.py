"""Test that docs/explanation/cluster.md contains the table of the metrics."""

from __future__ import annotations

from pathlib import Path

from cairnmq.broker_plugin.cluster_exposition import CLUSTER_FAMILIES
from cairnmq.broker_plugin.exposition import FamilyCollector
from tests.harness.cluster.cluster_harness import ClusterHarness

PAGE = Path(__file__).parents[2] / "docs" / "explanation/cluster.md"


def test_the_page_is_the_table() -> None:
    core = ClusterHarness(1).start()[1].core
    assert len([*FamilyCollector(CLUSTER_FAMILIES, lambda: core).collect()]) == len(CLUSTER_FAMILIES)
    rows = []
    for family in CLUSTER_FAMILIES:
        labels = ", ".join(f"`{label}`" for label in getattr(family.value(core), "labels", ()))
        rows.append(f"| `{family.full_name}` | {family.kind} | {labels} | {family.help} |")
    found = [line for line in PAGE.read_text().splitlines() if line.startswith("| `cairnmq_")]
    assert found == rows, "docs/explanation/cluster.md should have:\n" + "\n".join(rows)
