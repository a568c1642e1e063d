"""The paper's deliver thread (D43): each event of the group, in its order, is handed to who does it. Core only.

A member's own events are not decoded when they come back: what they are about was kept (`LocalMessageMap`). An event
that says nothing sensible is passed by, by all members alike, for all see the same bytes.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from . import events
from .group import MemberId
from .local_messages import Local
from .parts import Hearing, Missed
from .phases import ASKING, SYNCED, UPDATING
from .told import About

if TYPE_CHECKING:
    from .core import Core

log = logging.getLogger(__name__)


class Heard(NamedTuple):
    """One payload of the group."""

    sender: MemberId
    position: int
    payload: bytes
    number: int
    """Of its batch, among those of the sender."""
    is_last: bool
    """In that batch."""
    kept: bool = False
    """It was heard before this member had the wiring, and comes again."""


class Deliver:
    """Of one member."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.parts = Hearing()
        self.position = 0
        """Behind the last event that was done."""
        self.bad_events = 0
        self._bad_of: Counter[MemberId] = Counter()

    def hear(self, heard: Heard) -> None:
        """Do what it says, in the phase that this member is in."""
        core = self._core
        sender, position, payload, number, is_last, kept = heard
        core.completion.hears(sender, number, is_last)
        core.completion.at = position
        mine = sender == core.me and not kept
        if mine and core.phase != ASKING and payload[0] not in (events.PART, events.ACK, events.TOLD):
            self._own(position, payload[0])
            return
        try:
            event = events.decode(payload)
            if isinstance(event, events.Part):
                whole = self._whole(sender, event)
                if whole is None:
                    return
                if mine and whole[0] != events.TOLD and core.phase != ASKING:
                    self._own(position, whole[0])
                    return
                event, heard = events.decode(whole), heard._replace(payload=whole)
        except events.BadEvent as error:
            self.bad_events += 1
            self._bad_of[sender] += 1
            if not (count := self._bad_of[sender]) & (count - 1):  # a flood of them is not to fill the log
                log.error("cluster %s: event %d of %s that is passed by: %s", core.name, count, sender, error)
            if mine:
                core.locals.heard()
            return
        local = core.locals.heard() if mine else None
        if isinstance(event, events.Ack):
            core.completion.heard(sender, event.numbers)
        elif isinstance(event, events.Told):
            self._told(heard, event.about, local)
        elif core.phase == ASKING and core.joining.is_asked:
            self._keep(heard, local)
        elif core.phase in (UPDATING, SYNCED):
            self._do(sender, position, event, local)
        elif local is not None:
            core.clients.lose(local)

    def _own(self, position: int, kind: int) -> None:
        """One of our own: nothing has to be decoded, but what is about messages by position."""
        core = self._core
        local = core.locals.heard()
        if core.phase != SYNCED:
            core.clients.lose(local)
            return
        assert core.me is not None
        if local.kept is not None:
            there = core.messages.enqueue(position, local.names, local.kept.messages, local.kept.timed)
            if local.heard is not None:
                local.heard()
            core.completion.when_safe(position, local.then if there or local.refused is None else local.refused)
        elif local.event is not None:
            self._do(core.me, position, local.event, local)
        self.position = position + 1

    def _do(self, sender: MemberId, position: int, event: events.Event, local: Local | None) -> None:
        core = self._core
        done = True
        if isinstance(event, events.Enqueue):
            core.messages.enqueue(position, event.names, event.messages, event.timed)
        elif isinstance(event, events.Dequeue):
            core.messages.dequeue(sender, event, local)
        elif isinstance(event, events.Release):
            core.messages.release(sender, event, local)
        elif isinstance(event, events.Move):
            done = core.messages.move(sender, position, event, local)
        elif isinstance(event, events.Front):
            core.joining.front(sender, event)
        elif isinstance(event, events.Transaction):
            done = core.transacting.do(sender, position, event, local)
            if local is not None and local.heard is not None:
                local.heard()
        if local is not None:
            core.completion.when_safe(position, local.then if done or local.refused is None else local.refused)
        self.position = position + 1

    def _keep(self, heard: Heard, local: Local | None) -> None:
        """Until the wiring is there. What it was about here is over: no client waits before this member serves."""
        core = self._core
        if local is not None:
            core.clients.lose(local)
        core.joining.keep(heard._replace(kept=True))

    def _whole(self, sender: MemberId, part: events.Part) -> bytes | None:
        """The event that *part* is the end of, if it is."""
        core = self._core
        try:
            return self.parts.heard(sender, part)
        except Missed:
            if core.phase == SYNCED:
                raise events.BadEvent("the end of one that did not begin") from None
            if core.phase == UPDATING:
                core.fail("it did not hear the beginning of a long event", "start this broker again")
            elif core.phase == ASKING and core.joining.is_asked:
                core.joining.ask_again()
            return None

    def _told(self, heard: Heard, about: About, local: Local | None) -> None:
        core = self._core
        sender, position = heard[:2]
        what = about["what"]
        if what == "report-wish":
            core.reports.wished(about)
        elif what == "report":
            core.reports.told(sender, about)
        elif what == "state":
            core.founding.heard(sender, about)
        elif what == "address":
            core.addresses.heard(sender, about)
        elif what == "flow":
            core.flow.heard(sender, off=about["off"])
        elif what == "follow":
            core.joining.follow(sender, about)
        elif what == "sync":
            core.joining.asked(sender, position, about)
        elif what == "snapshot":
            core.joining.snapshot(sender, about)
        elif core.phase == ASKING and core.joining.is_asked:
            self._keep(heard, local)
            return
        elif core.phase not in (UPDATING, SYNCED):
            if local is not None:
                core.clients.lose(local)
            return
        else:
            core.wiring.heard(sender, position, about, local)
        self.position = position + 1
