"""The exit statuses of the commands, and the error that stands for a wrong call."""

from __future__ import annotations

from ...base.errors import CairnError, MissingPath

FOUND, UNREADABLE = 1, 2


class WrongCall(CairnError):
    """An invalid option, reported in one line with exit status 2."""


def error_status(error: CairnError) -> int:
    """Return the exit status for an error that ends a command: 2 for an invalid argument, else 1."""
    return UNREADABLE if isinstance(error, WrongCall | MissingPath) else FOUND
