"""At which addresses clients reach the members: each says its own, so that clients are told of the others.

Said whenever somebody came. A member that left is forgotten while the rest is a majority; whoever is cut off itself
keeps what it knew, since that is where its clients are to go: first to those that are not cut off with it. Core only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import events
from .group import Configuration, MemberId

if TYPE_CHECKING:
    from .core import Core

Place = tuple[str, int]
"""Host and port."""


class Places(NamedTuple):
    """Where clients are served: without TLS, and with it."""

    plain: tuple[Place, ...] = ()
    tls: tuple[Place, ...] = ()


class Addresses:
    """Of the members that one member knows."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.mine = Places()
        """What this member says."""
        self.on_change: Callable[[Places], None] = lambda others: None
        """Gets the others' addresses: first of those that may serve clients, in the order of their nodes."""
        self._others: dict[int, Places] = {}
        self._cut_off: Collection[int] = ()
        """Nodes on this side of a partition, which is no majority."""

    @property
    def others(self) -> Places:
        known = [places for _, places in sorted(self._others.items(), key=self._rank)]
        return Places(
            tuple([place for places in known for place in places.plain]),
            tuple([place for places in known for place in places.tls]),
        )

    def _rank(self, one: tuple[int, Places]) -> tuple[bool, int]:
        return one[0] in self._cut_off, one[0]

    def configured(self, config: Configuration) -> None:
        """Who is here without a majority serves clients as little as this member does."""
        was, self._cut_off = self.others, () if config.primary else [member.node for member in config.members]
        if self.others != was:
            self.on_change(self.others)

    def say(self) -> None:
        """Somebody came who has not heard it; perhaps this member."""
        if any(self.mine) and not self._core.alone:
            self._core.say(events.told("address", plain=self.mine.plain, tls=self.mine.tls))

    def heard(self, sender: MemberId, about: dict[str, Any]) -> None:
        if sender != self._core.me:
            places = Places(_places(about["plain"]), _places(about["tls"]))
            if self._others.get(sender.node) != places:
                self._others[sender.node] = places
                self.on_change(self.others)

    def left(self, members: Sequence[MemberId]) -> None:
        """They are not members any more, and this one is."""
        gone = [member.node for member in members if self._others.pop(member.node, None) is not None]
        if gone:
            self.on_change(self.others)


def _places(rows: Sequence[Sequence[Any]]) -> tuple[Place, ...]:
    return tuple([(host, port) for host, port in rows])
