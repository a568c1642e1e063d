"""Attaches links: selects the feature that opens a link, by its address and by the client's request."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from uuid import uuid4

from ...amqp.codec import filters
from ...amqp.codec.primitives import Malformed
from ...amqp.ports import Open, TerminalEnd
from ..kernel.connections import Connections
from ..nodes import lifetimes
from ..nodes.access_control import CREATE, RECEIVE, SEND
from ..nodes.addresses import DYNAMIC_PREFIX, is_topic
from ..nodes.owned_nodes import OwnedNodes
from ..nodes.resolver import operation_of
from ..nodes.targets import AddressTarget
from ..selector.background_compiler import Compiler
from ..selector.compiler import Selector, SelectorError
from .context import LinkContext
from .handlers import LinkHandlers


class LinkOpener:
    """Opens the links of one broker. Core only."""

    def __init__(
        self,
        links: LinkContext,
        connections: Connections,
        compiler: Compiler,
        owned: OwnedNodes,
        give_up: Callable[[Open], None],
        handlers: LinkHandlers,
    ) -> None:
        """*give_up*: deletes the state of a link that its client attaches without resuming it."""
        self._core = links.core
        self._members = links.members
        self._resolver = links.resolver
        self._connections = connections
        self._compiler = compiler
        self._owned = owned
        self._give_up = give_up
        self._handlers = handlers
        self._compiling: dict[TerminalEnd, None] = {}
        """Links whose selectors are being compiled."""
        links.core.events.link_closed.append(self._link_closed)

    def open(self, attach: Open, terminal: TerminalEnd) -> None:
        """Open a link, perhaps later: answer *terminal* with a driver, or with the reason why it has none."""
        account = self._core.users.of(attach.user)
        denial = account.link_denial()
        if self._connections.link_came(attach, terminal):
            account.links += 1
        if denial is not None:
            terminal.failure("amqp:resource-limit-exceeded", str(denial))
            return
        if self._core.acquisitions is not None:
            self._core.acquisitions.link_came(attach, terminal)
        if denial_reason := self._members.not_serving_reason():
            terminal.failure("amqp:connection:forced", denial_reason)
            return
        if attach.claims is None:
            self._give_up(attach)
        if not any(claim(attach, terminal) for claim in self._handlers.claims):
            self._compile(attach, terminal)

    def open_at(self, place: AddressTarget, attach: Open, terminal: TerminalEnd) -> None:
        """Open a link of the broker's own, which may do everything."""
        if self._core.acquisitions is not None:
            self._core.acquisitions.link_came(attach, terminal)
        self._handlers.open_at_target(place, attach, terminal)

    def _link_closed(self, terminal: TerminalEnd) -> None:
        """Forget a link that is closed, perhaps before it was opened."""
        self._compiling.pop(terminal, None)

    def _compile(self, attach: Open, terminal: TerminalEnd) -> None:
        """Compile the selector of a link, if it has one, and continue."""
        try:
            text = filters.parse(attach.terminus.filters).selector
            lifetimes.asked_for(attach.terminus.properties)
        except Malformed as error:
            terminal.failure("amqp:invalid-field", str(error))
            return
        if text is None:
            self._go_on(attach, terminal)
        elif too_long := self._compiler.too_long(text):
            terminal.failure("amqp:resource-limit-exceeded", too_long)
        else:
            self._compiling[terminal] = None
            self._compiler.compile(text, attach.user or attach.connection, partial(self._compiled, attach, terminal))

    def _compiled(self, attach: Open, terminal: TerminalEnd, found: Selector | SelectorError) -> None:
        is_closed = terminal not in self._compiling
        self._compiling.pop(terminal, None)
        if is_closed and (attach.terminus.dynamic or not attach.terminus.lasts):
            return
        if isinstance(found, SelectorError):
            terminal.failure("amqp:invalid-field", str(found))
        else:
            self._go_on(attach, terminal)

    def _go_on(self, attach: Open, terminal: TerminalEnd) -> None:
        """Open a link whose selector is compiled, if it has one."""
        terminus, address, handlers = attach.terminus, attach.terminus.address, self._handlers
        if terminus.dynamic:
            self._open_dynamic(attach, terminal)
        elif address is None:
            self._open_without_address(attach, terminal)
        elif (endpoint := handlers.endpoints.get(address)) is not None:
            if reason := self._resolver.denial_reason(attach.user, RECEIVE if attach.to_client else SEND, address):
                terminal.failure("amqp:unauthorized-access", reason)
            else:
                endpoint.open(attach, terminal)
        elif (handler := handlers.for_prefix(address)) is not None:
            handler(attach, terminal)
        else:
            self._resolver.find(
                address,
                self._resolver.or_refuse(terminal, lambda found: handlers.open_at_target(found, attach, terminal)),
                terminus.capabilities,
                user=attach.user,
                operation=operation_of(attach),
                connection=attach.connection,
                may_create=attach.may_create,
            )

    def _open_without_address(self, attach: Open, terminal: TerminalEnd) -> None:
        if not attach.to_client and attach.terminus.absent:
            reason = "the attach has no target; the anonymous relay is a target without an address"
            terminal.failure("amqp:invalid-field", reason)
        elif not attach.to_client:
            self._handlers.relay(attach, terminal)
        elif attach.terminus.absent:
            self._handlers.without_source(attach, terminal)
        else:
            terminal.failure("amqp:invalid-field", "a source needs an address, or to be dynamic")

    def _open_dynamic(self, attach: Open, terminal: TerminalEnd) -> None:
        """Make a node for a link, and open the link on it."""
        name = f"{DYNAMIC_PREFIX}{uuid4()}"
        if reason := self._resolver.denial_reason(attach.user, CREATE, name):
            terminal.failure("amqp:unauthorized-access", reason)
        elif (denial := self._core.users.of(attach.user).queue_denial()) is not None:
            terminal.failure("amqp:resource-limit-exceeded", str(denial))
        elif not is_topic(attach.terminus.capabilities):
            self._handlers.open_at_target(self._owned.make_queue(name, attach), attach, terminal)
        elif lifetimes.asked_for(attach.terminus.properties) == lifetimes.CLOSE:
            self._handlers.open_at_target(self._owned.make_topic(name, attach), attach, terminal)
        else:
            terminal.failure("amqp:not-implemented", "a dynamic topic is deleted with its link; use delete-on-close")
