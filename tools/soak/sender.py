"""The sender of a soak: each message once, in all sizes, and what became of it."""

from __future__ import annotations

import time
from typing import Any

from proton import Delivery

from .client import RELAYED, SoakClient
from .history import Confirmed, Refused, Sent
from .message import encode, encode_plain
from .wire import Settings, Wire


class Sender(SoakClient):
    """Sends each message once, regardless of its outcome; numbers continue over connections."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._numbers = dict.fromkeys(self.queues, 0)
        self._unsettled: dict[Any, int] = {}
        self._links: list[tuple[str, Any]] = []
        self._window = self._budget = self._flood = 0
        self._due = 0.0
        self._due_s = time.monotonic()

    def wait_s(self) -> float:
        return 0.05 if self.settings.rate_per_s else -1.0

    def allowed(self) -> int:
        """The number of messages that the rate allows now."""
        rate = self.settings.rate_per_s
        if not rate or self._flood:
            return 1 << 30
        now_s = time.monotonic()
        self._due = min(self._due + (now_s - self._due_s) * rate, rate)
        self._due_s = now_s
        return int(self._due)

    def connected(self, wire: Wire, flood: int) -> None:
        random = self.random
        self._unsettled, self._links, self._flood = {}, [], flood
        # for a while so many are under way at once, then few: the broker is never idle, its queues never run over
        self._window = 1000 if flood else random.choice((2, 8, 64, 1000))
        self._budget = flood or random.randrange(50, 800)
        for queue in self.queues:
            link = wire.session.sender(f"{self.name}>{queue}")
            if queue != RELAYED:
                link.target.address = self.settings.address_of(queue)
            self.ask_to_last(link.target)
            link.open()
            self._unsettled[link] = 0
            self._links.append((queue, link))

    def turn(self, wire: Wire) -> None:
        self.random.shuffle(self._links)
        for queue, link in self._links:
            window = self._window if self._budget > 0 else 2
            # a batch at a time, so that answers are read in between
            room = min(link.credit, window - self._unsettled[link], 40, self.allowed())
            for _ in range(room):
                self._send_one(wire, queue, link)

    def _send_one(self, wire: Wire, queue: str, link: Any, txn: str = "") -> Any:
        random = self.random
        number = self._numbers[queue] = self._numbers[queue] + 1
        message = f"{self.name}:{queue}:{number}"
        if self._flood or random.random() < 0.75:
            size = random.randrange(300)
        elif random.random() < 0.93:
            size = random.randrange(300, 20_000)
        else:
            size = random.randrange(20_000, 300_000)
        size = min(size, self.settings.max_body_bytes)
        to = queue if queue == RELAYED else None
        code = encode_plain if self.settings.plain else encode
        raw, digest = code(message, random.randbytes(size), to, random, durable=self.settings.durable)
        delivery = link.delivery(f"{number}")
        delivery.message, delivery.size_bytes = message, len(raw)
        self.notebook.note(Sent(message, queue, self.name, number, wire.life, time.monotonic_ns(), digest, txn))
        self.stream(link, delivery, raw)
        self._unsettled[link] += 1
        self._budget -= 1
        self._due -= 1
        return delivery

    def stream(self, link: Any, delivery: Any, raw: bytes) -> None:
        link.stream(raw)
        link.advance()

    def on_delivery(self, wire: Wire, delivery: Any) -> None:
        if not delivery.updated:
            return
        if delivery.remote_state == Delivery.ACCEPTED:
            self.count_confirmed(delivery)
        else:
            self.notebook.note(Refused(delivery.message, time.monotonic_ns(), int(delivery.remote_state)))
        link = delivery.link
        delivery.settle()
        if link in self._unsettled:
            self._unsettled[link] -= 1

    def count_confirmed(self, delivery: Any) -> None:
        self.notebook.note(Confirmed(delivery.message, time.monotonic_ns()))
        self.confirmed += 1
        self.confirmed_bytes += delivery.size_bytes
