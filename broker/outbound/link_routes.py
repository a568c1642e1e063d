"""Link routes: addresses whose links continue at another container, end to end (router guide C60).

A client's attach is forwarded to the other container unchanged, and its answer is returned. Then the two links are a
`LinkPair`: messages of one are sent on the other, hop by hop and without a queue. Core only.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from itertools import count
from typing import Any, NamedTuple

from ...amqp.ports import Attach, Open, TerminalEnd
from ...base.errors import CairnError, StoreError
from ..links.context import LinkContext
from ..nodes.access_control import BROWSE, RECEIVE
from ..nodes.addresses import QUEUE_SCHEME, TOPIC_SCHEME
from ..nodes.registry import behind_sql
from ..nodes.resolver import operation_of
from ..nodes.targets import keeps_messages
from .connectors import Connectors, Done, remove_config
from .link_pair import LinkPair

LINK_ROUTE = "link-route:"
"""The names of configurations that are link routes; the rest is the pattern."""
BOTH, OUT, IN = "both", "send", "receive"
DIRECTIONS = (BOTH, OUT, IN)


class LinkRoute(NamedTuple):
    """The addresses of a route, and its connector."""

    pattern: str
    connector: str
    """The name of the connector of the route, which may not exist yet."""
    direction: str = BOTH
    """The direction of clients' links: `send`, `receive` or `both`."""
    prefix: str = ""
    """The prefix of these addresses that the other container's addresses lack."""
    kept: bool = False
    """True if management created the route."""

    def fits(self, address: str, *, to_client: bool) -> bool:
        return self.direction in (BOTH, IN if to_client else OUT) and fnmatchcase(address, self.pattern)


def parse(text: str) -> LinkRoute:
    """Parse `PATTERN=CONNECTOR[,send|receive][,strip=PREFIX]`. Raises `CairnError`."""
    pattern, sign, rest = text.partition("=")
    connector, *more = rest.split(",")
    direction, prefix = BOTH, ""
    for one in more:
        if one in DIRECTIONS:
            direction = one
        elif one.startswith("strip="):
            prefix = one.removeprefix("strip=")
        else:
            raise CairnError(f"--link-route {text}", f"unknown suffix {one!r}", _REMEDY)
    if not pattern or not sign or not connector:
        raise CairnError(f"--link-route {text}", "the pattern or the connector is missing", _REMEDY)
    return LinkRoute(pattern, connector, direction, prefix)


_REMEDY = "use PATTERN=CONNECTOR, followed by ,send or ,receive or ,strip=PREFIX"


