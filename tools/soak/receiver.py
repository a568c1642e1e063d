"""The receivers of a soak: one that takes, releases and holds messages like a careless consumer, and one that drains.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from proton import Delivery, Link

from .client import SoakClient
from .history import Answered, Ended, Got, Settled
from .message import decode, decode_plain
from .wire import Settings, Wire


class SoakReceiver(SoakClient):
    """Takes most of what it gets, gives some back, and holds on to some. Links come and go."""

    held_most = 20
    manners: tuple[tuple[float, str, Any], ...] = (
        (0.88, "taken", Delivery.ACCEPTED),
        (0.90, "taken", Delivery.REJECTED),
        (0.94, "returned", Delivery.RELEASED),
        (0.96, "returned", Delivery.MODIFIED),
    )
    """Shares of the outcomes; the rest is held."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._decode = decode_plain if settings.plain else decode
        self._link_count = 0
        self._links: dict[str, Any] = {}
        self._held: list[Any] = []

    def connected(self, wire: Wire, flood: int) -> None:
        self._held = []
        self._links = {}
        for queue in self.queues:
            self.attach(wire, queue)

    def attach(self, wire: Wire, queue: str) -> Any:
        modes = (Link.RCV_FIRST,) if self.settings.plain else (Link.RCV_FIRST, Link.RCV_SECOND)
        link = self.new_link(wire, queue, self.random.choice(modes))
        link.prefetch = self.random.choice((1, 5, 50, 200))
        link.to_go = self.random.randrange(50, 1500)  # so many messages and it is replaced by a new one
        link.flow(link.prefetch)
        self._links[queue] = link
        return link

    def new_link(self, wire: Wire, queue: str, settle_mode: int) -> Any:
        """Open a link without credit. Its name is that of the session in the history."""
        self._link_count += 1
        link = wire.session.receiver(f"{self.name}/{wire.life}/{self._link_count}")
        link.source.address = self.settings.address_of(queue)
        self.ask_to_last(link.source)
        link.rcv_settle_mode = settle_mode
        link.queue, link.over, link.to_go = queue, False, 0
        link.open()
        return link

    def note(self, kind: type[Got | Answered | Settled], wire: Wire, link: Any, message: str, *more: Any) -> None:
        self.notebook.note(kind(message, link.queue, link.name, wire.life, time.monotonic_ns(), *more))

    def on_delivery(self, wire: Wire, delivery: Any) -> None:
        link = delivery.link
        if delivery.aborted:
            delivery.settle()
            return
        if link.over:
            return
        if delivery.readable:
            if not delivery.partial:
                raw = bytes(link.recv(delivery.pending) or b"")
                link.advance()
                self._got(wire, link, delivery, raw)
        elif delivery.settled and getattr(delivery, "message", None) is not None:
            if delivery.remote_state == delivery.local_state:
                self.note(Settled, wire, link, delivery.message)
            else:
                self.trouble(wire, f"{delivery.message}: {delivery.local_state} became {delivery.remote_state}")
            delivery.settle()

    def _got(self, wire: Wire, link: Any, delivery: Any, raw: bytes) -> None:
        message, digest, marked = self._decode(raw)
        delivery.size_bytes = len(raw)
        link.to_go -= 1
        self.note(Got, wire, link, message, digest, marked)
        drawn = self.random.random()
        for share, outcome, state in self.manners:
            if drawn < share and not (state == Delivery.MODIFIED and self.settings.plain):
                self.answer(wire, link, delivery, message, outcome, state)
                return
        delivery.held = message
        self._held.append(delivery)
        if len(self._held) > self.held_most:
            late = self._held.pop(self.random.randrange(len(self._held)))
            if not late.link.over:
                self.answer(wire, late.link, late, late.held, "taken", Delivery.ACCEPTED)

    def answer(self, wire: Wire, link: Any, delivery: Any, message: str, outcome: str, state: Any) -> None:
        self.note(Answered, wire, link, message, outcome)
        if state == Delivery.MODIFIED:
            delivery.local.failed = self.random.random() < 0.7
            delivery.local.undeliverable = self.random.random() < 0.2
        if outcome == "taken":
            self.taken += 1
            self.taken_bytes += delivery.size_bytes
        delivery.update(state)
        if outcome == "returned" or link.rcv_settle_mode == Link.RCV_FIRST:
            delivery.settle()
        else:
            delivery.message = message

    def turn(self, wire: Wire) -> None:
        for queue, link in list(self._links.items()):
            if link.credit * 2 <= link.prefetch:
                link.flow(link.prefetch - link.credit)
            if link.to_go <= 0:
                self.detach(wire, link)
                self.attach(wire, queue)
        if self.random.random() < 0.0005:
            for link in self._links.values():
                self._end(wire, link, lost=True)
            self.notebook.flush()
            self.drop(wire)
            self.connect(wire.port, wire.life)

    def detach(self, wire: Wire, link: Any) -> None:
        self._end(wire, link, lost=False)
        link.close()

    def session_closed(self, wire: Wire) -> None:
        for link in list(self._links.values()):
            self.link_closed(wire, link)

    def link_closed(self, wire: Wire, link: Any) -> None:
        queue = getattr(link, "queue", "")
        if link is not None and self._links.get(queue) is link:
            self._end(wire, link, lost=True)
            del self._links[queue]

    def _end(self, wire: Wire, link: Any, lost: bool) -> None:
        link.over = True
        self.notebook.note(Ended(link.queue, link.name, wire.life, time.monotonic_ns(), lost))


class Drain(SoakReceiver):
    """Takes everything there is, queue after queue, and ends once the broker has confirmed that."""

    manners = ((1.0, "taken", Delivery.ACCEPTED),)

    def connected(self, wire: Wire, flood: int) -> None:
        self._left = list(self.queues)
        self._next(wire)

    def drop(self, wire: Wire) -> None:
        super().drop(wire)
        if not self.done:
            sys.exit("the connection was lost")

    def _next(self, wire: Wire) -> None:
        if not self._left:
            wire.connection.close()
            self.done = True
            return
        mode = Link.RCV_FIRST if self.settings.plain else Link.RCV_SECOND
        self._link = self.new_link(wire, self._left.pop(0), mode)
        self._round()

    def wait_s(self) -> float:
        return self.settings.quiet_s / 4 or -1.0

    def _round(self) -> None:
        self._fresh = 0
        self._quiet_s = time.monotonic()
        if self.settings.quiet_s:
            self._link.flow(500 - self._link.credit)
        else:
            self._link.drain(500)

    def link_closed(self, wire: Wire, link: Any) -> None:
        sys.exit(f"{link.source.address} can't be emptied: {link.remote_condition}")

    def _got(self, wire: Wire, link: Any, delivery: Any, raw: bytes) -> None:
        self._fresh += 1
        super()._got(wire, link, delivery, raw)

    def turn(self, wire: Wire) -> None:
        link = self._link
        if link.queued or not link.state & Link.REMOTE_ACTIVE:
            return
        if self.settings.quiet_s:
            if self._fresh:
                self._round()
            if time.monotonic() - self._quiet_s < self.settings.quiet_s:
                return
        elif link.draining():
            return
        if self._fresh:
            self._round()
        elif not link.unsettled:
            self.detach(wire, link)
            self._next(wire)
