"""What left the log and is not used again yet, because somebody counts on it; and when that has to give way.

A backup *holds* the log as it is (`Holds`): nothing that leaves it is used again before the hold ends. Who reads the
log as history has it kept from an LSN on (`Keeper`). Neither may end the store: on a full disk nothing is kept, and
when the reserve is in use holds are broken. Whoever holds learns of that before anything is overwritten, and ends with
an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from .archiver import Left

NO_SLOT_HELD = -1
"""The slot of a container of which it does not matter what it held."""
_BEHIND_ALL = 1 << 64


class Keeper(Protocol):
    """Knows who is still to read what left the log."""

    def kept_from(self, end_lsn: int, is_full: bool) -> int:
        """From which LSN on it is kept; *end_lsn* is about where the log ends, *is_full* says that the disk is full."""
        ...


class Holds(Protocol):
    """Knows who counts on the containers that are in the log now."""

    def is_held(self) -> bool: ...

    def break_holds(self) -> bool:
        """Nobody is to count on them any more; whether that could be told where each holder looks for it."""
        ...


class Limbo:
    """The containers in between. Any thread."""

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
        """Whether what is in the log is held. *in_need*: holds are broken."""
        holds = self.holds
        return holds is not None and holds.is_held() and not (in_need and holds.break_holds())

    def let_go(self, used: Callable[[], Iterable[int]], *, is_full: bool, in_need: bool) -> list[int]:
        """The numbers of those that nobody counts on, which are out of it then. *used*: the slots of the log."""
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
        """From which slot on what left the log is kept, if it matters to any of *left*."""
        if self._keeper is None or all(one.slot == NO_SLOT_HELD for one in left):
            return _BEHIND_ALL
        end_lsn = (max(used(), default=NO_SLOT_HELD) + 1) * self._container_bytes
        return self._keeper.kept_from(end_lsn, is_full) // self._container_bytes
