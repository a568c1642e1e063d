"""Generator of the command-line reference: pages with the help of every command.

`python -m tests.cli.cli_page` writes them, `--print` prints them. Options that several commands have in
the same words are described once.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from cairnmq.cli.main import COMMANDS, cairnmq
from cairnmq.cli.options.subjects import GENERAL, OPTIONS, OUTPUT, SubjectOption

FOLDER = Path(__file__).parents[2] / "docs" / "reference" / "cli"
WIDTH = 100
SHARED = 3
"""An option of so many commands is described once."""
PAGES = {
    "broker": "Broker commands", "host": "Host and user commands", "messages": "Message commands",
    "ctl": "Management commands", "store": "Store commands", "history": "History commands",
    "analysis": "Analysis commands", "test": "Test commands",
}  # fmt: skip
"""The pages: names of files, and titles."""
_OF_SUBJECTS = {"Store": "store", "History": "history", "Analyze": "analysis", "Test": "test", "Manage": "messages"}
_OF_COMMANDS = {
    "broker": "broker", "dev": "broker", "console": "broker", "config": "host", "doctor": "host",
    "support-bundle": "host", "users": "host", "ctl": "ctl",
}  # fmt: skip
BEGIN = """\
# Command line

| Command | Purpose |
|---|---|
COMMANDS

These pages have the help of every command, which `--help` (`-h`) prints. `cairnmq man` shows it in
a pager, and the Debian package installs man pages. [Configuration](../configuration.md) describes
the options of `cairnmq broker`, which can also be set in a file and in the environment.

## Exit statuses

A command's help names others.

| Status | Meaning |
|---|---|
| 0 | success |
| 1 | an error, or a finding of a command that reads a store ([Store tools](../store-tools.md)) |
| 2 | an invalid argument, option, environment variable or configuration file, including a path that does not exist |
| 3 | losses (`salvage`), errors found (`doctor`) |
| 130, 143 | ended by Ctrl-C or SIGTERM |

## Common options

Commands with these options accept them before and behind their names.

