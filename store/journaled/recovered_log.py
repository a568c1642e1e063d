"""The parts of a journal store that recovery makes: the open log, the message map, and their caches."""

from __future__ import annotations

from typing import NamedTuple

from ...journal.write.journal import Journal
from ..checkpoint.checkpointer import Checkpointer
from ..message_map.state import State
from .retention_leases import Bookmarks


class RecoveredLog(NamedTuple):
    """An open log with the message map that was read from it."""

    journal: Journal
    state: State
    checkpointing: Checkpointer | None = None
    """None for a store that takes no checkpoints."""
    bookmarks: Bookmarks | None = None
    """Retention leases of readers of history; None for a store that has none."""
