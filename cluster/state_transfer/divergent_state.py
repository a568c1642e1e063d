"""Backs up the local state that a state transfer will replace, if its origin is unknown (rule 17).

It may contain messages that the cluster should have; an operator can then find them there. Space for backups is not
guaranteed: if the disk is full, they are deleted first. Core only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from ...base.errors import CairnError
from ...store.journaled.discarded_state import KeptState
from ..kernel.context import MemberContext

log = logging.getLogger(__name__)
T = TypeVar("T")
_FAILED = {"event": "cluster.backup-failed"}


class StateArchive(Protocol):
    """The archive of divergent state: see `discarded_state`. One thread at a time."""

    def keep(self, durable_lsn: int) -> KeptState: ...

    def make_room(self) -> None: ...


class DivergentState:
    """The divergent state of this member."""

    def __init__(self, context: MemberContext, aside: StateArchive | None) -> None:
        self._context = context
        self.aside = aside
        """The archive; None to keep no backups."""
        self.kept = 0
        """The number of backups since the start."""
        self._asked = 0

    def keep(self, count: int, then: Callable[[], None]) -> None:
        """Backs up the present state, outside of the core; *then* is called afterwards, or if that is impossible.

        *count*: the number of messages that only this member has. Only the *then* of the last call is called.
        """
        aside = self.aside
        assert aside is not None
        self._asked += 1
        asked, durable_lsn = self._asked, self._context.store.durable_lsn

        def done(found: KeptState | CairnError) -> None:
            if isinstance(found, CairnError):
                text = "cluster %s: the divergent state was not backed up: %s"
                log.warning(text, self._context.state.name, found, extra=_FAILED)
            else:
                self.kept += 1
                log.warning(
                    "cluster %s: this member has %d messages that the others do not have; its store is backed up in %s "
                    "(look into it: cairnmq as-of %s %d)", self._context.state.name, count, found.path, *found,
                    extra={"event": "cluster.divergent-state"},
                )  # fmt: skip
            if asked == self._asked:
                then()

        self._context.reader.ask(partial(_attempt, partial(aside.keep, durable_lsn)), done)

    def make_room(self) -> None:
        """Deletes the backups, because the disk is full."""

        def done(error: CairnError | None) -> None:
            if error is not None:
                text = "cluster %s: backups of divergent state could not be removed: %s"
                log.warning(text, self._context.state.name, error, extra=_FAILED)

        if self.aside is not None:
            self._context.reader.ask(partial(_attempt, self.aside.make_room), done)


def _attempt(work: Callable[[], T]) -> T | CairnError:
    try:
        return work()
    except CairnError as error:
        return error
