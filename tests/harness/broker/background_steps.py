"""A core that runs only background work, with a clock that the test controls."""

from __future__ import annotations

from collections.abc import Callable

from cairnmq.base.clock import Clock
from cairnmq.broker.scheduling.background import BackgroundWork


class BackgroundSteps(Clock):
    """The background work of a core, and its clock."""

    def __init__(self) -> None:
        self.now_s = 1.0
        self._later: list[Callable[[], None]] = []
        self.background = BackgroundWork(self, self._later.append)

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_us(self) -> int:
        return 0

    def step(self) -> None:
        """End a step, and run the deferred actions."""
        self.background.end_step()
        later, self._later[:] = self._later[:], []
        for action in later:
            action()
