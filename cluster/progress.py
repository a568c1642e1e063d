"""The progress of a member with the events that it received.

At the end of a step it records the applied events, so that they become durable; then it acknowledges them to the
others, and reports the remaining lag to flow control. Core only.
"""

from __future__ import annotations

from .apply_loop import ApplyLoop
from .kernel import events
from .kernel.context import MemberContext
from .kernel.phases import BOOTSTRAPPING, DISCARDING, OUTSIDE, REQUESTING, SYNCHRONIZED, TRANSFERRING
from .replication.flow_control import FlowControl
from .state_transfer.receiver import TransferReceiver


class MemberProgress:
    """The progress of one member."""

    def __init__(
        self, context: MemberContext, apply_loop: ApplyLoop, flow: FlowControl, receiver: TransferReceiver
    ) -> None:
        self._context = context
        self._apply_loop = apply_loop
        self._flow = flow
        self._receiver = receiver
        self._noted = 0
        """The position up to which progress was recorded."""
        self._noted_lsn = 0
        """The end of the store at that time."""

    def begin(self) -> None:
        """Begins a new membership."""
        self._apply_loop.position = self._noted = self._context.commits.done

    def note(self) -> None:
        """Ends a step: makes its effects durable."""
        position, commits, phase = self._apply_loop.position, self._context.commits, self._context.state.phase
        if phase not in (TRANSFERRING, SYNCHRONIZED) or (position == self._noted and not commits.ended_one):
            return
        self._noted = position
        store = self._context.store
        if store.next_lsn != self._noted_lsn:
            self._context.record.move(position)
        self._noted_lsn = store.next_lsn
        commits.applied(store.next_lsn, position)
        self.durable()

    def durable(self) -> None:
        """Acknowledges events that are durable now, since the store's durable LSN has moved."""
        state, commits = self._context.state, self._context.commits
        if state.phase in (DISCARDING, TRANSFERRING):
            self._receiver.durable()
        commits.durable(self._context.store.durable_lsn)
        if commits.has_news and state.phase in (TRANSFERRING, SYNCHRONIZED) and len(state.members) > 1:
            commits.has_news = False
            self._context.broadcaster.send(events.ack(commits.numbers))

    def look_at_flow(self) -> None:
        """Ends a step: reports events to flow control that are not applied, or not durable at a majority."""
        flow, waiting = self._flow, self._context.inbox.events
        if self._context.state.phase in (OUTSIDE, BOOTSTRAPPING, DISCARDING, REQUESTING) and not waiting:
            flow.nothing_lags()
            return
        done, safe = self._context.commits.done, self._context.commits.finished
        if not waiting and done >= self._apply_loop.position:  # only acknowledgements follow
            safe = flow.end if safe == done else safe
            done = flow.end
        flow.look(done, safe, self._apply_loop.reassembly.size_bytes)
