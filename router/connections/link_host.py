"""The connection, as the ends of its links use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ...amqp.engine.engine import Engine
from ...amqp.links.link import Link
from ..kernel.core import Core


class LinkHost(Protocol):
    """The connection that a link belongs to (`Terminal`)."""

    core: Core
    engine: Engine
    closed: bool

    def note(self, action: Callable[..., None], *args: Any) -> None:
        """Queue work for the worker of the connection. On the core."""

    def pump(self, link: Link) -> None:
        """Send the waiting messages of *link*."""

    def request(self, link: Link) -> None:
        """Report the client's credit to the driver."""
