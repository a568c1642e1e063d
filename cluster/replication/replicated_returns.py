"""Returns messages to replicated queues: one event for each queue in a step. Core only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...broker.messages.entry import ARRIVAL_MASK, Entry
from ...broker.nodes.replication_port import Then
from ...broker.queues.ends import SourceQueue
from ..kernel import events
from ..kernel.broadcaster import Broadcaster
from ..kernel.events import AmendEvent, ReleaseEvent
from ..kernel.local_messages import LocalEvent


class ReplicatedReturns:
    """The messages that this member returns in one step."""

    def __init__(self, post: Callable[..., None], broadcaster: Broadcaster) -> None:
        """*post*: runs an action on the core, after the actions that wait there."""
        self._post = post
        self._broadcaster = broadcaster
        self._back: dict[SourceQueue, list[tuple[Entry, bool, Then]]] = {}
        """The entries to return, each with whether its delivery failed."""
        self._contents: dict[Entry, bytes] = {}
        """The contents that some of them get."""

    def add(self, queue: SourceQueue, entry: Entry, failed: bool, then: Then) -> None:
        """Returns *entry* at the end of the step, at the latest; does *then* when that is safe."""
        if not self._back:
            self._post(self.order)
        self._back.setdefault(queue, []).append((entry, failed, then))

    def rewrite(self, entry: Entry, content: bytes) -> None:
        """Gives *entry* another content when it is returned, in this step."""
        self._contents[entry] = content

    def order(self) -> None:
        """Returns all of them now."""
        back, self._back = self._back, {}
        contents, self._contents = self._contents, {}
        for queue, those in back.items():
            for entry, failed, then in those:
                if entry in contents:
                    self._amend(queue, entry, failed, contents[entry], then)
            those = [one for one in those if one[0] not in contents]
            if not those:
                continue
            entries = [entry for entry, _, _ in those]
            positions = tuple([entry.position & ARRIVAL_MASK for entry in entries])
            event = ReleaseEvent(queue.name, positions, bytes([failed for _, failed, _ in those]))
            then = partial(_do_all, [then for _, _, then in those])
            self._broadcaster.send(events.release(*event), LocalEvent(then, queue=queue, entries=entries, event=event))

    def _amend(self, queue: SourceQueue, entry: Entry, failed: bool, content: bytes, then: Then) -> None:
        event = AmendEvent(queue.name, entry.position & ARRIVAL_MASK, failed, content)
        self._broadcaster.send(events.amend(*event), LocalEvent(then, queue=queue, entries=[entry], event=event))


def _do_all(actions: Sequence[Then]) -> None:
    for action in actions:
        action()
