"""What a member has that is brought up to date: set aside before it is dropped (rule 17).

The others have more, so it is of no use, unless they are lost before this member has all messages, or it has what
should have been theirs: then a person finds it there. Room for it is nobody's right: where the disk is full, what was
set aside goes first. Core only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ..base.errors import CairnError
from ..store.aside import Kept

if TYPE_CHECKING:
    from .core import Core

log = logging.getLogger(__name__)


class Keeps(Protocol):
    """Where it is set aside: see `store.aside`. One thread at a time."""

    def keep(self, durable_lsn: int) -> Kept: ...

    def make_room(self) -> None: ...


class Losers:
    """This member's."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.aside: Keeps | None = None
        """None where nothing is kept."""
        self.kept = 0
        """How often something was, since the start."""
        self._asked = 0

    def has_anything(self) -> bool:
        """Whether there is a message here that would be dropped, and a place for it."""
        if self.aside is None:
            return False
        there = self._core.broker.store.messages()
        return any(there.get(replica.queue.queue_id) for replica in self._core.owners.replicas.values())

    def keep(self, then: Callable[[], None]) -> None:
        """Set aside what there is, beside the core; then, or when that can't be, *then* is called.

        Not if it is asked for again meanwhile.
        """
        core, aside = self._core, self.aside
        assert aside is not None
        self._asked += 1
        asked, durable_lsn = self._asked, core.broker.store.durable_lsn

        def work() -> Kept | CairnError:
            try:
                return aside.keep(durable_lsn)
            except CairnError as error:
                return error

        def done(found: Kept | CairnError) -> None:
            if isinstance(found, CairnError):
                log.warning("cluster %s: what this member had is not set aside: %s", core.name, found)
            else:
                self.kept += 1
                log.warning(
                    "cluster %s: this member gets what the others have; what it had is set aside in %s "
                    "(look into it: cairnmq as-of %s %d)", core.name, found.path, *found,
                )  # fmt: skip
            if asked == self._asked:
                then()

        core.broker.reader.ask(work, done)

    def make_room(self) -> None:
        """The disk is full: what was set aside goes."""
        core, aside = self._core, self.aside
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
                log.warning("cluster %s: what was set aside can't be removed: %s", core.name, error)

        core.broker.reader.ask(work, done)
