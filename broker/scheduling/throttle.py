"""Throttles of senders that wait for room, or for their turn.

A throttle keeps the credit that its senders do not get back, and holds their links: messages in flight on a held link
stay in its session's window, and the client waits. No message is lost or rejected. Core only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...amqp.ports import TerminalEnd


class Throttle:
    """The senders that wait for one reason."""

    def __init__(self, throttles: Throttles) -> None:
        self._throttles = throttles
        self._credit: dict[TerminalEnd, int] = {}
        self._held: dict[TerminalEnd, None] = {}

    def __len__(self) -> int:
        return len(self._credit.keys() | self._held.keys())

    def withhold(self, terminal: TerminalEnd, credit: int) -> None:
        """Keep *credit* that a sender would get back."""
        self._credit[terminal] = self._credit.get(terminal, 0) + credit
        self._throttles.note(terminal, self)

    def hold(self, terminals: Iterable[TerminalEnd]) -> None:
        """Stop reading from *terminals*."""
        for terminal in terminals:
            if terminal not in self._held:
                self._held[terminal] = None
                self._throttles.note(terminal, self)
                terminal.hold()

    def release(self) -> None:
        """Release all links, and grant them the credit that was kept."""
        held, self._held = self._held, {}
        credits, self._credit = self._credit, {}
        for terminal in held:
            self._throttles.forget(terminal, self)
            terminal.go_on()
        for terminal, credit in credits.items():
            self._throttles.forget(terminal, self)
            terminal.grant(credit)

    def release_some(self, take: Callable[[int], int]) -> None:
        """Grant kept credit, as far as *take* allows, to the senders that wait longest first."""
        while self._credit:
            terminal = next(iter(self._credit))
            kept = self._credit.pop(terminal)
            credit = take(kept)
            if credit:
                terminal.grant(credit)
            if credit == kept:
                continue
            if credit:  # the others first
                self._credit[terminal] = kept - credit
            else:
                self._credit = {terminal: kept, **self._credit}
            return

    def forget(self, terminal: TerminalEnd) -> None:
        """Drop a closed link and the credit that was kept from it."""
        self._credit.pop(terminal, None)
        self._held.pop(terminal, None)


class Throttles:
    """All throttles of a broker, by the links that wait in them."""

    def __init__(self) -> None:
        self._of: dict[TerminalEnd, dict[Throttle, None]] = {}

    def note(self, terminal: TerminalEnd, throttle: Throttle) -> None:
        self._of.setdefault(terminal, {})[throttle] = None

    def forget(self, terminal: TerminalEnd, throttle: Throttle) -> None:
        """Forget that *terminal* waits in *throttle*, which has released it."""
        self._of.get(terminal, {}).pop(throttle, None)

    def link_closed(self, terminal: TerminalEnd) -> None:
        for throttle in self._of.pop(terminal, ()):
            throttle.forget(terminal)