class LinkRoutes:
    """The link routes of one broker. The first that fits is taken; those of the command line stand first."""

    def __init__(self, links: LinkContext, connectors: Connectors) -> None:
        self.all: tuple[LinkRoute, ...] = ()
        """The routes in order. The tuple is only replaced, never changed: any thread may read it."""
        self.pairs: set[LinkPair] = set()
        self._links = links
        self._core = links.core
        self._connectors = connectors
        self._resolver = links.resolver

    def start(self, given: tuple[LinkRoute, ...]) -> None:
        """Start the link routes of the command line and the stored ones."""
        kept = [
            LinkRoute(
                config.name.removeprefix(LINK_ROUTE),
                str(config.settings.get("connector", "")),
                str(config.settings.get("direction", BOTH)),
                str(config.settings.get("strip", "")),
                True,
            )
            for config in self._core.store.configs()
            if config.name.startswith(LINK_ROUTE)
        ]
        self.all = (*given, *kept)

    def may_fit(self, address: str) -> bool:
        """Return whether a link to that address may match a route. Any thread."""
        return any(fnmatchcase(address, route.pattern) for route in self.all)

    def find(self, address: str, *, to_client: bool) -> LinkRoute | None:
        return next((route for route in self.all if route.fits(address, to_client=to_client)), None)

    def take(self, attach: Open, terminal: TerminalEnd) -> bool:
        """Take an attach whose address matches a route, unless a queue or an exchange has that name."""
        address = attach.terminus.address
        if not address or attach.attach is None or attach.terminus.dynamic:
            return False
        if address.startswith(("$", QUEUE_SCHEME, TOPIC_SCHEME)):
            return False
        route = self.find(address, to_client=attach.to_client)
        if route is None or keeps_messages(self._resolver.place_of(address)):
            return False
        if reason := self._resolver.denial_reason(attach.user, operation_there(attach), address):
            terminal.failure("amqp:unauthorized-access", reason)
        else:
            self._open(route, attach, terminal)
        return True

    def _open(self, route: LinkRoute, attach: Open, terminal: TerminalEnd) -> None:
        """Open a client's attach to an address of *route*."""
        connector = self._connectors.by_name.get(route.connector)
        connection = None if connector is None else connector.connection
        if connector is None or connection is None or attach.attach is None:
            where = "which does not exist; create it" if connector is None else "which has no connection now; try again"
            terminal.failure("amqp:not-found", f"that leads over the connector {route.connector!r}, {where}")
            return
        pair = LinkPair(self._links, connector.name, route.prefix, attach, terminal, self.pairs.discard)
        asked = _asked(route, attach)
        pair.begin(connection, asked._replace(name=self._free_name(asked.name, connector.name)))
        self.pairs.add(pair)

    def _free_name(self, name: str, connector: str) -> str:
        """*name*, or with a number: a client may use it on several links, and two of one name end a connection."""
        taken = {pair.name for pair in self.pairs if pair.connector == connector}
        if name not in taken:
            return name
        return next(found for number in count(2) if (found := f"{name}#{number}") not in taken)

    def create(self, route: LinkRoute, done: Done) -> None:
        if any(one.pattern == route.pattern for one in self.all):
            done(StoreError(f"link-route {route.pattern}", "there is one of that pattern", "delete it first"))
            return
        settings: Mapping[str, Any] = {
            "connector": route.connector, "direction": route.direction, "strip": route.prefix,
        }  # fmt: skip
        self._core.store.create_config(
            LINK_ROUTE + route.pattern, settings, behind_sql(self._core.post, done, lambda: self._with(route))
        )

    def delete(self, route: LinkRoute, done: Done) -> None:
        """Remove a route; existing links stay open."""
        remove_config(self._core, LINK_ROUTE + route.pattern, route.kept, done, lambda: self._without(route))

    def _with(self, route: LinkRoute) -> None:
        self._without(route)
        self.all = (*self.all, route._replace(kept=True))

    def _without(self, route: LinkRoute) -> None:
        self.all = tuple(one for one in self.all if one.pattern != route.pattern)


def operation_there(attach: Open) -> str:
    """Return the operation of a link over a route, as access rules name it.

    Only the other container knows the node at that address. A request for a copy of a topic, or for a shared or durable
    link, creates a subscription there, and consumes its messages.
    """
    operation, terminus = operation_of(attach), attach.terminus
    subscribes = terminus.lasts or not {"topic", "shared"}.isdisjoint(terminus.capabilities)
    return RECEIVE if operation == BROWSE and subscribes else operation


def _asked(route: LinkRoute, attach: Open) -> Attach:
    """Return the attach for the other container.

    All clients of it share one connection, so that the name of the link has the client's user and container ID in it:
    a link that resumes, or a durable subscription, is never found by another user.
    """
    asked = attach.attach
    assert asked is not None
    end = asked.source if attach.to_client else asked.target
    address = (end.address or "").removeprefix(route.prefix) if route.prefix else end.address
    end = end._replace(address=address)
    name = f"{_escaped(asked.name)}@{_escaped(attach.container)}"
    if attach.user:
        name = f"{_escaped(attach.user)}/{name}"
    return asked._replace(name=name, source=end) if attach.to_client else asked._replace(name=name, target=end)


def _escaped(part: str) -> str:
    """Return *name* as a part of a link's name, without separators; `|` stays, as JMS clients number links by it."""
    return part.replace("%", "%25").replace("/", "%2F").replace("@", "%40")
