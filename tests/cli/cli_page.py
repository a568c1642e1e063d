"""The reference page of the command line: the help of every command, as it is printed.

`python -m tests.cli.cli_page` writes it, `--print` prints it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cairnmq.cli.main import COMMANDS, cairnmq

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
WIDTH = 100
BEGIN = """\
# Command line

This page has the help of every command. [configuration.md](configuration.md) describes the options
of `cairnmq broker`, which can also be set in a file and in the environment.

The exit statuses have the same meaning in all commands:

| Status | Meaning |
|---|---|
| 0 | success |
| 1 | an error, or a finding of a command that reads a store ([store-tools.md](store-tools.md)) |
| 2 | an invalid argument, option, environment variable or configuration file, including a path that does not exist |
| 3 | losses (`salvage`), errors found (`doctor`) |
| 130, 143 | ended by Ctrl-C or SIGTERM |

`cairnmq man` shows this help in a pager; the Debian package also installs man pages.

| Command | Purpose |
|---|---|
"""


def sections(command: click.Command, path: tuple[str, ...], context: click.Context) -> list[str]:
    """The section of a command, and those of its commands."""
    own = click.Context(command, parent=context, info_name=path[-1], max_content_width=WIDTH, terminal_width=WIDTH)
    lines = [f"{'#' * min(len(path), 4)} {' '.join(path)}", "", "```text", command.get_help(own), "```", ""]
    if isinstance(command, click.Group):
        for name in command.list_commands(own):
            found = command.get_command(own, name)
            assert found is not None
            lines += sections(found, (*path, name), own)
    return lines


def page() -> str:
    """The whole page."""
    context = click.Context(cairnmq, info_name="cairnmq", **cairnmq.context_settings)
    lines = [f"| `cairnmq {name}` | {entry.text} |" for name, entry in COMMANDS.items()]
    for name in COMMANDS:
        command = cairnmq.get_command(context, name)
        assert command is not None
        lines += ["", *sections(command, ("cairnmq", name), context)]
    text = BEGIN + "\n".join(lines)
    return "\n".join(line.rstrip() for line in text.replace("\n\n\n", "\n\n").splitlines()) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        print(page(), end="")
    else:
        PAGE.write_text(page())
