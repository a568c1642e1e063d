"""Tests that the reference pages of errors and commands match the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click

from cairnmq.base import errors
from cairnmq.cli.main import COMMANDS, cairnmq
from tests.harness.process import DEADLINE_S

from . import cli_page

ROOT = Path(__file__).parents[2]
ERRORS = (ROOT / "docs/reference/errors.md").read_text()
_OTHER = re.compile(r"(?::list|:map|:binary|-transactions|:multi-\w+-per-\w+)$")
"""Types and capabilities with names like those of conditions."""


OF_PROTON = {"amqp:connection:framing-error", "amqp:session:window-violation"}
"""Conditions that proton detects, not this code."""


def rows(prefix: str) -> list[str]:
    return re.findall(rf"^\| `({prefix}[^`]*)` \|", ERRORS, re.M)


def test_page_of_errors_has_all_conditions() -> None:
    folders = ("amqp", "broker", "cluster", "management", "router")
    code = "".join(path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py"))
    used = {one for one in re.findall(r'"(amqp:[a-z:-]+)"', code) if not _OTHER.search(one)}
    assert rows("amqp:") == sorted(used | OF_PROTON)


def test_page_of_errors_has_all_classes() -> None:
    assert rows("[A-Z]") == re.findall(r"^class (\w+)", Path(errors.__file__).read_text(), re.M)


def test_pages_of_commands_are_their_help() -> None:
    """The pages of commands are those of `python -m tests.cli.cli_page`.

    A separate process creates them: click keeps the help option of a command from its first use in a process, and
    other tests call commands without the group and its `-h`.
    """
    command = [sys.executable, "-m", "tests.cli.cli_page", "--print"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.stdout == "".join((cli_page.FOLDER / f"{name}.md").read_text() for name in ("index", *cli_page.PAGES))
    assert {path.stem for path in cli_page.FOLDER.iterdir()} == {"index", *cli_page.PAGES}


def test_pages_of_commands_have_every_command_and_option() -> None:
    top = click.Context(cairnmq, info_name="cairnmq")
    configuration = (ROOT / "docs/reference/configuration.md").read_text()
    index = (cli_page.FOLDER / "index.md").read_text()
    missing = []
    for name in COMMANDS:
        command = cairnmq.get_command(top, name)
        assert command is not None
        page = (cli_page.FOLDER / f"{cli_page.page_of(name)}.md").read_text()
        head, *sections = re.split(r"^#{2,3} ", page, flags=re.M)
        texts = {text.splitlines()[0]: head + text for text in sections}
        for path, context in cli_page.walk(command, ("cairnmq", name), top):
            text = texts.get(path)
            if text is None:
                missing.append(path)
            elif not isinstance(context.command, click.Group):
                text += configuration if "broker](../configuration.md): all" in text else ""
                missing += [
                    f"{path} {one.name}"
                    for one in cli_page.options_of(context)
                    if not re.search(rf"{one.name}(?![\w-])", text)
                    or (f"`{one.name}`" in text and one.name not in index + head + configuration)
                ]
    assert missing == []
