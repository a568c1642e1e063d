"""Where an address leads: a queue, or an exchange with a key."""

from __future__ import annotations

from typing import NamedTuple

from ..amqp import header
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


Place = Queue | ExchangePlace
