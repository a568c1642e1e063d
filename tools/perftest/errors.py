"""Errors between a load and its broker."""

from __future__ import annotations

from ...base.errors import CairnError


class NotMet(CairnError):
    """Other processes that a test waits for have not connected."""
