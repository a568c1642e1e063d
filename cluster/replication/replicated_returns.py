"""Returns messages to replicated queues: one event for each queue in a step. Core only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...broker.messages.entry import ARRIVAL_MASK, Entry
from ...broker.nodes.replication_port import Then
from ...broker.queues.ends import SourceQueue
from ..kernel import events
from ..kernel.broadcaster import Broadcaster
from ..kernel.events import ReleaseEvent
from ..kernel.local_messages import LocalEvent


class ReplicatedReturns:
    """The messages that this member returns in one step."""

    def __init__(self, post: Callable[..., None], broadcaster: Broadcaster) -> None:
        """*post*: runs an action on the core, after the actions that wait there."""
        self._post = post
        self._broadcaster = broadcaster
        self._back: dict[SourceQueue, list[tuple[Entry, bool, Then]]] = {}
        """The entries to return, each with whether its delivery failed."""

    def add(self, queue: SourceQueue, entry: Entry, failed: bool, then: Then) -> None:
        """Returns *entry* at the end of the step, at the latest; does *then* when that is safe."""
        if not self._back:
            self._post(self.order)
        self._back.setdefault(queue, []).append((entry, failed, then))

    def order(self) -> None:
        """Returns all of them now."""
        back, self._back = self._back, {}
        for queue, those in back.items():
            entries = [entry for entry, _, _ in those]
            positions = tuple([entry.position & ARRIVAL_MASK for entry in entries])
            event = ReleaseEvent(queue.name, positions, bytes([failed for _, failed, _ in those]))
            then = partial(_do_all, [then for _, _, then in those])
            self._broadcaster.send(events.release(*event), LocalEvent(then, queue=queue, entries=entries, event=event))


def _do_all(actions: Sequence[Then]) -> None:
    for action in actions:
        action()
