"""`--yes` and `--dry-run` of commands that delete or replace something, and the question on a terminal."""

from __future__ import annotations

import sys

import click

from ...base.errors import InvalidOption
from .subjects import SAFETY, option, several

yes_option = option(SAFETY, "-y", "--yes", "is_sure", is_flag=True, help="Don't ask for confirmation.")
dry_run_option = option(SAFETY, "--dry-run", "is_dry_run", is_flag=True, help="Only show what would change.")
destructive = several(yes_option, dry_run_option)


def confirm(place: str, question: str, *, is_sure: bool) -> None:
    """Ask on a terminal; end the command with status 1 unless the answer is yes.

    Raises `InvalidOption`, which names *place*, without a terminal and without `--yes`.
    """
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise InvalidOption(place, "no confirmation, and no terminal to ask on", "give --yes")
    click.confirm(question, abort=True, err=True)
