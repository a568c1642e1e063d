"""Link routes: addresses whose links go on to another container, end to end (router guide C60).

A client's attach is asked of the other container as the client said it, and answered as that one answers. From then on
two links are one: what comes on the one goes out on the other, hop by hop and without a queue, see `routed`. Core only.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.errors import CairnError, StoreError
from ..channel.words import Attach, Open, TerminalEnd
from .access import BROWSE, RECEIVE
from .addresses import QUEUE_SCHEME, TOPIC_SCHEME
from .connectors import Done, behind_sql
from .finding import operation_of
from .places import ExchangePlace
from .queue import Queue
from .routed import Joint

if TYPE_CHECKING:
    from .broker import Broker

LINK_ROUTE = "link-route:"
"""The names of configurations that are link routes; the rest is the pattern."""
BOTH, OUT, IN = "both", "send", "receive"
DIRECTIONS = (BOTH, OUT, IN)


class LinkRoute(NamedTuple):
    """Which addresses, and where to."""

    pattern: str
    connector: str
    """Its name; it need not be there yet."""
    direction: str = BOTH
    """Whether clients `send`, or `receive`, or may do `both`."""
    prefix: str = ""
    """What the other container's addresses do not begin with, and these do."""
    kept: bool = False
    """Management made it."""

    def fits(self, address: str, *, to_client: bool) -> bool:
        return self.direction in (BOTH, IN if to_client else OUT) and fnmatchcase(address, self.pattern)


def parse(text: str) -> LinkRoute:
    """From `PATTERN=CONNECTOR[,send|receive][,strip=PREFIX]`. Raises `CairnError`."""
    pattern, sign, rest = text.partition("=")
    connector, *more = rest.split(",")
    direction, prefix = BOTH, ""
    for one in more:
        if one in DIRECTIONS:
            direction = one
        elif one.startswith("strip="):
            prefix = one.removeprefix("strip=")
        else:
            raise CairnError(f"--link-route {text}", f"{one!r} says nothing", _REMEDY)
    if not pattern or not sign or not connector:
        raise CairnError(f"--link-route {text}", "it names no pattern, or no connector", _REMEDY)
    return LinkRoute(pattern, connector, direction, prefix)


_REMEDY = "say PATTERN=CONNECTOR, and behind it ,send or ,receive or ,strip=PREFIX"


class LinkRoutes:
    """All of one broker. The first that fits is taken; those of the command line stand first."""

    def __init__(self, broker: Broker) -> None:
        self.all: tuple[LinkRoute, ...] = ()
        """Never changed, only replaced: any thread may look."""
        self.joints: set[Joint] = set()
        self._broker = broker

    def start(self, given: tuple[LinkRoute, ...]) -> None:
        """With those of the command line, and those that are kept."""
        kept = [
            LinkRoute(
                config.name.removeprefix(LINK_ROUTE),
                str(config.settings.get("connector", "")),
                str(config.settings.get("direction", BOTH)),
                str(config.settings.get("strip", "")),
                True,
            )
            for config in self._broker.store.configs()
            if config.name.startswith(LINK_ROUTE)
        ]
        self.all = (*given, *kept)

    def may_fit(self, address: str | None) -> bool:
        """Any thread."""
        return address is not None and any(fnmatchcase(address, route.pattern) for route in self.all)

    def find(self, address: str, *, to_client: bool) -> LinkRoute | None:
        return next((route for route in self.all if route.fits(address, to_client=to_client)), None)

    def take(self, wish: Open, terminal: TerminalEnd) -> bool:
        """Take that attach, if its address is one of theirs; a queue or an exchange that there is goes before them."""
        address = wish.terminus.address
        if not address or wish.terminus.dynamic or address.startswith(("$", QUEUE_SCHEME, TOPIC_SCHEME)):
            return False
        route = self.find(address, to_client=wish.to_client)
        if route is None or isinstance(self._broker.place_of(address), Queue | ExchangePlace):
            return False
        if why := self._broker.why_not(wish.user, operation_there(wish), address):
            terminal.failure("amqp:unauthorized-access", why)
        else:
            self._open(route, wish, terminal)
        return True

    def _open(self, route: LinkRoute, wish: Open, terminal: TerminalEnd) -> None:
        """A client's attach to an address of *route*."""
        connector = self._broker.connectors.by_name.get(route.connector)
        connection = None if connector is None else connector.connection
        if connector is None or connection is None or wish.attach is None:
            where = "which is not there" if connector is None else "which has no connection now"
            terminal.failure("amqp:not-found", f"that leads over the connector {route.connector!r}, {where}")
            return
        joint = Joint(self._broker, connector.name, route.prefix, wish, terminal, self.joints.discard)
        asked = _asked(route, wish)
        joint.begin(connection, asked._replace(name=self._free_name(asked.name, connector.name)))
        self.joints.add(joint)

    def _free_name(self, name: str, connector: str) -> str:
        """*name*, or with a number: a client may use it on several links, and two of one name end a connection."""
        taken = {joint.name for joint in self.joints if joint.connector == connector}
        if name not in taken:
            return name
        return next(found for number in count(2) if (found := f"{name}#{number}") not in taken)

    # ---- what management asks for ---------------------------------------------------------------------------------

    def create(self, route: LinkRoute, done: Done) -> None:
        if any(one.pattern == route.pattern for one in self.all):
            done(StoreError(f"link-route {route.pattern}", "there is one of that pattern", "delete it first"))
            return
        settings: Mapping[str, Any] = {
            "connector": route.connector, "direction": route.direction, "strip": route.prefix,
        }  # fmt: skip
        self._broker.store.create_config(
            LINK_ROUTE + route.pattern, settings, behind_sql(self._broker, done, lambda: self._with(route))
        )

    def delete(self, route: LinkRoute, done: Done) -> None:
        """Links that are there stay."""
        if route.kept:
            then = behind_sql(self._broker, done, lambda: self._without(route))
            self._broker.store.destroy_config(LINK_ROUTE + route.pattern, then)
        else:
            self._without(route)
            done(None)

    def _with(self, route: LinkRoute) -> None:
        self._without(route)
        self.all = (*self.all, route._replace(kept=True))

    def _without(self, route: LinkRoute) -> None:
        self.all = tuple(one for one in self.all if one.pattern != route.pattern)


def operation_there(wish: Open) -> str:
    """What a link over a route is to do, as access rules call it.

    Only the other container knows what stands there. Who asks for a copy of a topic, or for one that is shared or
    lasts, gets a subscription of it, and takes what comes to that.
    """
    operation, terminus = operation_of(wish), wish.terminus
    subscribes = terminus.lasts or not {"topic", "shared"}.isdisjoint(terminus.capabilities)
    return RECEIVE if operation == BROWSE and subscribes else operation


def _asked(route: LinkRoute, wish: Open) -> Attach:
    """What to ask the other container for. Its name is one for all clients of it: theirs, and who they are."""
    asked = wish.attach
    assert asked is not None
    end = asked.source if wish.to_client else asked.target
    address = (end.address or "").removeprefix(route.prefix) if route.prefix else end.address
    end = end._replace(address=address)
    name = f"{asked.name}@{wish.container}"
    return asked._replace(name=name, source=end) if wish.to_client else asked._replace(name=name, target=end)
