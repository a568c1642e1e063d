"""Tests that the reference pages of errors and commands match the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from cairnmq.base import errors
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


def test_page_of_commands_is_their_help() -> None:
    """The page of commands is that of `python -m tests.cli.cli_page`.

    A separate process creates the page: click keeps the help option of a command from its first use in a process,
    and other tests call commands without the group and its `-h`.
    """
    command = [sys.executable, "-m", "tests.cli.cli_page", "--print"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.stdout == cli_page.PAGE.read_text(), done.stderr
