"""Sends the events of this member to all members, in order."""

from __future__ import annotations

from ..group.group import Group
from .fragmentation import Fragmenter
from .local_messages import NOTHING, LocalEvent, LocalMessageMap, abandon
from .member_state import MemberState


class Broadcaster:
    """The sending side of one member. Core only."""

    def __init__(self, group: Group, state: MemberState, locals_: LocalMessageMap) -> None:
        self._group = group
        self._state = state
        self._locals = locals_
        self._fragmenter = Fragmenter(group.multicast)

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
        self._fragmenter.send(event)

    @property
    def is_waiting(self) -> bool:
        """Return whether the group accepts no more for now."""
        return self._fragmenter.is_waiting

    def resume(self) -> None:
        """Sends the events that the group did not accept before."""
        self._fragmenter.resume()

    def somebody_joined(self) -> None:
        """Sends the fragments of an unfinished event again, for the new members."""
        self._fragmenter.somebody_joined()

    def lost(self) -> None:
        """Drops all unsent events."""
        self._fragmenter.lost()
