"""Options of commands that read a store, each with one definition (checklist E56, E57)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ...base.errors import InvalidOption
from .subjects import INPUT, option, several

_ARCHIVE = "Also read the log's archive: the directory of the broker's --archive-dir."
_Command = Callable[..., Any]


def connect_options(text: str, subject: str = INPUT) -> Callable[[_Command], _Command]:
    """Return the decorator that adds --connect, whose purpose is *text*, and --catalog: the SQL server of a wiring."""
    return several(
        option(
            subject, "--connect", metavar="URL", envvar="CAIRNMQ_CONNECT", help=f"{text}, like postgresql+psycopg://user@host/"
            "database. Keep the password in ~/.pgpass, or the URL in the environment (CAIRNMQ_CONNECT).",
        ),
        option(
            subject, "--catalog", metavar="NAME", help="The namespace there, so that stores can share a database.  "
            "[default: CairnStore]",
        ),
    )  # fmt: skip


def _one(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> str | None:
    if len(given) > 1:
        which = ", ".join(given)
        raise InvalidOption(f"--archive-dir {which}", f"cairnmq {context.info_name} reads one archive", "give it once")
    return given[0] if given else None


store_argument = click.argument("store", metavar="STORE", type=click.Path())
archive_option = option(
    INPUT, "--archive-dir", multiple=True, type=click.Path(), metavar="DIR", callback=_one, help=_ARCHIVE
)
"""The archive, as *archive_dir*, given at most once."""
archives_option = option(
    INPUT, "--archive-dir", "archives", multiple=True, type=click.Path(), metavar="DIR", help=f"{_ARCHIVE} Repeatable."
)
skip_damaged_option = option(INPUT, "--skip-damaged", is_flag=True, help="Leave out unreadable records.")
