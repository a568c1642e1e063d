"""docs/CLUSTER.md has the table of the metrics."""

from __future__ import annotations

from pathlib import Path

from cairnmq.base.clock import SystemClock
from cairnmq.broker_plugin.cluster_exposition import CLUSTER_FAMILIES, ClusterCollector
from cairnmq.broker_plugin.membership import Membership
from cairnmq.broker_plugin.options import ClusterOptions, Places

PAGE = Path(__file__).parents[2] / "docs" / "CLUSTER.md"


def test_the_page_is_the_table() -> None:
    core = Membership(ClusterOptions("c", 1), SystemClock(), print, {}, Places()).core
    assert len([*ClusterCollector(core).collect()]) == len(CLUSTER_FAMILIES)
    rows = []
    for family in CLUSTER_FAMILIES:
        labels = ", ".join(f"`{label}`" for label in getattr(family.value(core), "labels", ()))
        rows.append(f"| `{family.full_name}` | {family.kind} | {labels} | {family.help} |")
    found = [line for line in PAGE.read_text().splitlines() if line.startswith("| `cairnmq_")]
    assert found == rows, "docs/CLUSTER.md should have:\n" + "\n".join(rows)
