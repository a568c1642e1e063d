"""The topology of the network: its brokers, their links, and the addresses with receivers on each.

Each broker announces its own state: its neighbours, with the cost of the path to each, and the addresses that have a
receiver on it. An announcement has a number; each neighbour forwards those that are newer than what it has, so all
brokers converge quickly. A new neighbour gets the complete state, and then only changes. Its link keeps the order, so a
change never arrives before its predecessor; a broker that misses one requests it.

State of unreachable brokers is kept, but not used: if it were dropped, old announcements in flight would be taken for
news and forwarded without end. This module does not depend on links or messages. Core only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from typing import Any

Said = Mapping[str, Any]
"""A change of one broker's state: its name, its epoch (start time), the number of the change, and the change."""
Tell = Callable[[Said], None]

MOST_ADDRESSES = 1 << 17
"""The number of addresses that one broker may announce."""


MOST_REMOVED = 1024
"""Brokers that can't be reached, before the first of them is forgotten."""


class Wrong(Exception):
    """An invalid message from a neighbour."""


class RouterState:
    """The known state of one broker."""

    def __init__(self, epoch: int, number: int = 0) -> None:
        self.epoch = epoch
        self.number = number
        self.links: dict[str, int] = {}
        """The cost of the way to each of its neighbours."""
        self.addresses: dict[str, bool] = {}
        """Addresses with a receiver at that broker, and whether each is multicast."""


