"""Tests that all `cairnmq` commands in shell blocks of pages have valid names, options and arguments.

That includes the blocks that no test executes.
"""

from __future__ import annotations

import shlex

import click
import pytest

from cairnmq.cli.main import cairnmq

from ..readme_blocks import PAGES, blocks_of

_OPERATORS = "|&;<>()"
_CHECKED = ("cairnmq", "venv/bin/cairnmq", ".venv/bin/cairnmq", "/usr/bin/cairnmq")
_BEFORE_COMMANDS = ("sudo", "exec", "broker", "time", "do", "then", "$")


def commands_of(line: str) -> list[list[str]]:
    """Return the words after `cairnmq` of each such command in a shell line."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace_split = True
    found: list[list[str]] = []
    current: list[str] | None = None
    before = ""
    for word in lexer:
        is_first = not before or before in _BEFORE_COMMANDS or "=" in before
        before = "" if set(word) <= set(_OPERATORS) else word
        if not before:
            current = None
        elif current is None and is_first and word in _CHECKED:
            current = []
            found.append(current)
        elif current is not None:
            current.append(word)
    return found


def problem(words: list[str]) -> str | None:
    """Return the error in the words after `cairnmq`, or None."""
    command: click.Command = cairnmq
    context = click.Context(command, info_name="cairnmq")
    rest = list(words)
    while isinstance(command, click.Group):
        if not rest or rest[0].startswith("-"):
            return None  # an option of the group, such as --version
        name = rest.pop(0)
        found = command.get_command(context, name)
        if found is None:
            return f"no command {name!r}"
        command, context = found, click.Context(found, info_name=name, parent=context)
    try:
        given, left, _ = command.make_parser(context).parse_args(rest)
    except click.UsageError as error:
        return error.format_message()
    if "--help" in words or "-h" in words:
        return None
    missing = [one.name for one in command.params if one.required and given.get(one.name or "") in (None, ())]
    if missing:
        return f"missing: {', '.join(map(str, missing))}"
    return f"unexpected: {' '.join(left)}" if left else None


LINES = [
    pytest.param(line, id=f"{block.page}: {line.strip()}"[:100])
    for page in PAGES
    for block in blocks_of(page)
    if block.language in ("sh", "bash", "console")
    for line in block.commands
    if "cairnmq " in line and "<<" not in line
]


@pytest.mark.parametrize("line", LINES)
def test_command_of_a_page_exists_with_its_options(line: str) -> None:
    try:
        commands = commands_of(line)
    except ValueError:
        pytest.skip("a part of a text of several lines")
    assert [(words, reason) for words in commands if (reason := problem(words))] == []


def test_wrong_commands_are_found() -> None:
    assert commands_of("sudo cairnmq stat ./data | head && venv/bin/cairnmq --version") == [
        ["stat", "./data"],
        ["--version"],
    ]
    assert problem(["users", "add", "users", "anna"]) is not None
    assert problem(["users", "add", "--users-file", "users", "anna"]) is None
    assert problem(["nothing"]) == "no command 'nothing'"
    assert "--nothing" in str(problem(["stat", "--nothing", "./data"]))
    assert "missing" in str(problem(["users", "add", "anna"]))
