"""Tests of import cycles of files and packages, including type-only imports, of package sizes, fan-out and fan-in.

The lists of known problems may only shrink: `known_circles.txt` (cycles of files, one per line),
`known_package_circles.txt`, `known_climbs.txt` (imports against the order of a layer's sub-packages), and
`known_fan_in.txt` (files that more than 25 others import; the goal for the broker is 3).
"""

from __future__ import annotations

from pathlib import Path

from .modules import (
    FLOORS,
    MODULES,
    SUBPACKAGES,
    circles,
    climbs,
    file_graph,
    lines_of,
    package_graph,
    package_of,
    widely_imported,
)

HERE = Path(__file__).parent
KNOWN = [line.split() for line in (HERE / "known_circles.txt").read_text().splitlines()]
KNOWN_OF_PACKAGES = [line.split() for line in (HERE / "known_package_circles.txt").read_text().splitlines()]
KNOWN_FAN_IN = (HERE / "known_fan_in.txt").read_text().splitlines()
KNOWN_CLIMBS = (HERE / "known_climbs.txt").read_text().splitlines()
COMPOSITION_ROOTS = {
    "broker.broker", "cluster.member", "broker_plugin.run", "cli.main", "recovery.recover",
}  # fmt: skip
"""Modules that connect the components, and may import any number of modules."""
MOST_IMPORTS = 16
"""Maximum number of imports of a file that is not a composition root."""
MOST_FILES = 16
"""Maximum number of files in a package, including its `__init__`."""
MOST_LINES = 3000
"""Maximum number of lines in a package, excluding its sub-packages."""
MOST_FOLDERS = 17
"""Maximum number of folders with code at the top level."""
BESIDE = ("bench", "tests")
"""Folders with code beside the product."""


def test_circles_of_files() -> None:
    found = circles(file_graph())
    assert found == KNOWN, "cut it; if a known circle became smaller or is gone, take that into known_circles.txt"


def test_circles_of_packages() -> None:
    found = circles(package_graph(file_graph()))
    assert found == KNOWN_OF_PACKAGES, "cut it; if one became smaller or is gone, take that into the list"


def test_imports_heed_the_order_of_subpackages() -> None:
    found = climbs(file_graph())
    assert not set(found) - set(KNOWN_CLIMBS), "a sub-package imports only from those before it in [tool.subpackages]"
    assert not set(KNOWN_CLIMBS) - set(found), "take these out of known_climbs.txt"


def test_packages_are_small() -> None:
    modules: dict[str, list[str]] = {}
    for module in MODULES:
        modules.setdefault(package_of(module), []).append(module)
    assert {package: len(found) for package, found in modules.items() if len(found) > MOST_FILES} == {}
    lines = {package: lines_of(found) for package, found in modules.items()}
    assert {package: count for package, count in lines.items() if count > MOST_LINES} == {}
    assert len({package.partition(".")[0] for package in modules}) + len(BESIDE) <= MOST_FOLDERS


def test_fan_out() -> None:
    graph = file_graph()
    parts = {module: len(targets) for module, targets in graph.items() if module not in COMPOSITION_ROOTS}
    beyond = {module: count for module, count in parts.items() if count > MOST_IMPORTS}
    assert beyond == {}, "a file that needs so many others has more than one responsibility"


def test_fan_in() -> None:
    known = {module: int(count) for module, count in map(str.split, KNOWN_FAN_IN)}
    found = {module: int(count) for module, count in map(str.split, widely_imported(file_graph()))}
    beyond = {module: count for module, count in found.items() if count > known.get(module, 0)}
    assert beyond == {}, "lower it: depend on a port or a value instead of the whole class"


def test_every_subpackage_is_listed() -> None:
    found: dict[str, list[str]] = {}
    for floor in FLOORS:
        rooms = sorted(path.parent.name for path in MODULES[f"{floor}.__init__"].parent.glob("*/__init__.py"))
        if rooms:
            found[floor] = rooms
    assert found == {floor: sorted({*rooms} - {"."}) for floor, rooms in SUBPACKAGES.items()}
