"""What addresses mean to a broker, who may use them, and what is made for them on first use. Core only, but for
`why_not` and `why_not_in`, which any thread may ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

from ..base.errors import CairnError, DiskFull, SqlDenied, SqlReadOnly, SqlUnreachable
from ..channel.words import Open
from . import addresses
from .access import BROWSE, CONNECT, CREATE, RECEIVE, SEND, Access, Forbidden
from .addresses import Kind
from .direct import DirectAddresses
from .exchange import Exchange
from .nodes import MAX_NAME_BYTES, CopyLocked, Nodes
from .places import ExchangePlace, Place
from .queue import Queue
from .subscriptions import NAME_PREFIX as SUBSCRIPTION_PREFIX

DYNAMIC_PREFIX = "dynamic-"
"""Of names the broker gives. None is made on first use: a reply that comes too late must not leave a queue behind."""


def operation_of(wish: Open) -> str:
    """What a link is to do, by what its client says; where that is a subscription, see `Finding.why_not_used`."""
    return SEND if not wish.to_client else BROWSE if wish.terminus.browse else RECEIVE


class Finding:
    """The broker, as far as it finds."""

    nodes: Nodes

    def __init__(self, access: Access | None, direct: DirectAddresses, auto_create: Sequence[str]) -> None:
        self.access = access
        self.direct = direct
        self._auto_create = tuple(auto_create)

    def place_of(self, address: str, capabilities: Iterable[str] = ()) -> Place | None:
        """Where *address* leads; None if there is nothing yet."""
        kind, name = asked = addresses.parse(address, capabilities)
        nodes = self.nodes
        if name.startswith("$"):  # the broker's own
            return None
        if kind is not Kind.TOPIC:
            queue = nodes.queues.get(name)
            if queue is not None or kind is Kind.QUEUE:
                return None if queue is None or queue.going else queue
        exchange = nodes.exchanges.get(name)
        if exchange is not None:
            return ExchangePlace(exchange)
        exchange = nodes.exchanges.get(asked.exchange) if asked.key else None
        if exchange is not None:
            return ExchangePlace(exchange, asked.key)
        if kind is not Kind.TOPIC:
            return self.direct.find(name)
        was_made = name.startswith(DYNAMIC_PREFIX)  # and is gone: nobody subscribes to it any more
        return None if was_made else ExchangePlace(nodes.exchanges[addresses.TOPICS], name)

    def find(
        self,
        address: str,
        then: Callable[[Place | Exception], None],
        capabilities: Iterable[str] = (),
        *,
        user: str = "",
        operation: str = SEND,
        connection: object = None,
    ) -> None:
        """What *address* means, made if need be and allowed; *then* gets it or why not, perhaps later.

        *operation*: what *user* wants there, over *connection*.
        """
        place = self.place_of(address, capabilities)
        name = addresses.parse(address, capabilities).name if place is None else place.name
        if self.access is not None or operation != SEND:
            why = self.why_not_used(place, name, user, operation, connection)
            if not why and place is None:
                why = self.why_not(user, CREATE, name)
            if why:
                then(Forbidden(why))
                return
        self._find(place, name, then)

    def find_for_itself(self, address: str, then: Callable[[Place | Exception], None]) -> None:
        """The same for the broker, which may do everything: whoever named the address was asked then."""
        place = self.place_of(address)
        self._find(place, addresses.parse(address).name, then)

    def _find(self, place: Place | None, name: str, then: Callable[[Place | Exception], None]) -> None:
        reason = "" if place is not None else self._why_not_created(name)
        if name in self.nodes.copies and not isinstance(place, Queue | ExchangePlace):
            then(CopyLocked(name))
        elif place is not None:
            then(place)
        elif reason:
            then(LookupError(reason))
        else:
            self.nodes.create_queue(name, self.nodes.template_for(name), then)

    def why_not_in(self, user: str) -> str:
        return self.why_not(user, CONNECT)

    def why_not(self, user: str, operation: str, name: str = "") -> str:
        """Why *user* may not do *operation* on *name*; empty if they may. Any thread."""
        return "" if self.access is None else self.access.why_not(user, operation, name)

    def why_not_used(self, place: Place | None, name: str, user: str, operation: str, connection: object) -> str:
        """As `why_not`. What a connection made for itself is its own, and to read from, nobody else's (A14).

        Nobody browses an exchange: a client that wants a copy, as JMS has it, takes all from a queue of its own.
        """
        if operation == BROWSE and isinstance(place, ExchangePlace):
            operation = RECEIVE
        node = place.exchange if isinstance(place, ExchangePlace) else place
        if isinstance(node, Queue | Exchange) and node.owner is not None:
            if node.owner is connection:
                return ""
            if operation != SEND and node.private:
                return f"{name!r} belongs to another connection"
        return self.why_not(user, operation, name)

    def _why_not_created(self, address: str) -> str:
        wanted = any(fnmatchcase(address, pattern) for pattern in self._auto_create)
        if not wanted or address.startswith(("$", DYNAMIC_PREFIX, SUBSCRIPTION_PREFIX)):
            shown = address if len(address) <= 80 else address[:80] + "..."
            return f"there is no queue {shown!r}, and none is made for it"
        if not address or len(address.encode()) > MAX_NAME_BYTES:
            return f"a queue's name has 1 to {MAX_NAME_BYTES} bytes, this one has {len(address.encode())}"
        return ""

    def why_not_made(self, error: Exception) -> tuple[str, str]:
        """The AMQP error for a queue that could not be made, and why."""
        if isinstance(error, Forbidden):
            return "amqp:unauthorized-access", str(error)
        if isinstance(error, CopyLocked):
            return "amqp:not-allowed", str(error)
        if isinstance(error, DiskFull):
            return "amqp:resource-limit-exceeded", str(error)
        if isinstance(error, SqlUnreachable | SqlDenied | SqlReadOnly):  # where the server is, is nobody's business
            return "amqp:internal-error", "no queue can be made just now; the broker's log says why"
        return "amqp:internal-error", str(error) if isinstance(error, CairnError) else "see the broker's log"
