"""Resolution of addresses to targets, with access checks and queues that are created on first use.

Core only, except `denial_reason`, `denial_reason_in` and `is_manager`, which any thread may call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Protocol, TypeVar

from ...amqp.ports import Open, TerminalEnd
from ...base.errors import CairnError, DiskFull, QuotaExceeded, SqlDenied, SqlReadOnly, SqlUnreachable
from ..queues.queue import Queue
from ..users.user_accounts import UserAccounts
from . import addresses
from .access_control import BROWSE, CONNECT, CREATE, MANAGE, RECEIVE, SEND, Access, Forbidden
from .addresses import DYNAMIC_PREFIX, SUBSCRIPTION_PREFIX, AddressKind
from .exchanges import Exchange
from .registry import MAX_NAME_BYTES, Arguments, CopyLocked, Done, NodeRegistry
from .targets import AddressTarget, ExchangeTarget, PassthroughTarget

_Found = TypeVar("_Found")


def operation_of(attach: Open) -> str:
    """Return the operation that a link needs a right for; of a subscription, see `Resolver.use_denial_reason`."""
    return SEND if not attach.to_client else BROWSE if attach.terminus.browse else RECEIVE


class PassthroughAddresses(Protocol):
    """The addresses that messages pass through without being stored."""

    def find(self, name: str) -> PassthroughTarget | None:
        """Return the address of that name, if it is one of them."""


class Resolver:
    """Finds the targets of addresses, and creates queues on first use."""

    def __init__(
        self,
        nodes: NodeRegistry,
        users: UserAccounts,
        access: Access | None,
        passthrough: PassthroughAddresses,
        auto_create: Sequence[str],
    ) -> None:
        """*auto_create*: patterns of names for which a durable queue is created on first use."""
        self.nodes = nodes
        self.access = access
        """The access rules; None allows everything to all users."""
        self.reloads = 0
        """The number of replacements of `access`."""
        self._users = users
        self._passthrough = passthrough
        self.auto_create = tuple(auto_create)

    def place_of(self, address: str, capabilities: Iterable[str] = ()) -> AddressTarget | None:
        """Return the target of *address*, or None if it does not exist yet."""
        kind, name, _ = asked = addresses.parse(address, capabilities)
        nodes = self.nodes
        if name.startswith("$"):  # the broker's own
            return None
        if kind is AddressKind.EXCHANGE:
            exchange = nodes.exchanges.get(asked.exchange)
            return None if exchange is None else ExchangeTarget(exchange, asked.key)
        if kind is not AddressKind.TOPIC:
            queue = nodes.queues.get(name)
            if queue is not None or kind is AddressKind.QUEUE:
                return None if queue is None or queue.is_deleting else queue
        exchange = nodes.exchanges.get(name)
        if exchange is not None:
            return ExchangeTarget(exchange)
        exchange = nodes.exchanges.get(asked.exchange) if asked.key else None
        if exchange is not None:
            return ExchangeTarget(exchange, asked.key)
        if kind is not AddressKind.TOPIC:
            return self._passthrough.find(name)
        was_made = name.startswith(DYNAMIC_PREFIX)  # and was deleted: it has no subscribers any more
        return None if was_made else ExchangeTarget(nodes.exchanges[addresses.TOPICS], name)

    def find(
        self,
        address: str,
        then: Callable[[AddressTarget | Exception], None],
        capabilities: Iterable[str] = (),
        *,
        user: str = "",
        operation: str = SEND,
        connection: object = None,
        may_create: bool = True,
    ) -> None:
        """Find the target of *address*, or create it if allowed; *then* gets the target or an error, perhaps later.

        *operation*: the operation that *user* requests there, over *connection*. *may_create*: False for a
        `LookupError` where a queue would be created.
        """
        place = self.place_of(address, capabilities)
        asked = addresses.parse(address, capabilities)
        name = asked.name if place is None else place.name
        if self.access is not None or operation != SEND:
            reason = self.use_denial_reason(place, name, user, operation, connection)
            if not reason and place is None and may_create:
                reason = self.denial_reason(user, CREATE, name)
            if reason:
                then(Forbidden(reason))
                return
        self._find(place, name, then, user, flaw=addresses.flaw(address, asked), may_create=may_create)

    def find_for_itself(self, address: str, then: Callable[[AddressTarget | Exception], None]) -> None:
        """Find, or create, the target of *address* with the rights of the broker itself."""
        place = self.place_of(address)
        asked = addresses.parse(address)
        self._find(place, asked.name, then, flaw=addresses.flaw(address, asked))

    def create_queue(self, user: str, name: str, arguments: Arguments, done: Done[Queue]) -> None:
        """Create a durable queue that *user* owns, or find the existing one.

        Fails with `QuotaExceeded` if the user may not have another one.
        """
        users = self._users
        account = users.of(user)
        denial = None if name in self.nodes.queues else account.queue_denial()
        if denial is not None:
            done(denial)
        else:
            self.nodes.create_queue(name, users.owned(arguments, user), account.counted_until_made(done))

    def _find(
        self, place: AddressTarget | None, name: str, then: Callable[[AddressTarget | Exception], None],
        user: str = "", *, flaw: str = "", may_create: bool = True,
    ) -> None:  # fmt: skip
        reason = "" if place is not None else flaw or self._creation_denial_reason(name, may_create=may_create)
        if name in self.nodes.copies and not isinstance(place, Queue | ExchangeTarget):
            then(CopyLocked(name))
        elif place is not None:
            then(place)
        elif reason:
            then(LookupError(reason))
        else:
            self.create_queue(user, name, self.nodes.template_for(name), then)

    def is_manager(self, user: str) -> bool:
        return self.access is not None and self.access.allows_on_all(user, MANAGE)

    def denial_reason_in(self, user: str) -> str:
        return self.denial_reason(user, CONNECT)

    def denial_reason(self, user: str, operation: str, name: str = "", *, pattern: bool = False) -> str:
        """Return why *user* may not do that, empty if they may; without access rules, all is allowed. Any thread."""
        return "" if self.access is None else self.access.denial_reason(user, operation, name, pattern=pattern)

    def use_denial_reason(
        self, place: AddressTarget | None, name: str, user: str, operation: str, connection: object
    ) -> str:
        """Return why a link may not do that, empty if it may. Nodes made for a connection are its own to read (A14).

        Exchanges cannot be browsed: a client that wants a copy, as in JMS, consumes from a queue of its own.
        """
        if operation == BROWSE and isinstance(place, ExchangeTarget):
            operation = RECEIVE
        node = place.exchange if isinstance(place, ExchangeTarget) else place
        if isinstance(node, Queue | Exchange) and node.owner is not None:
            if node.owner is connection:
                return ""
            if operation != SEND and node.private:
                return f"{name!r} belongs to another connection"
        return self.denial_reason(user, operation, name)

    def _creation_denial_reason(self, address: str, *, may_create: bool) -> str:
        shown = address if len(address) <= 80 else address[:80] + "..."
        if not may_create:
            return f"there is no queue or exchange {shown!r}"
        wanted = any(fnmatchcase(address, pattern) for pattern in self.auto_create)
        if not wanted or address.startswith(("$", DYNAMIC_PREFIX, SUBSCRIPTION_PREFIX)):
            return f"there is no queue {shown!r}, and it is not created automatically"
        if not address or len(address.encode()) > MAX_NAME_BYTES:
            return f"a queue's name has 1 to {MAX_NAME_BYTES} bytes, this one has {len(address.encode())}"
        return ""

    def or_refuse(self, terminal: TerminalEnd, then: Callable[[_Found], None]) -> Callable[[_Found | Exception], None]:
        """Return a callback for a node that was found or created: *then* gets it, or an error closes the link."""

        def answered(found: _Found | Exception) -> None:
            if isinstance(found, Exception):
                terminal.failure(*self.creation_failure(found))
            else:
                then(found)

        return answered

    def creation_failure(self, error: Exception) -> tuple[str, str]:
        """Return the AMQP error for a node that was not found or could not be created, with the reason."""
        if isinstance(error, LookupError):
            return "amqp:not-found", str(error.args[0])
        if isinstance(error, Forbidden):
            return "amqp:unauthorized-access", str(error)
        if isinstance(error, CopyLocked):
            return "amqp:not-allowed", str(error)
        if isinstance(error, DiskFull | QuotaExceeded):
            return "amqp:resource-limit-exceeded", str(error)
        if isinstance(error, SqlUnreachable | SqlDenied | SqlReadOnly):  # it names the server
            return "amqp:internal-error", "a queue can't be created now; see the broker's log"
        return "amqp:internal-error", str(error) if isinstance(error, CairnError) else "see the broker's log"
