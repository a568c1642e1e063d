"""Test that tests use third-party software as it is published: nothing of it is replaced, overridden or relaxed.

Exempt are the test frameworks themselves, pytest and Hypothesis.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

import pytest

from .modules import ROOT

FILES = sorted([*ROOT.glob("tests/**/*.py"), *ROOT.glob("bench/**/*.py")])
OWN = {"cairnmq", "tests", "bench", "pytest", "_pytest", "hypothesis", *sys.stdlib_module_names}
IMPORTERS = {"import_module", "importorskip", "__import__"}
PATCHERS = {"setattr", "delattr", "setitem", "delitem", "object", "patch", "multiple"}
"""Methods of pytest's `monkeypatch`, and functions of `unittest.mock`."""
PART, INSTANCE = "part", "instance"
"""Kinds of third-party objects: a module, class or function; a value that these return."""


def is_foreign(module: str) -> bool:
    return module.partition(".")[0] not in OWN


def name_of(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


class ForeignNames:
    """The names of a file that are bound to third-party objects, with their kinds."""

    def __init__(self, tree: ast.AST) -> None:
        self.kinds: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self._bind((a.asname or a.name).partition(".")[0] for a in node.names if is_foreign(a.name))
            elif isinstance(node, ast.ImportFrom) and not node.level and is_foreign(node.module or ""):
                self._bind(alias.asname or alias.name for alias in node.names)
        known = -1
        while len(self.kinds) > known:
            known = len(self.kinds)
            for node in ast.walk(tree):
                if isinstance(node, ast.Assign | ast.AnnAssign) and (kind := self.kind(node.value)):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    names = [name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
                    self._bind((name.id for name in names if isinstance(name.ctx, ast.Store)), kind)

    def _bind(self, names: Iterator[str], kind: str = PART) -> None:
        for name in names:
            self.kinds.setdefault(name, kind)

    def kind(self, node: ast.AST | None) -> str | None:
        """Return the kind of the third-party object that an expression is, or None."""
        if isinstance(node, ast.Name):
            return self.kinds.get(node.id)
        if isinstance(node, ast.Attribute | ast.Subscript):
            return self.kind(node.value)
        if isinstance(node, ast.Tuple | ast.List | ast.GeneratorExp | ast.ListComp):
            inner = node.elts if isinstance(node, ast.Tuple | ast.List) else [node.elt]
            return next((kind for one in inner if (kind := self.kind(one))), None)
        if isinstance(node, ast.Call):
            name = name_of(node.func)
            if name in IMPORTERS and node.args:
                asked = node.args[0]
                return PART if not isinstance(asked, ast.Constant) or is_foreign(str(asked.value)) else None
            if name == "getattr":
                return self.kind(node.args[0])
            return INSTANCE if self.kind(node.func) else None
        return None


def changes(source: str) -> Iterator[int]:
    """Yield the lines that replace a part of third-party software.

    That is: a patch, an assignment to an attribute of a module or class or to a private attribute of an instance, or a
    subclass that overrides a private method.
    """
    tree = ast.parse(source)
    foreign = ForeignNames(tree)

    def is_change(of: ast.expr, attribute: str) -> bool:
        kind = foreign.kind(of)
        return kind == PART or (kind == INSTANCE and attribute.startswith("_"))

    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            of, name = node.args[0], name_of(node.func)
            is_dotted = isinstance(of, ast.Constant) and isinstance(of.value, str) and is_foreign(of.value)
            if isinstance(node.func, ast.Name) and name in ("setattr", "delattr"):
                asked = node.args[1]
                if is_change(of, str(asked.value) if isinstance(asked, ast.Constant) else ""):
                    yield node.lineno
            elif name in PATCHERS and (foreign.kind(of) or (is_dotted and "." in ast.unparse(of))):
                yield node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            if is_change(node.value, node.attr):
                yield node.lineno
        elif isinstance(node, ast.ClassDef) and any(foreign.kind(base) for base in node.bases):
            methods = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
            yield from (one.lineno for one in methods if one.name.startswith("_") and not one.name.endswith("__"))


def test_no_test_changes_third_party_software() -> None:
    # U2, C1: a client whose check of the broker is disabled proves nothing about that client
    found = [f"{path.relative_to(ROOT)}:{line}" for path in FILES for line in changes(path.read_text())]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import foreign\nforeign.Client.check = lambda self: None",
        "from foreign import Client as C\nC._check = None",
        "from importlib import import_module\nkind = import_module('foreign.part').Client\nkind._check = None",
        "kind = pytest.importorskip('foreign').Client\nmonkeypatch.setattr(kind, '_check', None)",
        "monkeypatch.setattr('foreign.part.check', None)",
        "from unittest import mock\nmock.patch('foreign.check')",
        "import foreign\nclient = foreign.Client()\nclient._version = '4.0'",
        "import foreign\nsetattr(foreign.Client(), '_check', None)",
        "import foreign\nbase = foreign.Client\nclass Mine(base):\n    def _check(self): pass",
    ],
)
def test_change_of_third_party_software_is_found(source: str) -> None:
    assert list(changes(source))
