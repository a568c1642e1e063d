"""Sends the events of this member to all members, in order."""

from __future__ import annotations

from typing import Any

from ..group.group import Group
from . import events
from .fragmentation import Fragmenter
from .local_messages import NOTHING, LocalEvent, LocalMessageMap, abandon
from .member_state import MemberState


class Broadcaster:
    """The sending side of one member. Core only."""

    def __init__(self, group: Group, state: MemberState, locals_: LocalMessageMap) -> None:
        self._group = group
        self._state = state
        self._locals = locals_
        self.unsent = Fragmenter(group.multicast)
        """The events that the group has not accepted yet."""

    def send(self, event: bytes, local: LocalEvent | None = None) -> None:
        """Multicasts *event* after all that was sent before; while this member is outside the group it is lost."""
        me = self._state.me
        if me is None:
            if local is not None:
                abandon(local)
            return
        self._locals.add(local or NOTHING)
        if self._group.me != me:
            return  # the group already knows what will be delivered here: this member left, or joined as a new one
        self.unsent.send(event)

    def send_control(self, what: str, local: LocalEvent | None = None, **about: Any) -> None:
        """Multicasts a control message."""
        self.send(events.control(what, **about), local)
