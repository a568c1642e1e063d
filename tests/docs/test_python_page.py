"""Tests of the Python API reference: signatures equal the code, all public members, and executed examples."""

from __future__ import annotations

import ast
import inspect
import json
import re
from importlib import import_module
from pathlib import Path

import pytest

import cairnmq.analytics.spark
import cairnmq.base.testing
import cairnmq.store
import cairnmq.store.conformance

from ..readme_blocks import DOCS, PAGES, ROOT, blocks_of
from . import python_page

TEXT = python_page.PAGE.read_text()
BLOCKS = python_page.blocks()
CLASSES = [title for title in BLOCKS if inspect.isclass(python_page.found(title))]
PACKAGES = (cairnmq.store, cairnmq.analytics.spark, cairnmq.base.testing, cairnmq.store.conformance)
"""The packages that list their public names."""
DESCRIBED = [title for title in CLASSES if "| member |" in python_page.description(title)]
"""Classes whose members are described in a table."""
_NAME = re.compile(r"`(cairnmq(?:\.[a-z_]\w*)+(?:\.[A-Z]\w*)?)")
NOTEBOOKS = sorted(DOCS.rglob("*.ipynb"))


@pytest.mark.parametrize("title", BLOCKS)
def test_signatures_are_those_of_the_code(title: str) -> None:
    """Signatures on the page equal those of the code; `python -m tests.docs.python_page` writes them."""
    assert BLOCKS[title] == python_page.block(title)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_exported_names_are_on_the_page(package: object) -> None:
    names = package.__all__  # type: ignore[attr-defined]
    assert [name for name in names if not re.search(rf"`{name}`|\.{name}\"$", TEXT, re.M)] == []


@pytest.mark.parametrize("title", CLASSES)
def test_members_are_public_or_listed_as_internal(title: str) -> None:
    """Each assigned attribute is in `python_page.CLASSES`, with its type or as an internal member."""
    table = python_page.CLASSES.get(title, python_page.PublicClass())
    kind = python_page.found(title)
    assert set(dict(table.attributes)) | set(table.internal) >= python_page.assigned(title)
    assert [name for name in table.internal if name not in dir(kind) and name not in python_page.assigned(title)] == []


@pytest.mark.parametrize("title", DESCRIBED)
def test_each_member_has_a_row(title: str) -> None:
    cells = [line.split("|")[1] for line in python_page.description(title).splitlines() if line.startswith("| `")]
    described = set(re.findall(r"`(\w+)`", " ".join(cells)))
    members = {name for name, _ in python_page.members(title)} - {"__enter__", "__exit__", "__init__"}
    assert members - described == set()
    assert described - members == set()


def test_a_changed_signature_differs_from_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(self: cairnmq.store.Queue, timeout_ms: int = 0) -> cairnmq.store.Message | None:
        raise NotImplementedError

    title = "cairnmq.store.Queue"
    monkeypatch.setattr(cairnmq.store.Queue, "take", take)
    assert python_page.block(title) != BLOCKS[title]
    assert "timeout_ms" in python_page.block(title)


def programs() -> list[tuple[str, str]]:
    """Return the Python blocks of all pages and the code cells of notebooks."""
    found = [(block.page, block.text) for page in PAGES for block in blocks_of(page) if block.language == "python"]
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text())["cells"]
        found += [(path.name, "".join(cell["source"])) for cell in cells if cell["cell_type"] == "code"]
    return found


def test_names_that_examples_import_exist() -> None:
    imports = [
        (page, node.module, one.name)
        for page, program in programs()
        for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cairnmq")
        for one in node.names
    ]
    assert len(imports) > 20
    assert [one for one in imports if not exists(f"{one[1]}.{one[2]}")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_that_a_page_names_exist(page: Path) -> None:
    names = {name for name in _NAME.findall(page.read_text()) if (ROOT / name.split(".")[1]).is_dir()}
    assert [name for name in sorted(names) if not exists(name)] == []


def exists(name: str) -> bool:
    """Return whether *name* is that of a module, or of an object in a module."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False
