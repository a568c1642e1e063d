"""A worker: a thread that owns connections, their sockets and their proton engines (router guide C1, C4, C5).

Its loop: wait for sockets; let every terminal process its input; run the core, unless another thread runs it; do the
work that the core returned; write. All input of one turn of the loop goes through the core as one step.

A connection gets at most `WRITE_BYTES` of a turn for its output, and `SHARE_BYTES` for long messages while other
traffic arrived in the last second (RFC005 F27). `SocketReader` has the limits of input.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from time import perf_counter

from ...amqp.native.buffer_pool import Buckets
from ...amqp.native.scratch_buffer import ScratchBuffer
from ...amqp.ports import Drivers, Timer
from ...base.clock import Clock
from ..kernel.core import TURN_S, Core
from .heartbeats import TICK_S, Heartbeats
from .orderly_end import OrderlyEnd
from .socket_reader import SHARE_BYTES, SocketReader
from .socket_table import SocketTable
from .worker_socket import READ, Conversation, WorkerSocket

log = logging.getLogger(__name__)

WRITE_BYTES = 256 << 10

RERUN_S = 0.002
"""Seconds of a turn in which new actions have the core run again: each run may do a slice of background work."""

PAUSE_S = 0.02
"""Seconds for which no connection is accepted while all places of unauthenticated ones are taken, or files are."""

_ONCE = select.EPOLLIN | select.EPOLLONESHOT


class _NoTimer:
    """The wait of workers that do not run timers."""

    due_s = inf

    def run(self) -> None:
        raise NotImplementedError


class Worker:
    """A worker thread. Only `adopt`, `wake`, `watch`, `ring`, `stop` and `listen` may be called by other threads."""

    def __init__(
        self,
        number: int,
        core: Core,
        drivers: Drivers,
        clock: Clock,
        limit_bytes: int,
        frame_bytes: int,
        most_opening: int = 1 << 30,
    ) -> None:
        """*limit_bytes*: the limit of content in transit through the worker; *frame_bytes*: the maximum frame size.

        *most_opening*: the maximum number of unauthenticated connections.
        """
        self.outgoing = Buckets(limit_bytes // 2)
        self.scratch = ScratchBuffer(frame_bytes)
        """The buffer that the engines of all connections of the worker share."""
        self._core = core
        self._clock = clock
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        weakref.finalize(self, os.close, self._bell)  # not when the thread ends: others may still wake it
        self._epoll.register(self._bell, READ)
        self._pending: deque[Conversation] = deque()
        self._adopted: deque[tuple[socket.socket, Conversation, str, Callable[[], Conversation] | None]] = deque()
        self._acceptors: dict[int, Callable[[], bool]] = {}
        self._paused_until_s = inf
        """The time at which listeners are watched again; infinite while they are."""
        self._watched: dict[int, Callable[[], None]] = {}
        self.sockets = SocketTable(self._epoll, core, clock, most_opening)
        self._end = OrderlyEnd(self.sockets, core, clock, self.wake)
        self._heartbeats = Heartbeats(self.sockets, self._end, clock)
        self.reader = SocketReader(
            self.sockets,
            self._end,
            self._heartbeats,
            core,
            drivers,
            clock,
            Buckets(limit_bytes // 2),
            self.ring,
            self._handle_other,
        )
        self._timer: Timer = _NoTimer()
        self._stopping = False
        self.thread = threading.Thread(target=self._run, name=f"cairnmq-worker-{number}", daemon=True)

    @property
    def load(self) -> int:
        """Return the number of connections of the worker."""
        return len(self.sockets.by_fd) + len(self._adopted)

    @property
    def opening(self) -> int:
        """Return the number of connections that are not authenticated yet."""
        return len(self.sockets.openings)

    # ---- for other threads ----------------------------------------------------------------------------------------

    def has_place(self, now_s: float) -> bool:
        """Return whether the worker may adopt one more connection that must authenticate. Any thread."""
        return self.sockets.openings.has_place(len(self._adopted), now_s)

    def listen(self, fd: int, accept: Callable[[], bool]) -> None:
        """Call *accept* on this worker whenever *fd* is readable. Before the thread starts.

        If it returns False, connections stay in the backlog of the kernel for `PAUSE_S`.
        """
        self._acceptors[fd] = accept
        self._epoll.register(fd, READ)

    def watch(self, fd: int, ready: Callable[[], None]) -> None:
        """Call *ready* on this worker as soon as *fd* is readable, once; then run the core.

        If the thread has ended, *ready* is never called.
        """
        self._watched[fd] = ready
        with suppress(ValueError):
            try:
                self._epoll.modify(fd, _ONCE)
            except FileNotFoundError:  # it is watched for the first time
                self._epoll.register(fd, _ONCE)

    def keep_time(self, timer: Timer) -> None:
        """Run the actions of *timer* when they are due. Called before the thread starts."""
        self._timer = timer

    def adopt(
        self, sock: socket.socket, terminal: Conversation, other: Callable[[], Conversation] | None = None,
        *, address: str = "",
    ) -> None:  # fmt: skip
        """Take over a new connection; *address*: of the peer, if it must authenticate; *other*: see `WorkerSocket`."""
        self._adopted.append((sock, terminal, address, other))
        self.ring()

    def wake(self, terminal: Conversation) -> None:
        """Schedule the work that the core queued for *terminal*."""
        self._pending.append(terminal)
        if threading.get_ident() != self.thread.ident:
            os.eventfd_write(self._bell, 1)

    def ring(self) -> None:
        """Wake the loop for one more turn."""
        if threading.get_ident() != self.thread.ident:
            os.eventfd_write(self._bell, 1)

    def stop(self) -> None:
        """Close all connections and end the thread."""
        self._stopping = True
        os.eventfd_write(self._bell, 1)

    # ---- the loop -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not (self._stopping and self._has_ended()):
                self._step()
            self.sockets.close_all()
            self._settle(set())
        except Exception as error:  # a broker without this worker would only appear to work
            log.exception("internal error in a worker", extra={"event": "broker.internal-error"})
            self._core.fail(error)
        finally:
            self._epoll.close()

    def _has_ended(self) -> bool:
        """Continue to stop; return whether all sockets are closed, or their time is up."""
        if not self._end.has_begun:
            for fd in self._acceptors:
                self._epoll.unregister(fd)
            self._acceptors.clear()
            self._end.begin()
            self._settle(set())
        is_late = self._end.proceed()
        if self._pending:
            self._settle(set())
        return is_late or not self.sockets.by_fd

    def _step(self) -> None:
        active: set[WorkerSocket] = set()
        reader, timer, heartbeats = self.reader, self._timer, self._heartbeats
        if reader.taken_over:
            reader.read_waiting(active)
        timeout_s = 0.0
        if not (active or reader.behind or self._pending or self._core.waiting):
            due_s = min(heartbeats.due_s, timer.due_s, self._paused_until_s)
            timeout_s = min(TICK_S, max(0.0, due_s - self._clock.monotonic_s()))
        ready = self._epoll.poll(timeout_s)
        begun_s = perf_counter()
        now_s = reader.read_turn(ready, active)
        while self._adopted:
            active.add(self.sockets.add(*self._adopted.popleft()))
        if now_s >= self._paused_until_s:
            self._watch_listeners(inf)
        if now_s >= timer.due_s:
            self._core.post(timer.run)
        if now_s >= heartbeats.due_s:
            reader.shares.refresh()
            heartbeats.run(now_s)
            active.update(self.sockets.by_fd.values())
        self._settle(active)
        ended_s, longest = perf_counter(), self._core.longest_of_workers
        if ended_s - begun_s > longest.maximum_s or ended_s >= longest.window_end_s:
            longest.note(ended_s - begun_s, ended_s)

    def _handle_other(self, fd: int) -> None:
        """Handle a descriptor that is ready and belongs to no connection."""
        if fd == self._bell:
            with suppress(BlockingIOError):
                os.eventfd_read(self._bell)
        elif fd in self._acceptors:
            if not self._acceptors[fd]():
                self._watch_listeners(self._clock.monotonic_s() + PAUSE_S)
        elif fd in self._watched:
            self._watched[fd]()

    def _watch_listeners(self, paused_until_s: float) -> None:
        """Watch the listeners from that time on; at once if it is infinite."""
        self._paused_until_s = paused_until_s
        for fd in self._acceptors:
            self._epoll.modify(fd, READ if paused_until_s == inf else 0)

    def _settle(self, active: set[WorkerSocket]) -> None:
        """Let the core decide, do the work, and write, until nothing is left to do here, or the turn is over.

        Without a limit, tasks of other threads could keep the core busy forever; sockets must be read meanwhile. So the
        core works off what it was given, and further actions only if they come within `RERUN_S`; the work that a run
        returned is always done.
        """
        core, pending, by_terminal = self._core, self._pending, self.sockets.by_terminal
        begun_s = perf_counter()
        until_s, rerun_until_s = begun_s + TURN_S, begun_s + RERUN_S
        is_over = False
        may_run = not (self.reader.read_bytes and self.reader.hand_over())
        while True:
            if core.waiting and (may_run or perf_counter() < rerun_until_s or self._stopping):
                may_run = not core.run()
            if pending and not is_over:
                while pending:
                    terminal = pending.popleft()
                    held = by_terminal.get(terminal)
                    if held is None:
                        terminal.do_work()  # its socket is closed: messages in flight to it are requeued
                        continue
                    try:
                        if terminal.do_work() and not held.behind:
                            self.reader.put_behind(held)
                    except Exception:  # a defect that the input of one connection triggers must not end the others
                        self.sockets.abort(held)
                    if held.is_counted:
                        (self.sockets.note_progress if terminal.is_opening else self.sockets.stop_counting)(held)
                    active.add(held)
                is_over = perf_counter() >= until_s and not self._stopping
            elif active:
                for held in active:
                    try:
                        self._write(held)
                    except Exception:
                        self.sockets.abort(held)
                active.clear()
            else:
                return

    def _write(self, held: WorkerSocket) -> None:
        if held.sock.fileno() < 0:
            return
        terminal = held.terminal
        held.more = False
        if not held.blocked and not held.ended:
            try:
                most_long_bytes = SHARE_BYTES if self.reader.is_crowded else WRITE_BYTES
                held.more = terminal.write(held.sock.send, WRITE_BYTES, most_long_bytes)
            except (BlockingIOError, InterruptedError):
                held.blocked = True
            except OSError:
                self.sockets.close(held)
                return
            if terminal.closed and terminal.finished():
                self._end.finish(held)
                return
        is_limited = held.blocked or held.more or held.waiting or held.behind or terminal.holding or terminal.routing
        if is_limited or held.events != READ:
            self.sockets.update_events(held)
