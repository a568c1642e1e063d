"""The credit of senders to durable queues, which is withheld while the store or the cluster has no room."""

from __future__ import annotations

from ...amqp.ports import TerminalEnd
from ..kernel.context import CoreContext
from ..nodes.replication_port import Members
from ..scheduling.throttle import Throttle


class SenderCredit:
    """The credit that senders get back, and the part that is withheld. Core only."""

    def __init__(self, core: CoreContext, members: Members) -> None:
        self._store = core.store
        self._members = members
        self._withheld = Throttle(core.users.throttles)

    def take(self, terminal: TerminalEnd, wanted: int, *, replicated: bool = False) -> int:
        """Grants credit to senders; withheld credit is granted when there is room again."""
        held = replicated and self._members.holds
        if not wanted or not (held or self._store.full()):
            return wanted
        return self.withhold(terminal, wanted)

    def withhold(self, terminal: TerminalEnd, credit: int) -> int:
        """Withhold *credit* until there is room again; return 0, the credit that the sender gets now."""
        self._withheld.withhold(terminal, credit)
        return 0

    def grant_withheld(self) -> None:
        """Grant the credit that was withheld, if the store and the cluster have room again."""
        if not (self._store.full() or self._members.holds):
            self._withheld.release()
