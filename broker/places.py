"""Where an address leads: a queue, an exchange with a key, or straight on to receivers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ..amqp import header
from ..channel.words import Fragment, Open, TerminalEnd
from .direct import Direct
from .exchange import Exchange
from .queue import Queue


class ExchangePlace(NamedTuple):
    """An exchange, and the key for it that the address has; empty if it is for each message to say."""

    exchange: Exchange
    key: str = ""

    @property
    def name(self) -> str:
        """What access rules call it: the exchange's name, and behind a slash the key, if the address has one."""
        return f"{self.exchange.name}/{self.key}" if self.key else self.exchange.name

    def key_for(self, content: bytes) -> str:
        """The key of that message. Raises `Malformed`."""
        return self.key or (header.subject_of(content) if self.exchange.needs_key else "")


Place = Queue | ExchangePlace | Direct


class Endpoint(Protocol):
    """Something on the core itself that clients reach by an address (router guide C18). Core only."""

    def open(self, wish: Open, terminal: TerminalEnd) -> None:
        """A client's link to it, or from it: answered by `opened` or `failure`."""
        ...

    def post(self, fragments: Sequence[Fragment], terminal: TerminalEnd) -> None:
        """Whole messages that came another way: each is settled, and gives back its credit, by *terminal*."""
        ...
