"""Tests that the links of the pages are valid, and that the index lists every decision record."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .structure.modules import FLOORS
from .structure.packages import table

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    local = [link for link in LINK.findall(text) if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_every_decision_is_in_the_index() -> None:
    decisions = ROOT / "docs" / "decisions"
    linked = LINK.findall((decisions / "README.md").read_text())
    assert sorted(linked) == sorted(path.name for path in decisions.glob("0*.md"))


def test_modules_that_the_reclaim_page_names_exist() -> None:
    named = re.findall(r"`((?:store|journal)/[\w/]+\.py)`", (ROOT / "docs" / "explanation/reclaim.md").read_text())
    assert len(named) >= 6
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_architecture_lists_every_subpackage() -> None:
    """ARCHITECTURE.md has the table that `python -m tests.structure.packages` prints."""
    assert table() in (ROOT / "ARCHITECTURE.md").read_text()


def test_architecture_names_every_layer() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert [floor for floor in FLOORS if f"| `{floor}` |" not in text] == []
