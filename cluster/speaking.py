"""How handlers say something to all members. Core only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..broker.broker import Broker
from .local_messages import Local


class Speaking(Protocol):
    """What they need of the core of the cluster."""

    alone: bool
    """It is a cluster of one, and never more."""

    @property
    def broker(self) -> Broker: ...

    def say(self, event: bytes, local: Local | None = None) -> None:
        """Multicast it, after all that was said before. While there is no group it is lost."""
        ...

    def when_safe(self, position: int, action: Callable[[], None]) -> None:
        """Do *action* when the event there is known to a majority."""
        ...
