"""The port through which queues and transactions of the library call their store: its lock, and the calls under it."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Protocol, TypeVar

from ..contract.durability import Durable
from ..contract.interface import MessageStore

T = TypeVar("T")


class StoreLock(Protocol):
    """An open store, one call at a time: callers of `inner` must hold `lock`."""

    @property
    def inner(self) -> MessageStore: ...

    @property
    def lock(self) -> RLock: ...

    @property
    def is_open(self) -> bool: ...

    def check(self) -> None:
        """Raises the error that ended the store, or `StoreError` if this process must not use it."""

    def check_room(self) -> None:
        """Raise `DiskFull` while the store accepts no messages."""

    def now_us(self) -> int:
        """The wall-clock time."""

    def recorded(self, lsn: int, result: T, then: Callable[[], None] | None = None) -> Durable[T]:
        """A future that completes with *result* once *lsn* is durable, after a call of *then*; with the lock held."""
