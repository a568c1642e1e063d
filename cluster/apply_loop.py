"""Applies the events of the group, in their order: the deliver thread of the paper (D43). Core only.

A member does not decode its own events when they come back: `LocalMessageMap` has their contents. All members ignore an
invalid event alike, because all receive the same bytes.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .group.member_id import MemberId
from .kernel import events
from .kernel.context import MemberContext
from .kernel.control_messages import About, ControlMessage
from .kernel.fragmentation import MissedFragment, Reassembly
from .kernel.inbox import ReceivedEvent
from .kernel.local_messages import LocalEvent, abandon
from .kernel.phases import BUFFERING, REQUESTING, SYNCHRONIZED, TRANSFERRING
from .replication.message_handler import MessageHandler
from .replication.transactions import TransactionHandler
from .state_transfer.receiver import TransferReceiver

log = logging.getLogger(__name__)

ControlHandler = Callable[[ControlMessage], None]


@dataclass(eq=False, repr=False)
class ApplyLoop:
    """Hands each event to the part that applies it."""

    _context: MemberContext
    _messages: MessageHandler
    _transactions: TransactionHandler
    _receiver: TransferReceiver
    _change_wiring: Callable[[int, About, LocalEvent | None], None]
    """Applies a change of the wiring at a position, with the event of this member that caused it."""
    _came_back: Callable[[], None]
    """A heartbeat of this member was delivered to it."""
    _at_once: Mapping[str, ControlHandler]
    """The handlers of control messages that apply in every phase."""
    _in_order: Mapping[str, ControlHandler]
    """The handlers of control messages that apply only where this member applies events."""

    def __post_init__(self) -> None:
        self.reassembly = Reassembly()
        self.position = 0
        """The position behind the last applied event."""
        self.bad_events = 0
        self._bad_of: Counter[MemberId] = Counter()

    def apply(self, received: ReceivedEvent) -> None:
        """Applies an event, as the phase of this member requires."""
        state, commits = self._context.state, self._context.commits
        sender, position, payload, number, is_last, kept = received
        commits.hears(sender, number, is_last)
        commits.at = position
        mine = sender == state.me and not kept
        mine_counts = mine and state.phase not in (REQUESTING, BUFFERING)
        if mine_counts and payload[0] not in (events.PART, events.ACK, events.CONTROL):
            self._own(position, payload[0])
            return
        try:
            event = events.decode(payload)
            if isinstance(event, events.PartEvent):
                complete = self._complete(sender, event)
                if complete is None:
                    return
                if mine_counts and complete[0] != events.CONTROL:
                    self._own(position, complete[0])
                    return
                event, received = events.decode(complete), received._replace(payload=complete)
        except events.BadEvent as error:
            self._count_bad(sender, error)
            if mine:
                self._context.locals.received()
            return
        local = self._context.locals.received() if mine else None
        if isinstance(event, events.AckEvent):
            commits.received(sender, event.numbers)
        elif isinstance(event, events.ControlEvent) and event.about["what"] == "alive":  # there is nothing to apply
            if mine:
                self._came_back()
        elif isinstance(event, events.ControlEvent):
            self._reported(received, event.about, local)
        elif state.phase == BUFFERING:
            self._keep(received, local)
        elif state.phase in (TRANSFERRING, SYNCHRONIZED):
            self._do(sender, position, event, local)
        elif local is not None:
            abandon(local)

    def _count_bad(self, sender: MemberId, error: events.BadEvent) -> None:
        """Counts an invalid event, and logs it unless there are many."""
        self.bad_events += 1
        self._bad_of[sender] += 1
        if not (count := self._bad_of[sender]) & (count - 1):  # many of them must not fill the log
            text, about = "cluster %s: ignored event %d of %s: %s", {"event": "cluster.event-ignored"}
            log.error(text, self._context.state.name, count, sender, error, extra=about)

    def _own(self, position: int, kind: int) -> None:
        """Applies an event of this member: nothing is decoded, unless it names messages by position."""
        state = self._context.state
        local = self._context.locals.received()
        if state.phase != SYNCHRONIZED:
            abandon(local)
            return
        assert state.me is not None
        if local.kept is not None:
            there = self._messages.enqueue(position, local.names, local.kept.messages, local.kept.timed)
            if local.received is not None:
                local.received()
            self._context.commits.when_safe(position, local.then if there or local.refused is None else local.refused)
        elif local.event is not None:
            self._do(state.me, position, local.event, local)
        self.position = position + 1

    def _do(self, sender: MemberId, position: int, event: events.Event, local: LocalEvent | None) -> None:
        messages, done = self._messages, True
        if isinstance(event, events.EnqueueEvent):
            messages.enqueue(position, event.names, event.messages, event.timed)
        elif isinstance(event, events.DequeueEvent):
            messages.dequeue(sender, event, local)
        elif isinstance(event, events.ReleaseEvent):
            messages.release(sender, event, local)
        elif isinstance(event, events.AmendEvent):
            released = events.ReleaseEvent(event.name, (event.position,), bytes([event.failed]))
            messages.release(sender, released, local, event.content)
        elif isinstance(event, events.MoveEvent):
            done = self._transactions.move(sender, position, event, local)
        elif isinstance(event, events.FrontEvent):
            self._receiver.front(sender, event)
        elif isinstance(event, events.DigestsEvent):
            self._receiver.digests(sender, event)
        elif isinstance(event, events.TransactionEvent):
            done = self._transactions.do(sender, position, event, local)
            if local is not None and local.received is not None:
                local.received()
        if local is not None:
            self._context.commits.when_safe(position, local.then if done or local.refused is None else local.refused)
        self.position = position + 1

    def _keep(self, received: ReceivedEvent, local: LocalEvent | None) -> None:
        """Keeps an event until the wiring is there; no client waits for it before this member serves."""
        if local is not None:
            abandon(local)
        self._receiver.keep(received._replace(kept=True))

    def _complete(self, sender: MemberId, part: events.PartEvent) -> bytes | None:
        """Returns the event whose last fragment is *part*, if it is one."""
        phase = self._context.state.phase
        try:
            return self.reassembly.add(sender, part)
        except MissedFragment:
            if phase == SYNCHRONIZED:
                raise events.BadEvent("the last fragment of an event without a first one") from None
            if phase == TRANSFERRING:
                self._context.fail("it missed the first fragment of a long event", "start this broker again")
            elif phase == BUFFERING:
                self._receiver.ask_again()
            return None

    def _reported(self, received: ReceivedEvent, about: About, local: LocalEvent | None) -> None:
        sender, position = received[:2]
        what, phase = about["what"], self._context.state.phase
        if (handler := self._at_once.get(what)) is not None:
            handler(ControlMessage(sender, position, about))
        elif phase == BUFFERING:
            self._keep(received, local)
            return
        elif phase not in (TRANSFERRING, SYNCHRONIZED):
            if local is not None:
                abandon(local)
            return
        elif what == "change":
            self._change_wiring(position, about["change"], local)
        else:
            if (handler := self._in_order.get(what)) is not None:
                handler(ControlMessage(sender, position, about))
            if local is not None:
                self._context.commits.when_safe(position, local.then, always=local.always)
        self.position = position + 1
