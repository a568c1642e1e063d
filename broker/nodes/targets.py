"""The targets of addresses: a queue, an exchange with a key, or a passthrough address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeGuard

from ...amqp.codec import header
from ...amqp.ports import Fragment, Open, TerminalEnd
from ..queues.queue import Queue
from .exchanges import Exchange


class ExchangeTarget(NamedTuple):
    """An exchange, and the key in the address; empty if each message has its own key."""

    exchange: Exchange
    key: str = ""

    @property
    def name(self) -> str:
        """The name for access rules: the exchange, and behind a slash the key, if the address has one."""
        return f"{self.exchange.name}/{self.key}" if self.key else self.exchange.name

    def key_for(self, content: bytes) -> str:
        """Return the key of a message. Raise `Malformed`."""
        return self.key or (header.subject_of(content) if self.exchange.needs_key else "")


class PassthroughTarget(Protocol):
    """An address that messages pass through without being stored."""

    name: str


KeepingTarget = Queue | ExchangeTarget
"""A target that keeps messages, in a queue or through an exchange."""
AddressTarget = KeepingTarget | PassthroughTarget


def keeps_messages(target: object) -> TypeGuard[KeepingTarget]:
    """Return whether messages that are sent to *target* are kept."""
    return isinstance(target, KeepingTarget)


def owner_of(target: object) -> object | None:
    """Return the connection with which a target queue is deleted; None for other targets."""
    return target.owner if isinstance(target, Queue) else None


class Endpoint(Protocol):
    """A service on the core that clients reach by an address (router guide C18). Core only."""

    def open(self, attach: Open, terminal: TerminalEnd) -> None:
        """Open a client's link to or from the endpoint; answer with `opened` or `failure`."""

    def handle(self, fragments: Sequence[Fragment], terminal: TerminalEnd) -> None:
        """Process complete messages that another way delivered; settle each, and return its credit, by *terminal*."""
