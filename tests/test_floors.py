"""The house stands: floors import downwards only, as pyproject.toml says, and every floor is listed everywhere."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())
FLOORS: dict[str, list[str]] = CONFIG["tool"]["floors"]
FILES = sorted(path for floor in FLOORS for path in (ROOT / floor).glob("*.py"))


def imported_floors(path: Path) -> set[tuple[str, int]]:
    """The floors that *path* imports from, with the line."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 2:
            found.add(((node.module or "").split(".")[0], node.lineno))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cairnmq"):
            found.add((f"absolute {node.module}", node.lineno))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_downwards(path: Path) -> None:
    floor = path.parent.name
    wrong = {(name, line) for name, line in imported_floors(path) if name not in FLOORS[floor]}
    assert not wrong, f"{path}: floor {floor} may import {FLOORS[floor]}"


def test_floors_stand_on_floors_below() -> None:
    order = list(FLOORS)
    for floor, below in FLOORS.items():
        assert all(order.index(name) < order.index(floor) for name in below), floor


def test_floors_are_packages_and_linked_for_type_checkers() -> None:
    assert CONFIG["tool"]["setuptools"]["packages"] == [f"cairnmq.{floor}" for floor in FLOORS]
    for floor in FLOORS:
        assert (ROOT / "typings/cairnmq" / floor).resolve() == ROOT / floor
        assert not [path for path in (ROOT / floor).iterdir() if path.is_dir() and path.name != "__pycache__"], "flat"


def test_files_of_a_floor_do_not_import_each_other_in_a_circle() -> None:
    """At run time; what only type checkers read is left out."""
    edges: dict[str, set[str]] = {}
    for path in FILES:
        here = f"{path.parent.name}.{path.stem}"
        edges[here] = set()
        for node in ast.parse(path.read_text()).body:  # top level: not under `if TYPE_CHECKING`
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                names = [node.module] if node.module else [alias.name for alias in node.names]
                edges[here] |= {f"{path.parent.name}.{name}" for name in names}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"a circle: {' -> '.join((*trail, name))}"
        if name not in done:
            for other in edges.get(name, ()):
                visit(other, (*trail, name))
            done.add(name)

    for name in edges:
        visit(name, ())
