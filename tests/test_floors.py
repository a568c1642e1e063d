"""Tests that layers import downward only, as defined in pyproject.toml, and that all lists of layers are complete."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())
FLOORS: dict[str, list[str]] = CONFIG["tool"]["floors"]
SUBPACKAGES: dict[str, list[str]] = CONFIG["tool"]["subpackages"]
FILES = sorted(path for floor in FLOORS for path in (ROOT / floor).rglob("*.py"))


def target_of(path: Path, node: ast.ImportFrom) -> str:
    """Return the package or module of a relative import as a dotted name below the product's root."""
    package = path.relative_to(ROOT).parent.parts
    return ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])


VERSION = ""
"""Name of the package itself, which has the version and imports nothing."""


def imported_floors(path: Path) -> set[tuple[str, int]]:
    """Return the layers that *path* imports from, with the line numbers."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            found.add((target_of(path, node).partition(".")[0], node.lineno))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cairnmq"):
            found.add((f"absolute {node.module}", node.lineno))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_downwards(path: Path) -> None:
    if path.name == "pyspark_journal.py":
        pytest.skip("a module of its own, beside the product")
    floor = path.relative_to(ROOT).parts[0]
    wrong = {(name, line) for name, line in imported_floors(path) if name not in (VERSION, floor, *FLOORS[floor])}
    assert not wrong, f"{path}: floor {floor} may import {FLOORS[floor]}"


def test_package_imports_nothing_of_itself() -> None:
    assert not imported_floors(ROOT / "__init__.py")


def test_floors_stand_on_floors_below() -> None:
    order = list(FLOORS)
    for floor, below in FLOORS.items():
        assert all(order.index(name) < order.index(floor) for name in below), floor


def test_floors_are_packages_and_linked_for_type_checkers() -> None:
    listed = ["cairnmq"]
    for floor in FLOORS:
        assert (ROOT / "typings/cairnmq" / floor).resolve() == ROOT / floor
        listed.append(f"cairnmq.{floor}")
        listed += [f"cairnmq.{floor}.{name}" for name in SUBPACKAGES.get(floor, []) if name != "."]
    assert CONFIG["tool"]["setuptools"]["packages"] == listed


def test_files_do_not_import_each_other_in_a_circle() -> None:
    """Files have no import cycles at run time; imports for type checkers only are ignored."""
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in FILES}
    known = set(names.values())
    edges: dict[str, set[str]] = {}
    for path, here in names.items():
        edges[here] = set()
        for node in ast.parse(path.read_text()).body:  # top level only, without `if TYPE_CHECKING`
            if isinstance(node, ast.ImportFrom) and node.level:
                target = target_of(path, node)
                edges[here] |= known & {target, *(f"{target}.{alias.name}" for alias in node.names)}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"a circle: {' -> '.join((*trail, name))}"
        if name not in done:
            for other in edges.get(name, ()):
                visit(other, (*trail, name))
            done.add(name)

    for name in edges:
        visit(name, ())
