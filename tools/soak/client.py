"""A client process of a soak: it sends or receives, and records all of its events. `client_processes` starts one.

Roles: `sender` and `receiver` run until standard input ends; `drain` empties the queues once and ends. Commands are
read from standard input, a line each:

    connect PORT LIFE [FLOOD]   the broker is ready, in its LIFE-th process; a sender begins with FLOOD small messages

It reports on standard output periodically the numbers of messages confirmed and received, and their sizes in bytes.

Every byte passes through the engine of python-qpid-proton. The event loop is our own, because events must be recorded
between reading the input from the broker and sending the resulting output.
"""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress
from random import Random
from typing import Any

from proton import Event, Terminus

from .history import Notebook, Trouble
from .wire import Settings, Wire

RELAYED = "relayed"
"""The queue that senders reach through the anonymous relay."""
FORCED = "amqp:connection:forced"
_WRITE = select.EPOLLOUT
_SAY_NS = 200_000_000


class SoakClient:
    """The loop, and what the roles have in common."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.name = settings.name
        self.random = Random(f"{settings.seed}/{settings.name}")
        self.notebook = Notebook(settings.notebook)
        self.queues = settings.queues
        self.done = False
        self.confirmed = self.confirmed_bytes = self.taken = self.taken_bytes = 0
        self._said_ns = 0
        self.wire: Wire | None = None
        self._epoll = select.epoll()
        self._wires: dict[int, Wire] = {}

    # ---- for a role to fill in

    def connected(self, wire: Wire, flood: int) -> None:
        raise NotImplementedError

    def on_delivery(self, wire: Wire, delivery: Any) -> None:
        raise NotImplementedError

    def turn(self, wire: Wire) -> None:
        """Something may have changed: do what there is to do."""

    def link_closed(self, wire: Wire, link: Any) -> None:
        """The broker closed a link."""

    def session_closed(self, wire: Wire) -> None:
        """The broker ended the session."""

    # ---- the loop

    def run(self) -> None:
        os.set_blocking(0, False)
        self._epoll.register(0, select.EPOLLIN)
        commands = b""
        while not self.done:
            for fd, mask in self._epoll.poll(self.wait_s()):
                if fd:
                    if fd in self._wires and mask & ~_WRITE:
                        self._wires[fd].read()
                    continue
                data = os.read(0, 4096)
                if not data:
                    return
                *lines, commands = (commands + data).split(b"\n")
                for line in lines:
                    _, port, life, *flood = line.decode().split()
                    self.connect(int(port), int(life), int(flood[0]) if flood else 0)
            for wire in list(self._wires.values()):
                self._digest(wire)
            if self.wire is not None and not self.wire.ended:
                self.turn(self.wire)
            self.notebook.flush()  # before the bytes leave
            for wire in list(self._wires.values()):
                self._send(wire)
            self._say()

    def wait_s(self) -> float:
        """The longest wait for input before a turn is due."""
        return -1.0

    def _say(self) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - self._said_ns > _SAY_NS:
            self._said_ns = now_ns
            with suppress(OSError):  # nobody looks on
                os.write(1, f"{self.confirmed} {self.confirmed_bytes} {self.taken} {self.taken_bytes}\n".encode())

    def connect(self, port: int, life: int, flood: int = 0) -> None:
        try:
            wire = self.wire = Wire(self.settings, port, life)
        except OSError:
            return  # killed already: there will be another command
        self._wires[wire.sock.fileno()] = wire
        self._epoll.register(wire.sock.fileno(), select.EPOLLIN)
        self.connected(wire, flood)

    def ask_to_last(self, terminus: Any) -> None:
        """A broker that makes a queue for a link may make one that goes with itself, unless it is asked not to."""
        if self.settings.plain:
            terminus.durability = Terminus.CONFIGURATION

    def drop(self, wire: Wire) -> None:
        """Close the socket, with no word of goodbye."""
        del self._wires[wire.sock.fileno()]
        self._epoll.unregister(wire.sock.fileno())
        wire.sock.close()
        wire.ended = True

    def trouble(self, wire: Wire, text: str) -> None:
        self.notebook.note(Trouble(self.name, wire.life, time.monotonic_ns(), text))

    def _digest(self, wire: Wire) -> None:
        collector = wire.collector
        while (event := collector.peek()) is not None:
            kind = event.type
            if kind == Event.DELIVERY:
                self.on_delivery(wire, event.delivery)
            elif kind in (Event.LINK_REMOTE_CLOSE, Event.LINK_REMOTE_DETACH):
                if not event.link.state & event.link.LOCAL_CLOSED:
                    self.trouble(wire, f"link {event.link.name} closed: {event.link.remote_condition}")
                    self.link_closed(wire, event.link)
                    event.link.close()
            elif kind == Event.SESSION_REMOTE_CLOSE:
                self.trouble(wire, f"session ended: {event.session.remote_condition}")
                self.session_closed(wire)
                wire.ended = True
            elif kind == Event.CONNECTION_REMOTE_CLOSE:
                condition = event.connection.remote_condition
                self.trouble(wire, f"connection closed: {condition and condition.name}")
                event.connection.close()
            elif kind in (Event.TRANSPORT_ERROR, Event.TRANSPORT_TAIL_CLOSED, Event.TRANSPORT_CLOSED):
                wire.ended = True
            collector.pop()

    def _send(self, wire: Wire) -> None:
        was_writing = wire.writing
        wire.write()
        if wire.ended:
            self.drop(wire)
        elif wire.writing != was_writing:
            self._epoll.modify(wire.sock.fileno(), select.EPOLLIN | (_WRITE if wire.writing else 0))
