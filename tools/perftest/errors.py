"""Errors between a load and its broker."""

from __future__ import annotations

from ...base.errors import CairnError


class NotMet(CairnError):
    """The others that a test waits for have not come."""
