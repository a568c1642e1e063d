"""The progress of a member with the events that it received.

At the end of a step it records the applied events, so that they become durable; then it acknowledges them to the
others, and reports the remaining lag to flow control. Core only.
"""

from __future__ import annotations

from .apply_loop import ApplyLoop
from .kernel import events
from .kernel.context import MemberContext
from .kernel.phases import BOOTSTRAPPING, DISCARDING, OUTSIDE, REQUESTING, SYNCHRONIZED, TRANSFERRING
from .kernel.progress_record import ProgressRecord
from .replication.flow_control import FlowControl
from .state_transfer.receiver import TransferReceiver


class MemberProgress:
    """The progress of one member."""

    def __init__(
        self,
        context: MemberContext,
        record: ProgressRecord,
        apply_loop: ApplyLoop,
        flow: FlowControl,
        receiver: TransferReceiver,
    ) -> None:
        self._state = context.state
        self._store = context.store
        self._broadcaster = context.broadcaster
        self._commits = context.commits
        self._inbox = context.inbox
        self._record = record
        self._apply_loop = apply_loop
        self._flow = flow
        self._receiver = receiver
        self._noted = 0
        """The position up to which progress was recorded."""
        self._noted_lsn = 0
        """The end of the store at that time."""

    def begin(self) -> None:
        """Begins a new membership."""
        self._apply_loop.position = self._noted = self._commits.done

    def note(self) -> None:
        """Ends a step: makes its effects durable."""
        position, commits = self._apply_loop.position, self._commits
        if self._state.phase not in (TRANSFERRING, SYNCHRONIZED) or (position == self._noted and not commits.ended_one):
            return
        self._noted = position
        store = self._store
        if store.next_lsn != self._noted_lsn:
            self._record.move(position)
        self._noted_lsn = store.next_lsn
        commits.applied(store.next_lsn, position)
        self.durable()

    def durable(self) -> None:
        """Acknowledges events that are durable now, since the store's durable LSN has moved."""
        phase, commits = self._state.phase, self._commits
        if phase in (DISCARDING, TRANSFERRING):
            self._receiver.durable()
        commits.durable(self._store.durable_lsn)
        if commits.has_news and self._state.phase in (TRANSFERRING, SYNCHRONIZED) and len(self._state.members) > 1:
            commits.has_news = False
            self._broadcaster.send(events.ack(commits.numbers))

    def look_at_flow(self) -> None:
        """Ends a step: reports events to flow control that are not applied, or not durable at a majority."""
        flow, waiting = self._flow, self._inbox.events
        if self._state.phase in (OUTSIDE, BOOTSTRAPPING, DISCARDING, REQUESTING) and not waiting:
            flow.nothing_lags()
            return
        done, safe = self._commits.done, self._commits.finished
        if not waiting and done >= self._apply_loop.position:  # only acknowledgements follow
            safe = flow.end if safe == done else safe
            done = flow.end
        flow.look(done, safe, self._apply_loop.reassembly.size_bytes)
