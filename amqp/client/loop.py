"""The loop that a process of clients runs: wires are read, clients take their steps, wires are written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from selectors import EVENT_READ, EVENT_WRITE, PollSelector
from typing import Protocol

from ...base.clock import now_ns
from .wire import Wire


class Client(Protocol):
    """A client that processes the input of its wire."""

    def step(self) -> int:
        """When, in ns, it may have more to do; 0 if only something that comes can change that."""


class Loop:
    """Some wires, and the clients on them. One thread."""

    def __init__(self, *wires: Wire) -> None:
        """*wires* have no clients."""
        self._selector = PollSelector()
        self._wires: list[tuple[Wire, list[Client]]] = []
        for wire in wires:
            self.add(wire, [])

    def add(self, wire: Wire, clients: Iterable[Client]) -> None:
        self._wires.append((wire, [*clients]))
        self.watch(wire.fd, wire.read)

    def watch(self, fd: int, then: Callable[[], None]) -> None:
        """Call *then* whenever there is something to read at *fd*."""
        self._selector.register(fd, EVENT_READ, then)

    def unwatch(self, fd: int) -> None:
        self._selector.unregister(fd)

    def turn(self, most_ms: int) -> None:
        """Wait for something to do, no longer than *most_ms*, and do it. Raises `BrokerError` of a wire."""
        due_ns = min((due for wire, clients in self._wires if (due := self._step(wire, clients))), default=0)
        wait_s = most_ms / 1000
        if due_ns:
            wait_s = min(wait_s, max(0.0, (due_ns - now_ns()) / 1e9))
        for key, _ in self._selector.select(wait_s):
            key.data()

    def close(self) -> None:
        for wire, _ in self._wires:
            wire.close()

    def _step(self, wire: Wire, clients: list[Client]) -> int:
        due_ns = min((due for client in clients if (due := client.step())), default=0)
        wire.pulse(time.monotonic())
        wire.write()
        wanted = EVENT_READ | (EVENT_WRITE if wire.blocked else 0)
        if self._selector.get_key(wire.fd).events != wanted:
            self._selector.modify(wire.fd, wanted, wire.read)
        return due_ns
