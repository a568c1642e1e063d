"""`--archive-dir`: the archive of the log that a command reads, the same option in every command that reads history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ...base.errors import InvalidOption
from ..options.subjects import INPUT, option

_Command = Callable[..., Any]


def archives_option(command: _Command) -> _Command:
    """The option, repeatable, as *archives*."""
    return option(
        INPUT, "--archive-dir", "archives", multiple=True, type=click.Path(), metavar="DIR",
        help="Also read the log's archive: the directory of the broker's --archive-dir. Repeatable.",
    )(command)  # fmt: skip


def archive_option(command: _Command) -> _Command:
    """The option, given at most once, as *archive_dir*."""
    return option(
        INPUT, "--archive-dir", multiple=True, type=click.Path(), metavar="DIR", callback=_one,
        help="Also read the log's archive: the directory of the broker's --archive-dir.",
    )(command)  # fmt: skip


def _one(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> str | None:
    if len(given) > 1:
        which = ", ".join(given)
        raise InvalidOption(f"--archive-dir {which}", f"cairnmq {context.info_name} reads one archive", "give it once")
    return given[0] if given else None
