"""Import graph of the product: files, packages, and cycles among them, including type-only imports."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())
FLOORS: dict[str, list[str]] = CONFIG["tool"]["floors"]
SUBPACKAGES: dict[str, list[str]] = CONFIG["tool"].get("subpackages", {})
"""Sub-packages of each layer, from the lowest to the highest."""

GROUND = ("base.", "amqp.ports", "amqp.connector_target", "amqp.codec.", "journal.", "store.")
"""Prefixes of modules in the lowest layers, which any number of modules may import."""
Graph = Mapping[str, set[str]]


def module_of(path: Path) -> str:
    """Return the dotted name below `cairnmq`; for a package, the name of its `__init__`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts)


MODULES = {
    module_of(path): path
    for floor in FLOORS
    for path in sorted((ROOT / floor).rglob("*.py"))
    if (path.parent / "__init__.py").exists()
}


def package_of(module: str) -> str:
    """Return the package of a module."""
    return module.rpartition(".")[0]


@cache
def import_statements(module: str) -> tuple[tuple[str, str, int], ...]:
    """Return the package or module, imported name, and line of each import from the product.

    Imports below `if TYPE_CHECKING` and inside functions count, too.
    """
    package = package_of(module).split(".")
    found: list[tuple[str, str, int]] = []
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            target = ".".join([*base, *([node.module] if node.module else [])])
            found += [(target, alias.name, node.lineno) for alias in node.names]
    return tuple(found)


def imported_modules(module: str) -> set[str]:
    """Return the modules that *module* imports; for a package, its `__init__`."""
    found: set[str] = set()
    for target, name, _ in import_statements(module):
        for candidate in (f"{target}.{name}", target, f"{target}.__init__"):
            if candidate in MODULES:
                found.add(candidate)
                break
    return found - {module}


def file_graph() -> dict[str, set[str]]:
    """Return the imported modules of each module."""
    return {module: imported_modules(module) for module in MODULES}


def package_graph(files: Graph) -> dict[str, set[str]]:
    """Return the packages that each package imports from."""
    packages: dict[str, set[str]] = {package_of(module): set() for module in files}
    for module, targets in files.items():
        packages[package_of(module)] |= {package_of(target) for target in targets} - {package_of(module)}
    return packages


def climbs(files: Graph) -> list[str]:
    """Return imports from a later sub-package in the order of the layer, as `module target`."""
    found = []
    for module, targets in files.items():
        floor, _, own = package_of(module).partition(".")
        order = SUBPACKAGES.get(floor, ["."])
        for target in targets:
            other_floor, _, other = package_of(target).partition(".")
            if other_floor == floor and order.index(other or ".") > order.index(own or "."):
                found.append(f"{module} {target}")
    return sorted(found)


def circles(graph: Graph) -> list[list[str]]:
    """Return the sorted strongly connected components with several nodes, the largest first (Tarjan, 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(root: str) -> None:
        work: list[tuple[str, Iterator[str]]] = [(root, iter(sorted(graph[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in graph:
                    continue
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    work.append((target, iter(sorted(graph[target]))))
                    break
                if target in stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = stack.index(node)
                    component, stack[at:] = sorted(stack[at:]), []
                    if len(component) > 1:
                        found.append(component)

    for node in graph:
        if node not in index:
            visit(node)
    return sorted(found, key=len, reverse=True)


def fan_in(graph: Graph) -> dict[str, int]:
    """Return the number of importing modules for each module."""
    counted = dict.fromkeys(graph, 0)
    for targets in graph.values():
        for target in targets:
            counted[target] += 1
    return counted


def widely_imported(graph: Graph) -> list[str]:
    """Return modules above the lowest layers that more than 25 others import, as `module count`."""
    counted = {module: count for module, count in fan_in(graph).items() if count > 25}
    return sorted(f"{module} {count}" for module, count in counted.items() if not module.startswith(GROUND))


def lines_of(modules: Iterable[str]) -> int:
    """Return the number of physical lines of *modules*."""
    return sum(len(MODULES[module].read_text().splitlines()) for module in modules)
