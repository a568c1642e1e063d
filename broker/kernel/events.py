"""The events of a broker that its parts subscribe to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...amqp.ports import ConnectionEnd, TerminalEnd


class BrokerEvents:
    """Callbacks for connections, links, and the log. Core only.

    A part appends a callback to the list of an event. Callbacks run in the order in which they were added.
    """

    def __init__(self) -> None:
        self.connection_opened: list[Callable[[ConnectionEnd], None]] = []
        self.connection_closed: list[Callable[[object], None]] = []
        self.link_closed: list[Callable[[TerminalEnd], None]] = []
        self.durable: list[Callable[[], None]] = []
        """The durable LSN of the store has moved."""
        self.burials: list[Callable[[Any, Any, str, Callable[[int], None]], Callable[[int], None]]] = []
        """A message is moved off its queue: gets queue, entry, reason and continuation; returns the continuation."""
