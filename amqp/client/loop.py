"""The loop that a process of clients runs: wires are read, clients take their steps, wires are written."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable
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
        self._poll = select.poll()
        self._wires: dict[int, tuple[Wire, list[Client]]] = {}
        self._others: dict[int, Callable[[], None]] = {}
        self._wanted: dict[int, int] = {}
        for wire in wires:
            self.add(wire, [])

    def add(self, wire: Wire, clients: Iterable[Client]) -> None:
        self._wires[wire.fd] = wire, [*clients]
        self._watch(wire)

    def watch(self, fd: int, then: Callable[[], None]) -> None:
        """Call *then* whenever there is something to read at *fd*."""
        self._others[fd] = then
        self._poll.register(fd, select.POLLIN)

    def unwatch(self, fd: int) -> None:
        del self._others[fd]
        self._poll.unregister(fd)

    def turn(self, most_ms: int) -> None:
        """Wait for something to do, no longer than *most_ms*, and do it. Raises `BrokerError` of a wire."""
        due_ns = min((due for wire, clients in self._wires.values() if (due := self._step(wire, clients))), default=0)
        wait_ms = most_ms
        if due_ns:
            wait_ms = min(most_ms, max(0, -(-(due_ns - now_ns()) // 1_000_000)))
        for fd, _ in self._poll.poll(wait_ms):
            if fd in self._others:
                self._others[fd]()
            elif fd in self._wires:
                self._wires[fd][0].read()

    def close(self) -> None:
        for wire, _ in self._wires.values():
            wire.close()

    def _step(self, wire: Wire, clients: list[Client]) -> int:
        due_ns = min((due for client in clients if (due := client.step())), default=0)
        wire.pulse(time.monotonic())
        wire.write()
        self._watch(wire)
        return due_ns

    def _watch(self, wire: Wire) -> None:
        wanted = select.POLLIN | (select.POLLOUT if wire.blocked else 0)
        if self._wanted.get(wire.fd) != wanted:
            self._wanted[wire.fd] = wanted
            self._poll.register(wire.fd, wanted)
