"""Tests of common options: the commands that accept them, and their position in help texts."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cairnmq.cli.main import COMMANDS, cairnmq
from cairnmq.cli.options.common_options import OUTPUTS
from cairnmq.cli.options.subjects import GroupedCommand, SubjectOption
from tests.harness.process import CAIRNMQ, DEADLINE_S, BrokerProcess, broker

from .cli_page import leaves

READING = ("Store", "History", "Analyze")
ENDING = {
    "delete", "purge", "unbind", "close", "promote", "resynchronize", "commit", "rollback", "cancel", "forget",
}  # fmt: skip
"""Verbs of `ctl` that delete data or end something."""


def found(name: str) -> click.Command:
    command = cairnmq.get_command(click.Context(cairnmq), name)
    assert command is not None
    return command


EVERY = {path: leaf for name in COMMANDS for path, leaf in leaves(found(name), (name,))}
OF_STORES = [path for path in EVERY if COMMANDS[path.split()[0]].subject in READING]
OF_CTL = [path for path in EVERY if path.startswith("ctl ")]


def help_of(path: str) -> str:
    return CliRunner().invoke(cairnmq, [*path.split(), "--help"]).output


def sections(shown: str) -> dict[str, list[str]]:
    """Return the lines of each section of a help text."""
    told: dict[str, list[str]] = {"": []}
    title = ""
    for line in shown.splitlines():
        if re.fullmatch(r"[A-Z][A-Za-z ]+:", line):
            title = line[:-1]
            told[title] = []
        else:
            told[title].append(line)
    return told


@pytest.mark.parametrize("path", [*OF_STORES, *OF_CTL])
def test_command_has_the_common_options_in_sections(path: str) -> None:
    command = EVERY[path]
    assert isinstance(command, GroupedCommand)
    choices = {opt: param.type for param in command.params for opt in param.opts}
    output = choices["--output"]
    assert isinstance(output, click.Choice)
    assert tuple(output.choices) == OUTPUTS
    assert {"--json", "--color"} <= set(choices)
    told = sections(help_of(path))
    assert {"Output", "General"} <= set(told)
    for option in ("--output ", "--json ", "--color "):
        assert any(line.startswith(f"  {option}") for line in told["Output"]), option
    if path in OF_CTL:
        assert {"--url", "--user", "--ca", "--timeout"} <= set(choices)
    else:
        assert "Options" not in told, "each option has a subject"
        assert f"cairnmq {path} " in help_of(path).partition("Example:")[2]


def test_common_option_is_accepted_by_each_group_above_its_command() -> None:
    """Groups accept the common options of their commands, as docs/reference/cli/index.md states."""
    common = {param.name for param in cairnmq.params if isinstance(param, SubjectOption) and param.is_common}
    missing = []
    for path, command in EVERY.items():
        own = {param.name for param in command.params if isinstance(param, SubjectOption) and param.is_common}
        group: click.Command = cairnmq
        for name in path.split()[:-1]:
            assert isinstance(group, click.Group)
            below = group.get_command(click.Context(group), name)
            assert below is not None
            group = below
            accepted = {param.name for param in group.params}
            missing += [(path, name, option) for option in own & common - accepted]
    assert missing == []


@pytest.mark.parametrize(
    "path",
    [
        "calibrate", "config check", "config show", "doctor", "perftest", "users list", "users check",
        "cluster-lab status", "cluster-lab up",
    ],
)  # fmt: skip
def test_other_commands_have_the_same_option_of_the_output(path: str) -> None:
    named = {opt: param for param in EVERY[path].params for opt in param.opts}
    output = named["--output"].type
    assert isinstance(output, click.Choice)
    assert tuple(output.choices) == OUTPUTS
    assert named["--json"].name == named["--output"].name == "output_format"
    names = {line.strip().partition(" ")[0] for line in sections(help_of(path))["Output"]}
    assert {"--output", "--json", "--color"} <= names


@pytest.mark.parametrize(
    ("path", "titles"),
    [
        ("perftest", ["Connection", "Roles", "Load", "Publishers", "Subscribers", "Queues", "Transactions", "Output",
                      "Soak", "General"]),
        ("console", ["Connection", "Web console", "TLS", "History and logs", "Output", "General"]),
    ],
)  # fmt: skip
def test_options_of_large_commands_are_listed_by_subject(path: str, titles: list[str]) -> None:
    found = sections(help_of(path))
    assert [title for title in found if title and title != "Example"] == titles
    assert all(isinstance(param, SubjectOption) for param in EVERY[path].params)


def test_formats_of_every_command_are_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "store-tools.md").read_text()
    table = page.partition("| command | rows of CSV |")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines()[2:] for name in re.findall("`([a-z -]+)`", row.split("|")[1])}
    assert named == set(OF_STORES)


def test_every_command_has_color_once_and_no_name_twice() -> None:
    for path, command in EVERY.items():
        names = [str(param.name) for param in command.params if param.name != "output_format"]
        assert sorted(names) == sorted({*names}), path
        assert "color" in names, path


def test_common_option_has_one_definition() -> None:
    texts: dict[str, set[str]] = {}
    for path in (*OF_STORES, *OF_CTL):
        for param in EVERY[path].params:
            if isinstance(param, click.Option) and getattr(param, "is_common", False):
                texts.setdefault(param.opts[0], set()).add(str(param.help))
    assert {name for name, told in texts.items() if len(told) > 1} == set()
    assert set(texts) == {"--output", "--json", "--raw", "--url", "--user", "--ca", "--timeout"}


@pytest.mark.parametrize("path", [path for path in OF_CTL if path.split()[-1] in ENDING])
def test_destructive_command_can_be_confirmed_and_tried(path: str) -> None:
    assert {"--yes", "--dry-run"} <= {opt for param in EVERY[path].params for opt in param.opts}


def test_option_that_a_command_does_not_have_is_refused() -> None:
    done = CliRunner().invoke(cairnmq, ["--output", "csv", "users", "add", "anna", "--users-file", "none"])
    assert done.exit_code == 2
    assert "`cairnmq users add` has no option --output." in done.output


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker(tmp_path_factory.mktemp("common") / "store") as started:
        yield started


def call(*words: str) -> tuple[int, str]:
    done = subprocess.run([CAIRNMQ, *words], capture_output=True, text=True, timeout=DEADLINE_S)
    return done.returncode, done.stdout or done.stderr


def test_options_of_the_connection_are_accepted_at_every_level(running: BrokerProcess) -> None:
    given = ["--url", f"127.0.0.1:{running.port}", "--output", "csv"]
    words = ["ctl", "exchanges", "list"]
    expected = call(*words, *given)
    assert (expected[0], expected[1].splitlines()[0]) == (0, "name,exchange-type,durable,bindings,routed,unroutable")
    for at in range(len(words)):
        assert call(*words[:at], *given, *words[at:]) == expected
    nearest = call("--json", "ctl", "--url", "127.0.0.1:1", "exchanges", *given, "list")
    assert nearest == expected, "the option nearest to the end applies"


def test_dry_run_of_a_deletion_reports_an_unknown_name(running: BrokerProcess) -> None:
    url = ("--url", f"127.0.0.1:{running.port}")
    assert call("ctl", "exchanges", "delete", "amq.topic", "--dry-run", *url) == (
        0, "would delete exchange amq.topic\n"
    )  # fmt: skip
    assert "amq.topic" in call("ctl", "exchanges", "list", *url)[1]
    assert call("ctl", "exchanges", "delete", "none", "--dry-run", *url)[0] == 1
