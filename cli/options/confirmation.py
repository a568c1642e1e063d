"""`--yes` and `--dry-run` of commands that delete or replace something, and the question on a terminal.

Scripts are not asked. Requests to a broker, and changes of a users file, need no `--yes` there; commands that replace a
store or remove a lab do.
"""

from __future__ import annotations

import sys

import click

from ...base.errors import InvalidOption
from .subjects import SAFETY, option, several

yes_option = option(SAFETY, "-y", "--yes", "is_sure", is_flag=True, help="Don't ask for confirmation.")
dry_run_option = option(SAFETY, "--dry-run", "is_dry_run", is_flag=True, help="Only show what would change.")
destructive = several(yes_option, dry_run_option)


def confirm(question: str, *, is_sure: bool) -> None:
    """Ask on a terminal; end the command with status 1 unless the answer is yes. Scripts are not asked."""
    if not is_sure and sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)


def require_confirmation(place: str, question: str, *, is_sure: bool) -> None:
    """Ask as `confirm` does. Raises `InvalidOption`, which names *place*, without a terminal and without `--yes`."""
    if not is_sure and not sys.stdin.isatty():
        raise InvalidOption(place, "no confirmation, and no terminal to ask on", "give --yes")
    confirm(question, is_sure=is_sure)
