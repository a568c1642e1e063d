"""The options for the SQL server of a wiring, the same for each command (checklist E56, E57)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .subjects import INPUT, option

_Command = Callable[..., Any]


def connect_options(text: str, subject: str = INPUT) -> Callable[[_Command], _Command]:
    """Add --connect, whose purpose is *text*, and --catalog."""

    def add(command: _Command) -> _Command:
        command = option(
            subject, "--catalog", metavar="NAME", help="The namespace there, so that stores can share a database.  "
            "[default: CairnStore]",
        )(command)  # fmt: skip
        return option(
            subject, "--connect", metavar="URL", envvar="CAIRNMQ_CONNECT", help=f"{text}, like postgresql+psycopg://user@host/"
            "database. Keep the password in ~/.pgpass, or the URL in the environment (CAIRNMQ_CONNECT).",
        )(command)  # fmt: skip

    return add
