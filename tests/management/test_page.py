"""Tests that docs/reference/management.md equals the tables of the management node."""

from __future__ import annotations

import textwrap
from pathlib import Path

from cairnmq.broker_plugin.account_changes import AccountChanges
from cairnmq.management.entity_types import make_types
from cairnmq.management.operations.message_description import ATTRIBUTES
from cairnmq.management.operations.operations import NODE_OPERATIONS
from cairnmq.management.serve import sampler_of
from tests.harness.broker.world import World

PAGE = (Path(__file__).parents[2] / "docs" / "reference/management.md").read_text()


def tables() -> str:
    lines: list[str] = []
    parts = World(1 << 20).broker.parts
    accounts = AccountChanges("users", True, lambda *work: None, lambda *work: None)
    for type in make_types(parts, lambda done, is_dry_run: None, (), accounts, sampler_of(parts)).values():
        lines += ["", f"### {type.name}", "", textwrap.fill(type.meaning, 100), ""]
        lines += ["| attribute | | meaning |", "|---|---|---|"]
        lines += [f"| `{one.name}` | {one.kind} | {one.meaning} |" for one in type.attributes.values()]
        lines += ["", "| operation | body | meaning |", "|---|---|---|"]
        for operation in type.operations.values():
            body = ", ".join(f"`{argument}`" for argument in operation.arguments)
            lines.append(f"| {operation.name} | {body} | {operation.meaning} |")
        if type.name == "queue":
            lines += ["", "The messages in the result of PEEK:", "", "| key | | meaning |", "|---|---|---|"]
            lines += [f"| `{name}` | {kind} | {meaning} |" for name, kind, meaning in ATTRIBUTES]
    return "\n".join(lines).strip() + "\n"


def test_the_page_has_the_tables() -> None:
    found = PAGE.partition("## Types\n\n")[2]
    assert found == tables(), "docs/reference/management.md should end with:\n" + tables()


def test_the_page_names_what_the_node_does() -> None:
    for operation in NODE_OPERATIONS:
        assert f"`{operation}`" in PAGE


if __name__ == "__main__":
    before, mark, _ = PAGE.partition("## Types\n\n")
    (Path(__file__).parents[2] / "docs" / "reference/management.md").write_text(before + mark + tables())
