"""The identity of a member."""

from __future__ import annotations

from typing import NamedTuple


class MemberId(NamedTuple):
    """One membership of one process, never used again."""

    node: int
    """The number of its machine; there is at most one member on each, and the newer one wins."""
    pid: int
    incarnation: int
    """Drawn anew whenever it joins or comes back."""

    def __str__(self) -> str:
        return f"{self.node}/{self.pid}/{self.incarnation:x}"
