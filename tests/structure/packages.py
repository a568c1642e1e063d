"""Generator of the table of sub-packages in ARCHITECTURE.md: `python -m tests.structure.packages`."""

from __future__ import annotations

import ast

from .modules import FLOORS, MODULES, SUBPACKAGES


def table() -> str:
    """Return one row for each sub-package, in the order of layers and of their sub-packages, with its docstring."""
    rows = ["| package | contents |", "|---|---|"]
    for floor in FLOORS:
        for name in SUBPACKAGES.get(floor, ()):
            if name != ".":
                path = MODULES[f"{floor}.{name}.__init__"]
                text = ast.get_docstring(ast.parse(path.read_text())) or ""
                rows.append(f"| `{floor}/{name}` | {' '.join(text.partition(chr(10) * 2)[0].split())} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
