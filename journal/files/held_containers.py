"""Containers that left the log and can't be reused yet because a backup or a reader of history needs them.

A backup *holds* the log as it is (`Holds`): no container that leaves the log is reused before the hold ends. Readers of
history have the log kept from an LSN on (`Keeper`). Neither may stop the store: on a full disk nothing is kept, and
when the reserve is in use holds are broken. Holders are notified before anything is overwritten, and raise an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from .archiver import Left

NO_SLOT_HELD = -1
"""The slot of a container whose former content does not matter."""
_BEHIND_ALL = 1 << 64


class Keeper(Protocol):
    """Port to the readers of history that still need containers outside the log."""

    def kept_from(self, end_lsn: int, is_full: bool) -> int:
        """Return the LSN from which on history is kept. *end_lsn*: about the log's end. *is_full*: of the disk."""


class Holds(Protocol):
    """Port to the holders of the containers that are in the log now."""

    def is_held(self) -> bool: ...

    def break_holds(self) -> bool:
        """Break all holds; return whether this was recorded where each holder checks for it."""


class HeldContainers:
    """Containers that are neither in the log nor free. Any thread."""

    def __init__(self, container_bytes: int, holds: Holds | None, keeper: Keeper | None) -> None:
        self.holds = holds
        self._container_bytes = container_bytes
        self._keeper = keeper
        self._lock = threading.Lock()
        self._left: list[Left] = []

    def __len__(self) -> int:
        return len(self._left)

    def add(self, left: Left) -> None:
        with self._lock:
            self._left.append(left)

    def is_held(self, *, in_need: bool) -> bool:
        """Return whether the containers in the log are held. *in_need*: break the holds."""
        holds = self.holds
        return holds is not None and holds.is_held() and not (in_need and holds.break_holds())

    def let_go(self, used: Callable[[], Iterable[int]], *, is_full: bool, in_need: bool) -> list[int]:
        """Remove the containers that are neither held nor kept; return their numbers. *used*: the slots of the log."""
        if not self._left:
            return []
        with self._lock:
            left, self._left = self._left, []
        # a hold that begins behind the look at it has no need of what was taken out before
        kept_slot = NO_SLOT_HELD if self.is_held(in_need=in_need) else self._kept_slot(left, used, is_full)
        with self._lock:
            self._left += [one for one in left if one.slot >= kept_slot]
        return [one.number for one in left if one.slot < kept_slot]

    def _kept_slot(self, left: Iterable[Left], used: Callable[[], Iterable[int]], is_full: bool) -> int:
        """Return the slot from which on containers outside the log are kept, if that matters to any of *left*."""
        if self._keeper is None or all(one.slot == NO_SLOT_HELD for one in left):
            return _BEHIND_ALL
        end_lsn = (max(used(), default=NO_SLOT_HELD) + 1) * self._container_bytes
        return self._keeper.kept_from(end_lsn, is_full) // self._container_bytes
