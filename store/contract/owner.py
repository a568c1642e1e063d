"""The owner's interface to a store besides `interface.MessageStore`: run it, and receive its callbacks.

A third party's store implements both, and is found by the entry point that names its kind (`store.kinds`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...base.errors import JournalError
from .interface import MessageStore


class OwnedStore(MessageStore, Protocol):
    """A store that can be run. Opened, it has no threads; `start` or `run_inline` comes before the first `kick`."""

    @property
    def wiring_place(self) -> str:
        """A readable description of the location of the wiring."""

    def start(
        self,
        on_durable: Callable[[int], None],
        on_failure: Callable[[JournalError], None],
        on_room: Callable[[], None] = ...,
    ) -> None:
        """Run with threads of its own.

        *on_durable* gets each new durable LSN, *on_failure* the error that ends the store, on any thread: the owner
        passes the LSN on to `became_durable`, in the thread that makes the calls. *on_room* is called, on any thread,
        when the store is no longer full.
        """

    def run_inline(self, on_durable: Callable[[int], None]) -> None:
        """No threads: `kick` makes everything durable in the caller and then calls *on_durable*."""

    def became_durable(self, lsn: int) -> None:
        """Set `durable_lsn` to *lsn*: everything below it is durable."""

    def end_reads(self) -> None:
        """The store is going to be closed: a load that waits for something ends with an error. Any thread."""
