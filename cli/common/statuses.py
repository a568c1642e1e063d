"""The exit statuses of the commands, and the error that stands for a wrong call."""

from __future__ import annotations

from ...base.errors import CairnError

FOUND, UNREADABLE = 1, 2


class WrongCall(CairnError):
    """An invalid option, reported in one line with exit status 2."""
