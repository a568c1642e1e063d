"""Write a man page for each command to a directory: `make man`, or `python scripts/man_pages.py build/man`."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import click
from click_man.core import write_man_pages

import cairnmq.cli.main as program


def main(target: Path) -> None:
    """Write all pages; first add each command to `commands`, which click-man reads and lazy imports leave empty."""
    target.mkdir(parents=True, exist_ok=True)
    root = program.cairnmq
    context = click.Context(root)
    for name, entry in program.COMMANDS.items():
        command = root.get_command(context, name)
        assert command is not None
        command.short_help = entry.text
        root.commands[name] = command
    write_man_pages("cairnmq", root, version=version("cairnmq"), target_dir=str(target))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
