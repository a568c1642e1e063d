"""The exit statuses of the commands, and the error that stands for a wrong call."""

from __future__ import annotations

from ...base.errors import CairnError

FOUND, UNREADABLE = 1, 2


class WrongCall(CairnError):
    """An option is wrong: one line says so, and the exit status is 2."""
