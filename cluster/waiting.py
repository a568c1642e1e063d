"""Whether clients are served here: if not for long, the log says why, for who looks there first. Core only."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .core import Core

log = logging.getLogger(__name__)

LONG_S = 10.0
"""A start of all members and a change of the group are over by then, unless there is much to be brought."""


class Waiting:
    """Of one member."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._turn = 0

    def begin(self) -> None:
        """Nobody is served from here on; it is said once, if that lasts."""
        self._turn += 1
        self._core.broker.timers.after(LONG_S, self._look, self._turn)

    def _look(self, turn: int) -> None:
        core = self._core
        why = core.why_not_serving()
        if turn != self._turn or not why or core.has_failed:
            return
        nodes = ", ".join([str(member.node) for member in core.members]) if core.me is not None else ""
        log.warning(
            "cluster %s: for %.0f s no clients were served here: %s; of its %d members it hears %s. Start the "
            "brokers of the others, and see their logs; if they are lost for good, start this one with --cluster-force",
            core.name, LONG_S, why, core.size, f"those on nodes {nodes}" if nodes else "too few",
        )  # fmt: skip
