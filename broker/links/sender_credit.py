"""The credit of senders to durable queues, which is withheld while the store or the cluster has no room."""

from __future__ import annotations

from ...channel.ports import TerminalEnd
from ...store.contract.interface import MessageStore
from ..nodes.replication_port import Members


class SenderCredit:
    """The credit that senders get back, and what is withheld of it. Core only."""

    def __init__(self, store: MessageStore, members: Members) -> None:
        self._store = store
        self._members = members
        self._withheld: dict[TerminalEnd, int] = {}

    def take(self, terminal: TerminalEnd, wanted: int, *, replicated: bool = False) -> int:
        """Return *wanted*, or 0 while the store is full.

        Return 0, too, while the cluster can't keep up, if some queue is *replicated*, or may be. What is withheld is
        granted when there is room again.
        """
        held = replicated and self._members.holds
        if not wanted or not (held or self._store.full()):
            return wanted
        return self.withhold(terminal, wanted)

    def withhold(self, terminal: TerminalEnd, credit: int) -> int:
        """Keep *credit* until there is room again; return 0, for what the sender gets now."""
        self._withheld[terminal] = self._withheld.get(terminal, 0) + credit
        return 0

    def forget(self, terminal: TerminalEnd) -> None:
        """Drop the credit that is withheld from a link that is closed."""
        self._withheld.pop(terminal, None)

    def grant_withheld(self) -> None:
        """Grant the credit that was withheld, if the store and the cluster have room again."""
        if self._store.full() or self._members.holds:
            return
        withheld, self._withheld = self._withheld, {}
        for terminal, credit in withheld.items():
            terminal.grant(credit)
