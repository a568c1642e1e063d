"""Examples at the end of a help, for commands that are defined once for many subjects."""

from __future__ import annotations


def example(*calls: str) -> str:
    """Return the epilog of a command with these calls, whose program name `cairnmq` is added."""
    lines = "".join(f"\n  cairnmq {call}" for call in calls)
    return f"\b\nExample{'s' if len(calls) > 1 else ''}:{lines}"
