"""Tests that the documentation matches the CLI: the options in its examples, and the commands of `ctl`."""

from __future__ import annotations

import re
from pathlib import Path

import click

from cairnmq.cli.main import cairnmq

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
CALL = re.compile(r"cairnmq ([a-z](?:[^`\n#|]|(?<=\w)\|(?=\w))*)")
OPTION = re.compile(r"(?<!\S)--?[a-zA-Z][\w-]*")


def options_of(command: click.Command) -> set[str]:
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts)}


def commands_of(group: click.Group) -> dict[str, click.Command]:
    context = click.Context(group)
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def test_calls_have_options_that_there_are() -> None:
    calls, wrong = 0, []
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ").replace(" -- cairnmq ", "\ncairnmq ")  # nested commands
        for call in CALL.findall(text):
            found: click.Command = cairnmq
            known = {"-h", "--help"}
            for word in call.split():
                if isinstance(found, click.Group) and word in (commands := commands_of(found)):
                    found = commands[word]
                    known |= options_of(found)
            if found is not cairnmq:
                calls += 1
                wrong += [(page.name, call, one) for one in OPTION.findall(call) if one not in known]
    assert not wrong
    assert calls > 100, "they are looked for in another way than they are written"


def test_every_command_of_ctl_is_on_the_page() -> None:
    page = (ROOT / "docs" / "reference/management.md").read_text()
    told: dict[str, set[str]] = {}
    for groups, commands in re.findall(r"^\| ((?:`[a-z-]+`(?:, )?)+) \| (.*) \|$", page.partition("## Types")[0], re.M):
        for group in re.findall("`(.+?)`", groups):
            told[group] = set(re.findall("`([a-z-]+)`", re.sub(r"\(.*?\)|: as .*", "", commands)))
    ctl = commands_of(cairnmq)["ctl"]
    assert isinstance(ctl, click.Group)
    groups = {name: found.commands for name, found in ctl.commands.items() if isinstance(found, click.Group)}
    assert {name: told.get(name) for name in groups} == {name: set(commands) for name, commands in groups.items()}
    assert set(told) >= set(ctl.commands)
