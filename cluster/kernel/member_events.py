"""Events in the life of a member, to which its parts subscribe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

from ..group.group_events import Configuration

Arguments = ParamSpec("Arguments")


class Signal(Generic[Arguments]):
    """A list of actions that run in the order of their subscription."""

    def __init__(self) -> None:
        self._actions: list[Callable[Arguments, None]] = []

    def subscribe(self, *actions: Callable[Arguments, None]) -> None:
        """Adds *actions* behind those that subscribed before."""
        self._actions += actions

    def __call__(self, *args: Arguments.args, **named: Arguments.kwargs) -> None:
        for action in self._actions:
            action(*args, **named)


class MemberEvents:
    """The events of one member. The order of subscribers is part of the protocol: it orders what they multicast."""

    def __init__(self) -> None:
        self.configured = Signal[[Configuration]]()
        """A configuration was delivered; this member has not acted on it yet."""
        self.somebody_joined = Signal[[]]()
        """The new configuration has new members, perhaps this one."""
        self.remained = Signal[[Configuration]]()
        """This member is in that configuration, and the configuration has a majority."""
        self.entered = Signal[[]]()
        """This member entered the group under a new ID."""
        self.members_changed = Signal[[Configuration]]()
        """Other members joined or left."""
        self.lost = Signal[[]]()
        """This member left the group, or lost the majority."""
        self.service_ended = Signal[[str]]()
        """All parts have reset after `lost`; with the reason for clients."""
        self.idle = Signal[[]]()
        """A step found nothing more to do."""
        self.disk_full = Signal[[]]()
        """The store takes nothing more."""
