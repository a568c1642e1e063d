"""A callback for results that no caller awaits."""

from __future__ import annotations


def ignore(*results: object) -> None:
    """Ignore the results of a request; the log reports its failures."""
