"""A complete single-threaded broker without sockets: terminals, core, queues, and a store on an in-memory disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from proton import Connection, Transport

from cairnmq.amqp.links.events import Limits
from cairnmq.amqp.native.buffer_pool import Buckets
from cairnmq.amqp.sasl.server import Login
from cairnmq.router.admission.admission import Admission, AdmissionOptions
from cairnmq.router.admission.login_gate import LoginGate
from cairnmq.router.connections.terminal import Terminal, TerminalContext
from cairnmq.router.kernel.core import Core
from tests.harness.broker.world import World

LIMITS = Limits(max_message_bytes=1 << 20, max_links=64, max_transfers=512, session_window_bytes=1 << 20)
MEMORY_BYTES = 4 << 20
MOST_TURNS = 20_000
"""Limit of the iterations of `Site.settle_down`."""


class CoreFailed(AssertionError):
    """A failure of the core, which would have ended the broker."""


class _Posts:
    """A queue that forwards posts of the store and the broker to the core."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def append(self, posted: tuple[Callable[..., None], tuple[Any, ...]]) -> None:
        self._core.post(posted[0], *posted[1])


class Site:
    """A broker with its core, clock and terminals."""

    def __init__(self, policy: Mapping[str, Any] = MappingProxyType({}), **options: Any) -> None:
        """Create a broker with *policy* for the queues `q` and `dead`, which are created on first use."""
        self.world = World(MEMORY_BYTES, **options)
        self.broker = self.world.broker
        self.broker.nodes.templates["q"] = self.broker.nodes.templates["dead"] = policy
        self.broker.transactions._start = b"fuzz"  # otherwise transaction IDs would differ between runs
        self.failure: BaseException | None = None
        self.core = Core(self.broker.steps.finish, self._failed)
        self._actions: Any = _Posts(self.core)
        early = self.world._actions
        setattr(self.world, "_actions", self._actions)  # noqa: B010  # mypy infers a deque
        for posted in early:
            self._actions.append(posted)
        self.buckets = Buckets(8 << 20)
        admission = Admission(options.get("container_id", "broker"), AdmissionOptions())
        gate = LoginGate(Login(), 1000)
        gate.start(self.core.post)
        self.context = TerminalContext(self.core, self.broker.drivers, admission, LIMITS, self.buckets, gate)
        self.woken: deque[Terminal] = deque()
        self._number = 0

    def _failed(self, error: BaseException) -> None:
        self.failure = self.failure or error

    def terminal(self) -> Terminal:
        """Return a new connection."""
        self._number += 1
        return Terminal(self.context, f"client {self._number}", wake=self.woken.append)

    def settle_down(self, terminal: Terminal, hear: Callable[[bytes], None] | None = None) -> None:
        """Do all pending work; pass the bytes that *terminal* writes to *hear*, or discard the bytes."""
        for _ in range(MOST_TURNS):
            self.core.run_all()
            if self.failure is not None:
                raise CoreFailed(f"the core failed: {self.failure!r}") from self.failure
            if self.woken:
                self.woken.popleft().do_work()
            elif said := written_by(terminal):
                if hear is not None:
                    hear(said)
            elif self.world.readings:
                work, args = self.world.readings.popleft()
                work(*args)
            else:
                return
        raise AssertionError(f"after {MOST_TURNS} turns there is still something to do")

    def converse(self, data: bytes, piece_bytes: int) -> None:
        """Send *data* as a client and disconnect."""
        terminal = self.terminal()
        for at in range(0, len(data), piece_bytes):
            terminal.receive(data[at : at + piece_bytes])
            self.settle_down(terminal)
            if terminal.finished():
                break
        self.hang_up(terminal)

    def advance(self, seconds: float) -> None:
        """Advance the clock and run the actions that are due."""
        self.world.clock.advance(seconds)
        if self.broker.core.scheduler.due_s <= self.world.clock.monotonic_s():
            self.core.post(self.broker.core.scheduler.run)
            self.core.run_all()

    def hang_up(self, terminal: Terminal) -> None:
        """Disconnect the client of *terminal*."""
        terminal.end_input()
        self.settle_down(terminal)
        terminal.free()
        self.settle_down_without(terminal)

    def settle_down_without(self, terminal: Terminal) -> None:
        """Do all pending work after the connection of *terminal* has ended."""
        self.core.run_all()
        while self.woken:
            self.woken.popleft().do_work()
            self.core.run_all()
        if self.failure is not None:
            raise CoreFailed(f"the core failed: {self.failure!r}") from self.failure

    def check_accounts(self) -> None:
        """Check the counters when no client is connected."""
        memory = self.broker.core.memory.used_bytes
        held = sum(queue.memory.held_bytes for queue in self.broker.nodes.queues.values())
        assert memory == held, f"{memory} bytes are counted, queues hold {held}"
        assert self.buckets.used_bytes == 0, f"{self.buckets.used_bytes} bytes are still on their way out"
        for queue in self.broker.nodes.queues.values():
            links = [*queue.consumers, *queue.browsers, *queue.producers, *queue.detached_consumers]
            assert not links, f"{queue.name} has links still: {links}"
            if queue.contents.expiry is not None:
                queue.contents.expiry.clean(True)  # expired messages may remain among live messages for a while
            seen = (queue.messages, queue.waiting, queue.is_deleted)
            assert seen == (queue.depth + len(queue.contents.delayed), 0, False), f"{queue.name}: {seen}"


class Client:
    """A proton client without a socket that records all sent bytes."""

    def __init__(self, site: Site, container: str = "client") -> None:
        self.site = site
        self.terminal = site.terminal()
        self.connection = Connection()
        self.connection.container = container
        self.transport = Transport()
        self.transport.bind(self.connection)
        self.connection.open()
        self.session = self.connection.session()
        self.session.open()
        self.said: list[bytes] = []
        self.talk()

    def talk(self) -> None:
        """Exchange bytes until neither side sends any."""
        while True:
            self.site.settle_down(self.terminal, self._hear)
            size = self.transport.pending()
            if size <= 0:
                return
            data = self.transport.peek(size)
            self.transport.pop(len(data))
            self.said.append(bytes(data))
            self.terminal.receive(data)

    def _hear(self, data: bytes) -> None:
        while data:
            size = self.transport.capacity()
            self.transport.push(data[:size])
            data = data[size:]

    def leave(self) -> list[bytes]:
        """Close the connection; return the sent bytes: the protocol header, then the frames."""
        self.connection.close()
        self.talk()
        self.site.hang_up(self.terminal)
        data = b"".join(self.said)
        parts, at = [data[:8]], 8
        while at < len(data):
            size = int.from_bytes(data[at : at + 4])
            parts.append(data[at : at + size])
            at += size
        return parts


def written_by(terminal: Terminal) -> bytes:
    """Return the next bytes that *terminal* writes, or `b""` if no output is pending."""
    said = bytearray()

    def send(data: bytes | memoryview) -> int:
        said.extend(data)
        return len(data)

    terminal.write(send, 1, 1)
    return bytes(said)
