"""The handlers that open links, which features register. Core only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...amqp.ports import Open, TerminalEnd
from ..nodes.targets import Endpoint

Handler = Callable[[Open, TerminalEnd], None]
"""Opens a link, or refuses it."""
Claim = Callable[[Open, TerminalEnd], bool]
"""Opens or refuses a link if it belongs to the feature; returns whether it did."""
TargetHandler = Callable[[Any, Open, TerminalEnd], None]
"""Opens a link to or from the target that its address leads to."""


class LinkHandlers:
    """The handlers of links: by their wish, by their address, and by the target that it leads to.

    1. `claims` are asked in turn, before the address is looked at.
    2. `without_source` and `relay` open links without an address: of receivers and of senders.
    3. `endpoints` and `prefixes` open links to addresses of the broker's own.
    4. `targets` open all others, by the type of the target.
    """

    relay: Handler
    """Opens a link of a sender without an address. A feature registers it."""

    def __init__(self, endpoints: Mapping[str, Endpoint], without_source: Handler) -> None:
        """*endpoints*: by address. No queue is made for these: they begin with a dollar."""
        self.claims: list[Claim] = []
        self.without_source = without_source
        self.endpoints = endpoints
        self.prefixes: dict[str, Handler] = {}
        """Handlers by the beginning of the address."""
        self.targets: dict[type, TargetHandler] = {}

    def for_prefix(self, address: str) -> Handler | None:
        """Return the handler of addresses that begin like *address*."""
        return next((handler for prefix, handler in self.prefixes.items() if address.startswith(prefix)), None)

    def open_at_target(self, target: object, attach: Open, terminal: TerminalEnd) -> None:
        """Open a link to or from *target*."""
        next(handler for kind, handler in self.targets.items() if isinstance(target, kind))(target, attach, terminal)