"""


class Option(NamedTuple):
    """An option as a help shows it."""

    subject: str
    names: str
    text: str

    @property
    def name(self) -> str:
        """The name without its values."""
        return next(name.rstrip(",") for name in self.names.split() if name.startswith("--"))


def leaves(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    """Yield each command at or below *command* that is not a group, with its path."""
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from leaves(below, (*path, name))
    else:
        yield " ".join(path), command


def walk(command: click.Command, path: tuple[str, ...], parent: click.Context) -> Iterator[tuple[str, click.Context]]:
    """Yield *command* and all commands below it, with their paths and contexts."""
    own = click.Context(command, parent=parent, info_name=path[-1], max_content_width=WIDTH, terminal_width=WIDTH)
    yield " ".join(path), own
    if isinstance(command, click.Group):
        for name in command.list_commands(own):
            found = command.get_command(own, name)
            assert found is not None
            yield from walk(found, (*path, name), own)


def page_of(name: str) -> str:
    """Return the page of the command `cairnmq` *name*."""
    return _OF_COMMANDS.get(name) or _OF_SUBJECTS[COMMANDS[name].subject]


def options_of(context: click.Context) -> list[Option]:
    """Return the options of a command in the order of its help, but for `--help`."""
    found: dict[str, list[Option]] = {OPTIONS: []}
    for param in context.command.get_params(context):
        record = param.get_help_record(context)
        if record is None or isinstance(param, click.Argument) or "--help" in param.opts:
            continue
        subject = param.subject if isinstance(param, SubjectOption) else GENERAL if param.is_eager else OPTIONS
        found.setdefault(subject, []).append(Option(subject, *record))
    return [one for several in found.values() for one in several]


def described(options: list[Option], formatter: click.HelpFormatter) -> None:
    """Write *options* by their subjects."""
    for subject in dict.fromkeys(one.subject for one in options):
        with formatter.section(subject):
            formatter.write_dl([(one.names, one.text) for one in options if one.subject == subject])


def block(text: str) -> list[str]:
    return ["```text", text.strip("\n"), "```", ""]


def table_of_shared(options: list[Option]) -> list[str]:
    formatter = click.HelpFormatter(width=WIDTH)
    described(sorted(options, key=lambda one: one.subject), formatter)
    return block(formatter.getvalue())


def wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def names_of(options: list[Option]) -> str:
    return ", ".join(f"`{one.name}`" for one in options)


class Reference:
    """All commands, by pages, and the options that they share."""

    def __init__(self) -> None:
        top = click.Context(cairnmq, info_name="cairnmq", **cairnmq.context_settings)
        self.pages: dict[str, list[tuple[str, click.Context]]] = {page: [] for page in PAGES}
        for name in COMMANDS:
            command = cairnmq.get_command(top, name)
            assert command is not None
            self.pages[page_of(name)] += walk(command, ("cairnmq", name), top)
        self.broker = {one for one in options_of(self.pages["broker"][0][1]) if one.subject != OUTPUT}
        users: dict[Option, list[str]] = {}
        for page in PAGES:
            for _, context in self.commands(page):
                for one in options_of(context):
                    users.setdefault(one, []).append(page)
        shared = {one: pages for one, pages in users.items() if len(pages) >= SHARED and one not in self.broker}
        most = {one.name: one for one, _ in sorted(shared.items(), key=lambda item: len(item[1]))}
        self.common = [one for one, pages in shared.items() if len(set(pages)) > 1 and most[one.name] is one]
        self.of_pages = {page: [one for one, pages in shared.items() if set(pages) == {page}] for page in PAGES}

    def commands(self, page: str) -> list[tuple[str, click.Context]]:
        """Return the commands of *page* that are not groups."""
        return [(path, context) for path, context in self.pages[page] if not isinstance(context.command, click.Group)]

    def index(self) -> str:
        rows = [
            f"| [`cairnmq {name}`]({page_of(name)}.md#cairnmq-{name}) | {entry.text} |"
            for name, entry in COMMANDS.items()
        ]
        return BEGIN.replace("COMMANDS", "\n".join(rows)) + "\n".join(table_of_shared(self.common))

    def page(self, page: str) -> str:
        """Return the text of *page*."""
        lines = [f"# {PAGES[page]}", ""]
        commands = self.commands(page)
        of_all = [one for one in self.common if all(one in options_of(context) for _, context in commands)]
        if of_all:
            lines += [*wrapped(f"All have these [common options](index.md#common-options): {names_of(of_all)}."), ""]
        if own := self.of_pages[page]:
            lines += ["Several commands share these options:", "", *table_of_shared(own)]
        for path, context in self.pages[page]:
            level = 2 if page != "ctl" or path == "cairnmq ctl" else 3
            lines += [f"{'#' * min(level, len(path.split()))} {path}", "", *self.section(context, of_all)]
        return "\n".join(lines)

    def section(self, context: click.Context, of_all: list[Option]) -> list[str]:
        """Return the help of a command without the options that are described elsewhere."""
        command, formatter = context.command, context.make_formatter()
        if isinstance(command, click.Group):
            command.format_help_text(context, formatter)
            text = formatter.getvalue()
            return [text.strip(), ""] if len(text.strip().splitlines()) == 1 else block(text)
        command.format_usage(context, formatter)
        command.format_help_text(context, formatter)
        options = options_of(context)
        of_broker = [one for one in options if one in self.broker]
        elsewhere = [one for one in options if one in self.common or any(one in own for own in self.of_pages.values())]
        described([one for one in options if one not in elsewhere and one not in of_broker], formatter)
        command.format_epilog(context, formatter)
        lines = block(formatter.getvalue())
        if named := [one for one in elsewhere if one not in of_all]:
            lines += [*wrapped(f"Shared options: {names_of(named)}."), ""]
        if of_broker:
            names = "all" if self.broker == set(of_broker) else names_of(of_broker)
            lines += [f"Options of the [broker](../configuration.md): {names}.", ""]
        return lines


def pages() -> dict[str, str]:
    """Return the texts of the pages by their names."""
    reference = Reference()
    found = {"index": reference.index(), **{page: reference.page(page) for page in PAGES}}
    return {
        f"{name}.md": "\n".join(line.rstrip() for line in text.strip().replace("\n\n\n", "\n\n").splitlines()) + "\n"
        for name, text in found.items()
    }


if __name__ == "__main__":
    for name, text in pages().items():
        if sys.argv[1:] == ["--print"]:
            print(text, end="")
        else:
            (FOLDER / name).write_text(text)
