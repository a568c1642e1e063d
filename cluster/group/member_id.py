"""The identity of a member."""

from __future__ import annotations

from typing import NamedTuple


class MemberId(NamedTuple):
    """One membership of one process; never used again."""

    node: int
    """The number of its host; a host has at most one member, and the newer process replaces the older one."""
    pid: int
    incarnation: int
    """A random number that is drawn each time the process joins or rejoins."""

    def __str__(self) -> str:
        return f"{self.node}/{self.pid}/{self.incarnation:x}"
