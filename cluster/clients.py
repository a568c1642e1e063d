"""What becomes of this member's clients, and of what they were about, when the group is lost. Core only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .local_messages import Local
from .replica import Replica

if TYPE_CHECKING:
    from .core import Core


class Clients:
    """Of one member."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def lose(self, local: Local) -> None:
        """It is never heard: what it was about is on its queue as before."""
        queue = local.queue
        if queue is not None and not queue.gone:
            for entry in local.entries:
                if not entry.gone:
                    queue.away.pop(entry, None)
                    entry.acquired = True
                    queue.give_back(entry)
        if local.always:
            local.then()

    def expel(self) -> None:
        """Send all clients away, and take back what they have."""
        core = self._core
        why = core.why_not_serving() or "this broker has left its cluster"
        for connection in [*core.broker.connections.by_end.values()]:
            connection.end.expel(why, elsewhere=True)
        core.broker.transactions.roll_back_all(why)
        for replica in core.owners.replicas.values():
            self.take_back(replica)
        core.owners.forget_consumers()

    def take_back(self, replica: Replica) -> None:
        """What its consumers have is on the queue again."""
        queue = replica.queue
        for holder in {*queue.consumers, *queue.selecting, *queue.leavers}:
            cut_off = getattr(holder, "cut_off", None)
            if cut_off is None:
                continue
            for entry in cut_off():
                entry.acquired = True
                queue.give_back(entry)
