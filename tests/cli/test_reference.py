"""The pages of the reference that list what is in the code: errors and commands."""

from __future__ import annotations

import re
from pathlib import Path

from cairnmq.base import errors

from . import cli_page

ROOT = Path(__file__).parents[2]
ERRORS = (ROOT / "docs/reference/errors.md").read_text()
_OTHER = re.compile(r"(?::list|:map|:binary|-transactions|:multi-\w+-per-\w+)$")
"""Types and capabilities, which look like conditions."""


OF_PROTON = {"amqp:connection:framing-error", "amqp:session:window-violation"}
"""Conditions that the library finds, not this code."""


def rows(prefix: str) -> list[str]:
    return re.findall(rf"^\| `({prefix}[^`]*)` \|", ERRORS, re.M)


def test_page_of_errors_has_all_conditions() -> None:
    folders = ("amqp", "broker", "channel", "cluster", "management", "router")
    code = "".join(path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py"))
    used = {one for one in re.findall(r'"(amqp:[a-z:-]+)"', code) if not _OTHER.search(one)}
    assert rows("amqp:") == sorted(used | OF_PROTON)


def test_page_of_errors_has_all_classes() -> None:
    assert rows("[A-Z]") == re.findall(r"^class (\w+)", Path(errors.__file__).read_text(), re.M)


def test_page_of_commands_is_their_help() -> None:
    """`python -m tests.cli.cli_page` writes it."""
    assert cli_page.PAGE.read_text() == cli_page.page()
