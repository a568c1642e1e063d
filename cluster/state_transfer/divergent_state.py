"""Backs up the local state that a state transfer will replace, if its origin is unknown (rule 17).

It may contain messages that the cluster should have; an operator can then find them there. Space for backups is not
guaranteed: if the disk is full, they are deleted first. Core only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from ...base.errors import CairnError
from ...store.journaled.discarded_state import KeptState
from ..kernel.context import MemberContext

log = logging.getLogger(__name__)
_FAILED = {"event": "cluster.backup-failed"}


class StateArchive(Protocol):
    """The archive of divergent state: see `discarded_state`. One thread at a time."""

    def keep(self, durable_lsn: int) -> KeptState: ...

    def make_room(self) -> None: ...


class DivergentState:
    """The divergent state of this member."""

    def __init__(self, context: MemberContext, aside: StateArchive | None) -> None:
        self._state = context.state
        self._store = context.store
        self._reader = context.reader
        self.aside = aside
        """The archive; None to keep no backups."""
        self.kept = 0
        """The number of backups since the start."""
        self._asked = 0

    def keep(self, count: int, then: Callable[[], None]) -> None:
        """Backs up the present state, outside of the core; *then* is called afterwards, or if that is impossible.

        *count*: the number of messages that only this member has. Only the *then* of the last call is
        called.
        """
        aside = self.aside
        assert aside is not None
        self._asked += 1
        asked, durable_lsn = self._asked, self._store.durable_lsn

        def work() -> KeptState | CairnError:
            try:
                return aside.keep(durable_lsn)
            except CairnError as error:
                return error

        def done(found: KeptState | CairnError) -> None:
            if isinstance(found, CairnError):
                text = "cluster %s: the divergent state was not backed up: %s"
                log.warning(text, self._state.name, found, extra=_FAILED)
            else:
                self.kept += 1
                log.warning(
                    "cluster %s: this member has %d messages that the others do not have; its store is backed up in %s "
                    "(look into it: cairnmq as-of %s %d)", self._state.name, count, found.path, *found,
                    extra={"event": "cluster.divergent-state"},
                )  # fmt: skip
            if asked == self._asked:
                then()

        self._reader.ask(work, done)

    def make_room(self) -> None:
        """Deletes the backups, because the disk is full."""
        aside = self.aside
        if aside is None:
            return

        def work() -> CairnError | None:
            try:
                aside.make_room()
            except CairnError as error:
                return error
            return None

        def done(error: CairnError | None) -> None:
            if error is not None:
                text = "cluster %s: backups of divergent state could not be removed: %s"
                log.warning(text, self._state.name, error, extra=_FAILED)

        self._reader.ask(work, done)
