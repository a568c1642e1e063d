"""The messages of a log as recovery finds them: the tools have no rules of their own for it."""

from __future__ import annotations

from collections.abc import Mapping

from ...recovery.replay import Replay
from ...store.message_map.placement import count_by_queue
from ...store.message_map.reconciliation import reconcile
from ...store.message_map.state import State


class ReplayedLog:
    """The state that the blocks of a log add up to. `take` gets them in order, `apply` ends it."""

    def __init__(self, place: str, container_bytes: int) -> None:
        """*place*: for errors."""
        self.state = State(container_bytes)
        replay = Replay(self.state, place, container_bytes)
        self.take = replay.take
        self.apply = replay.apply

    def reconcile(self, slots: Mapping[int, int]) -> None:
        """Check the state against the slots of the log. Raises `JournalError` if they contradict each other."""
        reconcile(self.state, slots)

    @property
    def messages(self) -> int:
        """The number of messages on queues."""
        return len(self.state) - len(self.state.unfinished())

    def count_by_queue(self) -> dict[int, int]:
        """Queue id to the number of its messages."""
        return count_by_queue(self.state)
