"""The broker as a member of a cluster: the choice of its group, and the thread that polls it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from ..base.clock import Clock
from ..base.errors import CairnError
from ..cluster.broker_handler import BrokerHandler
from ..cluster.group.config_check import agreement
from ..cluster.group.corosync import CorosyncBus
from ..cluster.group.group import Group
from ..cluster.group.member import GroupMember
from ..cluster.group.single_member import SingleMemberGroup
from ..cluster.kernel.events import VERSION
from ..cluster.member import ClusterMember, MemberOptions
from ..cluster.nodes.failover_addresses import ClientAddress, ClientAddresses
from ..cluster.poller import Poller, Watch
from ..store.journaled.discarded_state import Aside
from .options import ClusterOptions


def reachable(places: ClientAddresses) -> ClientAddresses:
    """Return the addresses of a listener that others can use: the machine's name for any address, no loopback."""
    return ClientAddresses(_reachable(places.plain), _reachable(places.tls))


def _reachable(places: Sequence[ClientAddress]) -> tuple[ClientAddress, ...]:
    found = []
    for host, port in places:
        address = ip_address(host)
        if address.is_unspecified:
            found.append((socket.gethostname(), port))
        elif not address.is_loopback:
            found.append((host, port))
    return tuple(found)


class ClusterMembership:
    """The cluster membership of a broker. Created before the broker, and started when it runs."""

    def __init__(
        self,
        options: ClusterOptions,
        clock: Clock,
        fail: Callable[[CairnError], None],
        alike: Mapping[str, Sequence[str]],
        places: ClientAddresses,
        aside: Aside | None = None,
    ) -> None:
        """*fail*: reports that the membership failed; *alike*: options that must be equal on all members.

        *places*: the addresses of the listeners, which clients use unless other addresses are configured. *aside*: the
        archive for state that a transfer replaces; None to discard it.
        """
        group: Group
        self._listens = options.size != 1
        settings = MemberOptions(
            is_alone=not self._listens,
            is_forced=options.force,
            silence_s=options.silence_s,
            aside=aside,
            places=reachable(places) if options.advertise is None else options.advertise,
        )
        if self._listens:
            bus = CorosyncBus(options.size or None, clock)
            group = GroupMember(bus, clock, agreed=agreement(options.name, VERSION, alike))
            self.core = ClusterMember(group, options.name, lambda: bus.configured, clock, fail, settings)
        else:  # a single member: all of it happens in the broker's own steps
            self.core = ClusterMember(SingleMemberGroup(), options.name, lambda: 1, clock, fail, settings)
        self.assembly = BrokerHandler(self.core)
        self._listening: Poller | None = None

    def start(self, watch: Watch, post: Callable[..., None]) -> None:
        """Start polling the group by *watch* and *post*, since the broker runs. Any thread."""
        if self._listens:
            self._listening = Poller(self.core.context, watch, post)

    def stop(self, post: Callable[..., None]) -> None:
        """Leave the cluster, after all clients were disconnected, as the last action that *post* runs on the core."""
        if self._listening is not None:
            self._listening.stop()
        post(self._leave)

    def _leave(self, *_: Any) -> None:
        self.core.leave()
