"""The notebook in docs/notebooks runs and shows the operations of clients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from cairnmq.analytics.views.journal import open_journal

from ..spark.conftest import fill_store

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks" / "journal.ipynb"


def test_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "archive"
    fill_store(tmp_path / "data", 200, archive)
    monkeypatch.setenv("CAIRNMQ_STORE", str(tmp_path / "data"))
    monkeypatch.setenv("CAIRNMQ_ARCHIVE", str(archive))
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    book = nbformat.read(NOTEBOOK, 4)
    assert not any(cell.get("outputs") for cell in book.cells)  # the notebook is stored without outputs
    NotebookClient(book, timeout=500, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = {cell.id: cell.outputs for cell in book.cells if cell.cell_type == "code"}
    [bars] = figure(shown["depth"])["data"]  # a short history has one bar for each queue
    queues = open_journal(str(tmp_path / "data"), archive=str(archive)).queues().to_pylist()
    assert dict(zip(bars["y"], bars["x"], strict=True)) == {row["queue"]: row["depth"] for row in queues}
    stays = {one["name"]: one["y"] for one in figure(shown["lifetimes"])["data"]}
    assert stays == {"p50": ["passing"], "p99": ["passing"]}
    table = shown["lifetimes-table"][-1]["data"]["text/plain"]
    assert "passing" in table
    assert "staying" not in table
    assert "message_id" in shown["own"][-1]["data"]["text/plain"]


def figure(outputs: list[dict[str, Any]]) -> dict[str, Any]:
    [found] = [output["data"]["application/vnd.plotly.v1+json"] for output in outputs if "data" in output]
    made: dict[str, Any] = json.loads(json.dumps(found))
    return made
