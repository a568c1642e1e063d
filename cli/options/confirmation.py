"""`--yes` and `--dry-run` of commands that delete or replace something, and the question on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from .subjects import SAFETY, option

_F = TypeVar("_F", bound=Callable[..., Any])


def destructive(command: _F) -> _F:
    """Add `--yes`, as *is_sure*, and `--dry-run`, as *is_dry_run*."""
    sure = option(SAFETY, "-y", "--yes", "is_sure", is_flag=True, help="Don't ask for confirmation.")
    return sure(dry_run_option(command))


def dry_run_option(command: _F) -> _F:
    """Add `--dry-run`, as *is_dry_run*."""
    return option(SAFETY, "--dry-run", "is_dry_run", is_flag=True, help="Only show what would change.")(command)


def confirm(question: str, *, is_sure: bool) -> None:
    """Ask on a terminal; end the command with status 1 unless the answer is yes. Scripts are not asked."""
    if not is_sure and sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)
