"""Tests that a store of another package is found by its entry point."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cairnmq.base.errors import CairnError
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.contract.registry import find_kind
from cairnmq.store.mapped.memory_store import MemoryStore

MODULE = """
from cairnmq.recovery.open_memory import open_memory_store

def open_it(path, clock, options, progress):
    assert (path, progress) == ("some/where", None)
    return open_memory_store("", clock, options, progress)
"""
ENTRY_POINTS = "[cairnmq.stores]\nelsewhere = their_store:open_it\nbroken = their_store:nothing\n"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install another package with a store: its module, and the metadata that pip writes."""
    info = tmp_path / "their_store-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-store\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "their_store.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "their_store", raising=False)


@pytest.mark.usefixtures("installed")
def test_others_stores_are_found() -> None:
    store, report = find_kind("elsewhere")("some/where", ManualClock(), StoreOptions(), None)
    assert isinstance(store, MemoryStore)
    assert report.lines()[0] == "new store"
    store.close()
    with pytest.raises(CairnError, match="there are broken, elsewhere, journal, memory, sql"):
        find_kind("tape")
    with pytest.raises(CairnError, match="--store broken: it can't be loaded from their_store:nothing"):
        find_kind("broken")


def test_ours_are_found() -> None:
    assert [find_kind(kind).__name__ for kind in ("journal", "sql", "memory")] == [  # type: ignore[attr-defined]
        "open_store", "open_sql_store", "open_memory_store",
    ]  # fmt: skip
