"""Generator of the command-line reference, which has the help text of every command.

`python -m tests.cli.cli_page` writes it, `--print` prints it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from cairnmq.cli.main import COMMANDS, cairnmq
from cairnmq.cli.options.subjects import SubjectOption

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
WIDTH = 100
BEGIN = """\
# Command line

This page has the help of every command. [configuration.md](configuration.md) describes the options
of `cairnmq broker`, which can also be set in a file and in the environment.

The exit statuses, where the help of a command does not name others:

| Status | Meaning |
|---|---|
| 0 | success |
| 1 | an error, or a finding of a command that reads a store ([store-tools.md](store-tools.md)) |
| 2 | an invalid argument, option, environment variable or configuration file, including a path that does not exist |
| 3 | losses (`salvage`), errors found (`doctor`) |
| 130, 143 | ended by Ctrl-C or SIGTERM |

The common options have one meaning, and stand before or behind the commands that have them:

COMMON

`cairnmq man` shows this help in a pager; the Debian package also installs man pages.

| Command | Purpose |
|---|---|
"""


def sections(command: click.Command, path: tuple[str, ...], context: click.Context) -> list[str]:
    """Return the lines of the sections of a command and its subcommands."""
    own = click.Context(command, parent=context, info_name=path[-1], max_content_width=WIDTH, terminal_width=WIDTH)
    lines = [f"{'#' * min(len(path), 4)} {' '.join(path)}", "", "```text", command.get_help(own), "```", ""]
    if isinstance(command, click.Group):
        for name in command.list_commands(own):
            found = command.get_command(own, name)
            assert found is not None
            lines += sections(found, (*path, name), own)
    return lines


def leaves(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    """Yield each command at or below *command* that is not a group, with its path."""
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from leaves(below, (*path, name))
    else:
        yield " ".join(path), command


def is_common(param: click.Parameter, option: str) -> bool:
    """Return whether *param* is the common *option*; other options may have the same name."""
    return option in param.opts and isinstance(param, SubjectOption) and (param.is_common or option == "--color")


def common_options() -> str:
    """Return a table of the common options and the commands that have them."""
    context = click.Context(cairnmq, info_name="cairnmq", **cairnmq.context_settings)
    found: dict[str, list[str]] = {}
    for name in COMMANDS:
        command = cairnmq.get_command(context, name)
        assert command is not None
        below = dict(leaves(command, (name,)))
        for option in (param.opts[0] for param in cairnmq.params if param.name != "version"):
            having = [path for path, leaf in below.items() if any(is_common(param, option) for param in leaf.params)]
            found.setdefault(option, []).extend([name] if len(having) == len(below) else having)
    lines = ["| Option | Commands |", "|---|---|"]
    for option, having in found.items():
        names = "all" if having == list(COMMANDS) else ", ".join(f"`{name}`" for name in having)
        lines.append(f"| `{option}` | {names} |")
    return "\n".join(lines)


def page() -> str:
    """Return the complete page."""
    context = click.Context(cairnmq, info_name="cairnmq", **cairnmq.context_settings)
    lines = [f"| `cairnmq {name}` | {entry.text} |" for name, entry in COMMANDS.items()]
    for name in COMMANDS:
        command = cairnmq.get_command(context, name)
        assert command is not None
        lines += ["", *sections(command, ("cairnmq", name), context)]
    text = BEGIN.replace("COMMON", common_options()) + "\n".join(lines)
    return "\n".join(line.rstrip() for line in text.replace("\n\n\n", "\n\n").splitlines()) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        print(page(), end="")
    else:
        PAGE.write_text(page())
