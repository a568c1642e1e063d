"""The addresses at which clients reach the members: each multicasts its own, so that clients learn the others.

They are multicast whenever a member joins. A member that left is dropped while the rest is a majority. A member that is
cut off itself keeps all addresses, since its clients have to move to them: first to those that are not cut off with it.
Core only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from ..group.group_events import Configuration
from ..kernel.broadcaster import Broadcaster
from ..kernel.control_messages import ControlMessage
from ..kernel.member_state import MemberState

ClientAddress = tuple[str, int]
"""Host and port."""


class ClientAddresses(NamedTuple):
    """The addresses at which clients are served: without TLS, and with it."""

    plain: tuple[ClientAddress, ...] = ()
    tls: tuple[ClientAddress, ...] = ()


class FailoverAddresses:
    """The addresses of the members that one member knows."""

    def __init__(self, state: MemberState, broadcaster: Broadcaster, mine: ClientAddresses) -> None:
        self._state = state
        self._broadcaster = broadcaster
        self.mine = mine
        """The addresses that this member multicasts."""
        self.on_change: Callable[[ClientAddresses], None] = lambda others: None
        """Receives the others' addresses: first those that may serve clients, ordered by node."""
        self._others: dict[int, ClientAddresses] = {}
        self._cut_off: Collection[int] = ()
        """The nodes on this side of a partition without a majority."""

    @property
    def others(self) -> ClientAddresses:
        nodes = sorted(self._others, key=lambda node: (node in self._cut_off, node))
        known = [self._others[node] for node in nodes]
        return ClientAddresses(
            tuple([place for places in known for place in places.plain]),
            tuple([place for places in known for place in places.tls]),
        )

    @property
    def by_node(self) -> dict[int, ClientAddresses]:
        """The addresses of all known members, this one included."""
        me = self._state.me
        return self._others | ({me.node: self.mine} if me is not None else {})

    def configured(self, config: Configuration) -> None:
        """Ranks the members on this side of a partition last, if it has no majority: they serve no clients."""
        was, self._cut_off = self.others, () if config.primary else [member.node for member in config.members]
        if self.others != was:
            self.on_change(self.others)

    def say(self) -> None:
        """Multicasts the addresses of this member, for new members."""
        if any(self.mine) and not self._state.is_alone:
            self._broadcaster.send_control("address", plain=self.mine.plain, tls=self.mine.tls)

    def received(self, message: ControlMessage) -> None:
        sender, _, about = message
        if sender != self._state.me:
            places = ClientAddresses(_places(about["plain"]), _places(about["tls"]))
            if self._others.get(sender.node) != places:
                self._others[sender.node] = places
                self.on_change(self.others)

    def remained(self, config: Configuration) -> None:
        """Forgets the members that left, since this one remained."""
        removed = [member.node for member in config.left if self._others.pop(member.node, None) is not None]
        if removed:
            self.on_change(self.others)


def _places(rows: Sequence[Sequence[Any]]) -> tuple[ClientAddress, ...]:
    return tuple([(host, port) for host, port in rows])
