"""Consumers and browsers, as a queue sees them."""

from __future__ import annotations

from typing import Protocol

from ..channel.words import TerminalEnd
from .entry import Entry


class Told(Protocol):
    """Who is told that the queue is gone."""

    def failure(self, condition: str, description: str) -> None: ...


class Taker(Protocol):
    """A consumer, as the queue sees it."""

    unsettled: dict[Entry, None]

    @property
    def terminal(self) -> Told: ...

    def room(self) -> int:
        """How many messages it wants now."""
        ...

    def take(self, entries: list[Entry]) -> None:
        """These are its own now."""
        ...

    def handed_out(self) -> None:
        """For one in `Queue.draining`: what there is was handed out, or is being read."""
        ...


class Holder(Protocol):
    """Who has messages, as the queue sees it."""

    unsettled: dict[Entry, None]


class Looker(Protocol):
    """A browser, as the queue sees it."""

    terminal: TerminalEnd

    def look(self) -> None:
        """There may be something new to see."""
        ...


class Selecting(Looker, Protocol):
    """A consumer that takes only some of the messages, from wherever they stand."""

    unsettled: dict[Entry, None]

    def look_again(self, entry: Entry) -> None:
        """A message came back."""
        ...
