"""The result of a read of a connection."""

from __future__ import annotations

from typing import NamedTuple


class Turn(NamedTuple):
    """The effect of what a connection digested last."""

    controls_left: int
    """Control frames that are still allowed."""
    is_behind: bool
    """Something that was read waits: nothing more should be read."""
    has_messages: bool
    """True if messages or outcomes of messages arrived."""
    is_small: bool
    """True if something complete arrived, and no long message is being received or sent."""
