"""How far this member has come with what it heard: at the end of a step it notes what is done, so that it gets durable;
when it is, the others are told; and flow control is told what is not. Core only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import events
from .phases import ASKING, FOUNDING, OUTSIDE, SYNCED, UPDATING, WIPING

if TYPE_CHECKING:
    from .core import Core


class Progress:
    """Of one member."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._noted = 0
        """Up to that place what is done was noted."""
        self._noted_lsn = 0
        """The end of the store then."""

    def begin(self, position: int) -> None:
        """A new membership: what is heard first is at *position*."""
        self._core.deliver.position = self._noted = position

    def note(self) -> None:
        """The end of a step: what it did is to be durable."""
        core = self._core
        position = core.deliver.position
        if core.phase not in (UPDATING, SYNCED) or (position == self._noted and not core.completion.ended_one):
            return
        self._noted = position
        store = core.broker.store
        if store.next_lsn != self._noted_lsn:
            core.mark.move(position)
        self._noted_lsn = store.next_lsn
        core.completion.applied(store.next_lsn, position)
        core.durable()

    def durable(self) -> None:
        """The store's durable LSN has moved: the others are told."""
        core = self._core
        if core.phase in (WIPING, UPDATING):
            core.joining.durable()
        completion = core.completion
        completion.durable(core.broker.store.durable_lsn)
        if completion.has_news and core.phase in (UPDATING, SYNCED) and len(core.members) > 1:
            completion.has_news = False
            core.say(events.ack(completion.numbers))

    def look_at_flow(self) -> None:
        """The end of a step: how much is not done, or not on the disks of a majority."""
        core = self._core
        flow = core.flow
        if core.phase in (OUTSIDE, FOUNDING, WIPING, ASKING) and not core.inbox and not core.joining.is_asked:
            flow.nothing_lags()
            return
        done, safe = core.completion.done, core.completion.finished
        if not core.inbox and done >= core.deliver.position:  # what comes behind it are acknowledgements
            safe = flow.end if safe == done else safe
            done = flow.end
        flow.look(done, safe, core.deliver.parts.size_bytes)
