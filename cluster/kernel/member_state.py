"""The identity, the phase and the view of one member, as its parts share them."""

from __future__ import annotations

from ..group.member_id import MemberId
from .phases import OUTSIDE, TABLE, PhaseEvent, public_name


class MemberState:
    """The state of one member. Core only, but for the plain attributes, which any thread may read."""

    def __init__(self, name: str, *, is_alone: bool = False, is_forced: bool = False) -> None:
        self.name = name
        """The name of the cluster."""
        self.is_alone = is_alone
        """The cluster has one member and never gets another one."""
        self.is_forced = is_forced
        """An operator declared the connected members to be enough."""
        self.size = 1
        """The number of configured members."""
        self.me: MemberId | None = None
        """The ID of this member; None while it is outside the group."""
        self.members: tuple[MemberId, ...] = ()
        """All members in the group."""
        self.synced: set[MemberId] = set()
        """The members that have all messages: only they can lead a queue."""
        self.view = 0
        """The number of the last configuration."""
        self.epoch = 0
        """The epoch of the cluster, if this member has learned it."""
        self.phase = OUTSIDE
        self.is_primary = False
        """The group has a majority."""
        self.is_quorate = False
        """The local daemon has a quorum."""
        self.has_failed = False
        """This broker cannot be a member any more."""

    @property
    def has_majority(self) -> bool:
        """Return whether both the group and the local daemon have a majority."""
        return self.is_primary and self.is_quorate

    @property
    def phase_name(self) -> str:
        """The phase, as metrics and management show it."""
        return public_name(self.phase)

    def handle(self, event: PhaseEvent) -> str | None:
        """Changes the phase by the table; returns the phase that is entered, or None if *event* is ignored."""
        entered = TABLE.get((self.phase, event))
        self.phase = entered or self.phase
        return entered

    def leave(self) -> None:
        """Notes that this member is outside the group, or in a minority."""
        self.handle(PhaseEvent.LOST)
        self.is_primary = False
        self.me = None
        self.synced.clear()