class Topology:
    """The network as the broker *me* sees it."""

    def __init__(self, me: str, epoch: int, changed: Callable[[Iterable[str] | None], None]) -> None:
        """*epoch* rises with each start. *changed* gets the addresses that changed, or None if the paths to all did."""
        self.me = me
        self.routers: dict[str, RouterState] = {me: RouterState(epoch)}
        self.next_hops: dict[str, tuple[str, int]] = {}
        """Next hops by reachable broker: the neighbour, and the cost of the path."""
        self._neighbours: dict[str, tuple[int, Tell]] = {}
        self._changed = changed
        self._mine: dict[str, bool | None] = {}
        """Changes of own addresses that were not announced yet: multicast or not, None for removed."""

    def joined(self, neighbour: str, cost: int, tell: Tell) -> None:
        """Add a connection to *neighbour*."""
        self._neighbours[neighbour] = cost, tell
        self._tell_links()
        for name, state in self.routers.items():
            tell(_all_of(name, state))
        self._find_ways()

    def left(self, neighbour: str) -> None:
        """Remove the connection to *neighbour*."""
        if self._neighbours.pop(neighbour, None) is not None:
            self._tell_links()
            self._find_ways()

    def has_receivers(self, address: str, multicast: bool | None) -> None:
        """Note the first receiver of an address, or that it has none any more (None); sent with `tell_changes`."""
        self._mine[address] = multicast

    def tell_changes(self) -> None:
        """Announce all changes noted by `has_receivers`."""
        mine = self.routers[self.me]
        changes, self._mine = self._mine, {}
        changes = {name: kind for name, kind in changes.items() if mine.addresses.get(name) != kind}
        if changes:
            self._tell_own(add={name: kind for name, kind in changes.items() if kind is not None},
                           drop=[name for name, kind in changes.items() if kind is None])  # fmt: skip

    def _tell_links(self) -> None:
        self._tell_own(links={name: cost for name, (cost, _) in self._neighbours.items()})

    def _tell_own(self, **change: Any) -> None:
        mine = self.routers[self.me]
        mine.number += 1
        said = {"router": self.me, "epoch": mine.epoch, "number": mine.number, **change}
        _apply(mine, said)
        self._pass_on(said, "")

    def received(self, neighbour: str, said: Said) -> None:
        """Apply a message from *neighbour*. Raises `Wrong`."""
        wanted = said.get("want")
        if isinstance(wanted, str):
            if wanted in self.routers:
                self._answer(neighbour, _all_of(wanted, self.routers[wanted]))
            return
        name, epoch, number = said.get("router"), said.get("epoch"), said.get("number")
        if not isinstance(name, str) or not isinstance(epoch, int) or not isinstance(number, int):
            raise Wrong("its router, epoch or number is missing")
        known = self.routers.get(name)
        if name == self.me:
            self._received_own(epoch, number)
        elif known is not None and (epoch, number) <= (known.epoch, known.number):
            return
        elif said.get("whole") is True or (known is not None and (known.epoch, known.number + 1) == (epoch, number)):
            self._apply_news(neighbour, name, said)
        else:
            self._answer(neighbour, {"want": name})

    def _answer(self, neighbour: str, said: Said) -> None:
        if neighbour in self._neighbours:
            self._neighbours[neighbour][1](said)

    def _apply_news(self, neighbour: str, name: str, said: Said) -> None:
        """Apply the complete state of router *name*, or the next change of its known state, and pass it on."""
        known, complete = self.routers.get(name), said.get("whole") is True
        before = RouterState(0) if known is None else known
        state = RouterState(said["epoch"], said["number"]) if complete or known is None else known
        links, names = dict(before.links), set(before.addresses) if complete else set()
        _check(said)
        _apply(state, said)
        self.routers[name] = state
        self._pass_on(said, neighbour)
        if state.links != links or known is None:
            self._find_ways()
        else:
            self._changed(names | set(said.get("add", ())) | set(said.get("drop", ())))

    def _received_own(self, epoch: int, number: int) -> None:
        """Overtake the state that an earlier run of this broker announced and that still circulates."""
        mine = self.routers[self.me]
        if (epoch, number) > (mine.epoch, mine.number):
            mine.epoch, mine.number = max(mine.epoch, epoch), max(mine.number, number) + 1
            self._pass_on(_all_of(self.me, mine), "")

    def _pass_on(self, said: Said, origin: str) -> None:
        for name, (_, tell) in list(self._neighbours.items()):
            if name != origin:
                tell(said)

    def _find_ways(self) -> None:
        """Find the cheapest path to each broker, by name among equals. A link counts if both ends announce it."""
        next_hops: dict[str, tuple[str, int]] = {}
        queue = [(cost, name, name) for name, (cost, _) in self._neighbours.items()]
        queue.sort()
        while queue:
            cost, name, first = heappop(queue)
            state = self.routers.get(name)
            if name in next_hops or name == self.me or state is None:
                continue
            if name == first and self.me not in state.links:
                continue
            next_hops[name] = first, cost
            for further, more in state.links.items():
                there = self.routers.get(further)
                if further not in next_hops and there is not None and name in there.links:
                    heappush(queue, (cost + more, further, first))
        self.next_hops = next_hops
        removed = [name for name in self.routers if name not in next_hops and name != self.me]
        for name in removed[:-MOST_REMOVED]:
            del self.routers[name]
        self._changed(None)

    def receivers_of(self, address: str, *, multicast: bool) -> dict[str, tuple[int, tuple[str, ...]]]:
        """Return by neighbour the cost of the cheapest path, and the brokers with receivers that it leads to."""
        found: dict[str, tuple[int, list[str]]] = {}
        for name, (first, cost) in self.next_hops.items():
            if self.routers[name].addresses.get(address) is not multicast:
                continue
            best, names = found.get(first, (cost, []))
            names.append(name)
            found[first] = min(best, cost), names
        return {first: (cost, tuple(sorted(names))) for first, (cost, names) in found.items()}


def _all_of(name: str, state: RouterState) -> Said:
    return {
        "router": name, "epoch": state.epoch, "number": state.number, "whole": True,
        "links": dict(state.links), "add": dict(state.addresses),
    }  # fmt: skip


def _apply(state: RouterState, said: Said) -> None:
    state.number = said["number"]
    if "links" in said:
        state.links = dict(said["links"])
    for name in said.get("drop", ()):
        state.addresses.pop(name, None)
    state.addresses.update(said.get("add", {}))
    if len(state.addresses) > MOST_ADDRESSES:
        raise Wrong(f"it announces more than {MOST_ADDRESSES} addresses")


def _check(said: Said) -> None:
    links, add, drop = said.get("links", {}), said.get("add", {}), said.get("drop", [])
    costs = links.values() if isinstance(links, dict) else [0]
    if not all(isinstance(cost, int) and cost > 0 for cost in costs) or not all(isinstance(one, str) for one in links):
        raise Wrong("its links are no map of names to costs")
    if not isinstance(add, dict) or not all(isinstance(k, str) and isinstance(v, bool) for k, v in add.items()):
        raise Wrong("its addresses are no map")
    if not isinstance(drop, list) or not all(isinstance(one, str) for one in drop):
        raise Wrong("the addresses that it drops are no list")
