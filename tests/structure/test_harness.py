"""Tests that test files import helpers from `tests.harness`, and never from each other."""

from __future__ import annotations

import ast
from pathlib import Path

from .modules import ROOT

RUNNERS = {"tests/cluster/test_simulation.py", "tests/clients/test_transactions_in_a_cluster.py"}
"""Test files that run the properties of other files under other conditions."""
FILES = sorted(ROOT.glob("tests/**/*.py"))


def imported_tests(path: Path) -> list[str]:
    """Return the names of test files that *path* imports, or imports from."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            found += [name for name in names if (path.parent / f"{name}.py").exists() and name.startswith("test_")]
            found += [name for name in (node.module or "").split(".") if name.startswith("test_")]
    return sorted({*found})


def test_helpers_come_from_the_harness() -> None:
    found = {str(path.relative_to(ROOT)): imported_tests(path) for path in FILES}
    assert {name: tests for name, tests in found.items() if tests and name not in RUNNERS} == {}
