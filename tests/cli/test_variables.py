"""Tests of environment variables other than those of broker options: their list and their precedence."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from cairnmq.cli.common.described_options import DescribedOption
from cairnmq.cli.common.login_options import login_of
from cairnmq.cli.main import COMMANDS, cairnmq
from cairnmq.cli.run.broker import broker
from cairnmq.cli.run.unknown_variables import unknown_variables
from tests.structure.modules import MODULES

from .cli_page import leaves
from .option_page import PAGE

QUOTED = re.compile(r"""["'](CAIRNMQ_[A-Z_]+|NO_COLOR)["']""")


def constants() -> Iterator[str]:
    """Yield the variable names that occur as string literals in the product."""
    for path in MODULES.values():
        yield from QUOTED.findall(path.read_text())


def of_options() -> Iterator[str]:
    """Yield the variables of options that are not broker settings."""
    for name in COMMANDS:
        command = cairnmq.get_command(click.Context(cairnmq), name)
        assert command is not None
        for _, leaf in leaves(command, (name,)):
            for param in leaf.params:
                if isinstance(param.envvar, str) and not isinstance(param, DescribedOption):
                    yield param.envvar


def on_the_page() -> list[str]:
    section = PAGE.read_text().partition("## Variables of other commands")[2]
    return re.findall(r"^\| `(\w+)` \|", section, re.M)


def test_page_lists_the_variables_that_the_code_reads() -> None:
    assert sorted(on_the_page()) == sorted({*constants(), *of_options()})


def test_broker_knows_the_variables_of_other_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in on_the_page():
        monkeypatch.setenv(name, "x")
    assert unknown_variables(broker, ()) == []
    monkeypatch.setenv("CAIRNMQ_USERS", "x")
    assert len(unknown_variables(broker, ())) == 1


@pytest.mark.parametrize(
    ("url", "option", "variable", "user"),
    [
        ("host", None, None, None),
        ("host", None, "", None),
        ("host", None, "carla", "carla"),
        ("amqp://ben@host", None, "carla", "ben"),
        ("amqp://ben@host", "anna", "carla", "anna"),
    ],
)
def test_user_is_that_of_the_option_of_the_url_or_of_the_variable(
    url: str, option: str | None, variable: str | None, user: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAIRNMQ_PASSWORD", "one stone")
    monkeypatch.delenv("CAIRNMQ_USER", raising=False)
    if variable is not None:
        monkeypatch.setenv("CAIRNMQ_USER", variable)
    assert login_of(url, option, None).user == user
