"""A worker: a thread that owns connections, their sockets and their proton engines (router guide C1, C4, C5).

Its loop: wait for sockets; let every terminal process its input; run the core, unless another thread runs it; do the
work that the core returned; write. All input of one turn of the loop goes through the core as one step.

A connection gets at most `READ_BYTES` and `WRITE_BYTES` of a turn, so that long messages of one leave time for others
(RFC005 F27). Long messages are limited to `SHARE_BYTES` while other traffic arrived in the last second.

Input occupies buckets until the core has taken it over. Without a free bucket connections wait unread, the longest wait
is served first, and TCP pushes back (F26). A connection that takes no answers while it sends requests is not read
either. One that sends a long message waits while the disk is busy with its content: otherwise small messages of others,
which must be durable before they are confirmed, would wait behind all of that.
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
from ...amqp.sasl.handshake import MAX_AHEAD_BYTES
from ...base.clock import Clock
from ...channel.ports import Drivers, Timer
from ..admission.openings import Openings
from ..admission.user_shares import UserShares
from ..connections.connection import Conversation as Conversation
from ..connections.connection import Turn
from ..kernel.core import TURN_S, Core
from .worker_socket import READ, WRITE, WorkerSocket

log = logging.getLogger(__name__)

READ_BYTES = 256 << 10
WRITE_BYTES = 256 << 10
SHARE_BYTES = 64 << 10
OTHERS_S = 1.0
MOST_UNANSWERED = 4096
"""The number of unanswered requests for sessions and links, beyond which a connection is not read."""
CONTROLS_OF_ONE, CONTROLS_OF_ALL = 16, 32
"""The limits of control frames per turn: of one connection, and of all those that sent many in their last turn.

These are begin, end, attach, detach and flow. Further input waits, and its connection is not read meanwhile.
"""
LEAST_READ_BYTES = 4 << 10
"""Bytes per read of a connection whose input caused much work with few messages or none."""
MOST_DIGEST_S = 0.002
"""Seconds above which a read that brings no message counts as much work."""
CONTROL_S = 50e-6
"""Approximate seconds per control frame: other work is counted in units of it."""
TICK_S = 1.0
"""The interval at which heartbeats and time-outs are checked; shorter if a client requested it."""
SHORTEST_TICK_S = 0.05
GOODBYE_S = 2.0
"""The time limit in seconds for a client to answer when its connection is closed."""
LONGEST_GOODBYE_S = 10.0
"""The time limit in seconds if the client still sends: closing the socket would make it lose the close frame."""

_ENDED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
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
        self._openings = Openings(most_opening)
        self._drivers = drivers
        self.incoming, self.outgoing = Buckets(limit_bytes // 2), Buckets(limit_bytes // 2)
        self.scratch = ScratchBuffer(frame_bytes)
        """The buffer that the engines of all connections of the worker share."""
        self._core = core
        self._clock = clock
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        weakref.finalize(self, os.close, self._bell)  # not when the thread ends: others may still wake it
        self._epoll.register(self._bell, READ)
        self._sockets: dict[int, WorkerSocket] = {}
        self._by_terminal: dict[Conversation, WorkerSocket] = {}
        self._pending: deque[Conversation] = deque()
        self._adopted: deque[tuple[socket.socket, Conversation, str]] = deque()
        self._acceptors: dict[int, Callable[[], None]] = {}
        self._watched: dict[int, Callable[[], None]] = {}
        self._buffer = bytearray(READ_BYTES)
        self._view = memoryview(self._buffer)
        self._waiting: deque[WorkerSocket] = deque()
        self._behind: deque[WorkerSocket] = deque()
        """Sockets with unprocessed bytes, in the order of their turns."""
        self._controls_left = 0
        """Control frames that may still be processed in this turn, of connections that sent many."""
        self._read_bytes = 0
        """Bytes in the buckets that were read in this turn."""
        self._brings_long = False
        """True if some of them are part of a long message."""
        self._shares = UserShares(drivers.core_share)
        self._passed_over: list[WorkerSocket] = []
        self._held_up = False
        """True while long messages wait for the disk. Written only by the core."""
        self._taken_over: deque[int] = deque()
        """Bytes of content that the core has taken over from the buckets since; appended by the core."""
        self._now_s = 0.0
        """The approximate time at which the last turn began."""
        self._others_s = -OTHERS_S
        """The last time at which input arrived that was not part of a long message."""
        self._crowded = False
        """True if that was less than a second ago."""
        self._next_tick_s = 0.0
        self._timer: Timer = _NoTimer()
        self._stopping = False
        self._give_up_s = 0.0
        """The time at which a stopping worker closes the sockets that are left."""
        self._latest_give_up_s = 0.0
        """The last such time for clients that still send; 0 while they are answered."""
        self.thread = threading.Thread(target=self._run, name=f"cairnmq-worker-{number}", daemon=True)

    @property
    def load(self) -> int:
        """Return the number of connections of the worker."""
        return len(self._sockets) + len(self._adopted)

    @property
    def opening(self) -> int:
        """Return the number of connections that are not authenticated yet."""
        return len(self._openings)

    # ---- for other threads ----------------------------------------------------------------------------------------

    def listen(self, fd: int, accept: Callable[[], None]) -> None:
        """Call *accept* on this worker whenever *fd* is readable. Before the thread starts."""
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

    def adopt(self, sock: socket.socket, terminal: Conversation, address: str = "") -> None:
        """Take over a new connection; *address*: of the peer, if it must authenticate."""
        self._adopted.append((sock, terminal, address))
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
            while not (self._stopping and self._ended()):
                self._step()
            for held in list(self._sockets.values()):
                self._drop(held)
            self._settle(set())
        except Exception as error:  # a broker without this worker would only appear to work
            log.exception("internal error in a worker")
            self._core.fail(error)
        finally:
            self._epoll.close()

    def _ended(self) -> bool:
        now_s = self._clock.monotonic_s()
        if not self._give_up_s:
            self._give_up_s = now_s + GOODBYE_S
            for fd in self._acceptors:
                self._epoll.unregister(fd)
            self._acceptors.clear()
            for held in list(self._sockets.values()):
                if not held.ended:
                    held.terminal.shut_down()
                    self._pending.append(held.terminal)
            self._settle(set())
        if self._sockets and now_s >= self._give_up_s:
            if self._latest_give_up_s:
                return True
            self._stop_answering(now_s)
        return not self._sockets

    def _stop_answering(self, now_s: float) -> None:
        """Close silent sockets; discard what the other clients send until they read the close frame, or for a while."""
        self._give_up_s, self._latest_give_up_s = now_s + GOODBYE_S, now_s + LONGEST_GOODBYE_S
        for held in list(self._sockets.values()):
            if _is_silent(held.sock):
                self._drop(held)
            else:
                held.terminal.give_up()
                self._pending.append(held.terminal)
        self._settle(set())

    def _step(self) -> None:
        active: set[WorkerSocket] = set()
        if self._taken_over:
            self._give_back(active)
        timeout_s, timer = 0.0, self._timer
        if not (active or self._behind or self._pending or self._core.waiting):
            due_s = min(self._next_tick_s, timer.due_s)
            timeout_s = min(TICK_S, max(0.0, due_s - self._clock.monotonic_s()))
        ready = self._epoll.poll(timeout_s)
        begun_s = perf_counter()
        self._controls_left = CONTROLS_OF_ALL
        if self._behind:
            self._catch_up(active)
        if self._shares.sole_user is None:
            self._shares.begin_turn()
        if self._passed_over:
            self._read_passed_over(active)
        for fd, mask in ready:
            held = self._sockets.get(fd)
            if held is None:
                self._look_at(fd)
                continue
            active.add(held)
            if mask & WRITE:
                held.blocked = False
            if mask & ~WRITE:
                self._read(held, is_ended=bool(mask & _ENDED))
        if self._adopted:
            self._begin_adopted(active)
        self._now_s = now_s = self._clock.monotonic_s()
        self._crowded = now_s - self._others_s < OTHERS_S
        if now_s >= timer.due_s:
            self._core.post(timer.run)
        if now_s >= self._next_tick_s:
            self._shares.refresh()
            self._next_tick_s = max(self._tick(now_s), now_s + SHORTEST_TICK_S)
            active.update(self._sockets.values())
        self._settle(active)
        ended_s, longest = perf_counter(), self._core.longest_of_workers
        if ended_s - begun_s > longest.maximum_s or ended_s >= longest.window_end_s:
            longest.note(ended_s - begun_s, ended_s)

    def _look_at(self, fd: int) -> None:
        """Handle a descriptor that is ready and belongs to no connection."""
        if fd == self._bell:
            with suppress(BlockingIOError):
                os.eventfd_read(self._bell)
        elif fd in self._acceptors:
            self._acceptors[fd]()
        elif fd in self._watched:
            self._watched[fd]()

    def _settle(self, active: set[WorkerSocket]) -> None:
        """Let the core decide, do the work, and write, until nothing is left to do here, or the turn is over.

        Without a limit, tasks of other threads could keep the core busy forever; sockets must be read meanwhile.
        """
        core, pending, by_terminal = self._core, self._pending, self._by_terminal
        until_s = perf_counter() + TURN_S
        is_over = False
        if self._read_bytes:
            self._have_taken_over(self._read_bytes)
            self._read_bytes = 0
        while True:
            if core.waiting:
                core.run()
            if pending and not is_over:
                while pending:
                    terminal = pending.popleft()
                    held = by_terminal.get(terminal)
                    if held is None:
                        terminal.do_work()  # its socket is closed: messages in flight to it are requeued
                        continue
                    try:
                        if terminal.do_work() and not held.behind:
                            held.behind = True
                            self._behind.append(held)
                    except Exception:  # a defect that the input of one connection triggers must not end the others
                        self._break_off(held)
                    if held.is_counted and not terminal.is_opening:
                        self._stop_counting(held)
                    active.add(held)
                is_over = perf_counter() >= until_s and not self._stopping
            elif active:
                for held in active:
                    try:
                        self._write(held)
                    except Exception:
                        self._break_off(held)
                active.clear()
            else:
                return

    def _have_taken_over(self, size_bytes: int) -> None:
        """Have the core handle the input of this turn, after which its buckets are free again.

        If this thread runs the core to the end of the input, it frees them itself. Long messages always leave that to
        the core, which knows whether they must wait for the disk.
        """
        if self._brings_long or not self._core.run():
            self._core.post(self._note_taken_over, size_bytes, self._brings_long)
            self._brings_long = False
        else:
            self.incoming.free_bytes += size_bytes
            if self._waiting:
                self._taken_over.append(0)

    def _note_taken_over(self, size_bytes: int, is_long: bool) -> None:
        """Free the buckets of a turn, whose input was handled. Called on the core."""
        self._taken_over.append(size_bytes)
        if is_long and not self._held_up:
            self._held_up = self._drivers.held_up(self._go_on)
        if self._waiting:
            self.ring()

    def _go_on(self) -> None:
        """Resume long messages, since the disk has caught up. Called on the core."""
        self._held_up = False
        self._taken_over.append(0)
        self.ring()

    def _give_back(self, active: set[WorkerSocket]) -> None:
        """Read waiting connections in order, as far as the buckets that were freed allow."""
        while self._taken_over:
            self.incoming.free_bytes += self._taken_over.popleft()
        waiting, self._waiting = self._waiting, deque()
        for held in waiting:
            held.waiting = False
            if held.sock.fileno() >= 0:
                active.add(held)
                self._read(held)

    def _catch_up(self, active: set[WorkerSocket]) -> None:
        """Process input that waits since an earlier turn, one connection at a time, within the limit of this turn."""
        for _ in range(len(self._behind)):
            if self._controls_left <= 0:
                return
            held = self._behind.popleft()
            if held.sock.fileno() < 0:
                continue
            held.behind = False
            try:
                turn = held.terminal.go_on(CONTROLS_OF_ONE)
            except Exception:
                self._break_off(held)
                continue
            self._note_controls(held, turn)
            active.add(held)

    def _read_passed_over(self, active: set[WorkerSocket]) -> None:
        """Read the sockets that the previous turn skipped."""
        passed_over, self._passed_over = self._passed_over, []
        for held in passed_over:
            held.passed_over = False
            if held.sock.fileno() >= 0:
                active.add(held)
                self._read(held)

    def _note_controls(self, held: WorkerSocket, turn: Turn, took_s: float = 0.0) -> int:
        """Return the number of control frames that were processed of the `CONTROLS_OF_ONE` that were allowed."""
        done = CONTROLS_OF_ONE - turn.controls_left
        if held.read_bytes == LEAST_READ_BYTES:
            self._controls_left -= max(done, int(took_s / CONTROL_S))
        if turn.is_behind:
            held.behind = True
            self._behind.append(held)
        return done

    def _begin_adopted(self, active: set[WorkerSocket]) -> None:
        """Take over the connections that other threads passed to this worker."""
        while self._adopted:
            sock, terminal, address = self._adopted.popleft()
            held = self._begin(sock, terminal)
            active.add(held)
            if address:
                self._make_room(held, address, active)

    def _begin(self, sock: socket.socket, terminal: Conversation) -> WorkerSocket:
        held = WorkerSocket(sock, terminal, self._clock.monotonic_s())
        self._sockets[sock.fileno()] = held
        self._by_terminal[terminal] = held
        self._epoll.register(sock.fileno(), READ)
        return held

    def _make_room(self, held: WorkerSocket, address: str, active: set[WorkerSocket]) -> None:
        """Count an unauthenticated connection; if there are too many, another one is closed."""
        held.is_counted = True
        oldest = self._openings.add(held, address)
        if isinstance(oldest, WorkerSocket):
            log.info("%s: closed before its login: silent for longest when others came", oldest.terminal.name)
            active.discard(oldest)
            self._drop(oldest)

    def _stop_counting(self, held: WorkerSocket) -> None:
        """Remove a connection from those that are not authenticated."""
        held.is_counted = False
        self._openings.remove(held)

    def _room(self, held: WorkerSocket, is_ended: bool) -> int:
        """Return the number of bytes to read of a socket now; 0 if it waits."""
        if held.waiting or held.behind or (held.full and not is_ended):
            return 0
        if held.read_bytes == LEAST_READ_BYTES and self._controls_left <= 0:
            return 0
        terminal, room = held.terminal, self.incoming.free_bytes
        brings_long = terminal.brings_long
        if room <= 0 or (self._held_up and brings_long):
            held.waiting = True
            self._waiting.append(held)
            return 0
        if terminal.user != self._shares.sole_user:
            left = self._shares.room(terminal.user)
            if left == 0:
                self._pass_over(held)
                return 0
            if left is not None:
                room = min(room, left)
        if terminal.is_opening:
            return min(room, MAX_AHEAD_BYTES)
        return min(room, SHARE_BYTES if self._crowded and brings_long else READ_BYTES, held.read_bytes)

    def _pass_over(self, held: WorkerSocket) -> None:
        """Leave a socket to the next turn, because its user has used their share of this one."""
        self._shares.wants(held.terminal.user)
        if not held.passed_over:
            held.passed_over = True
            self._passed_over.append(held)

    def _read(self, held: WorkerSocket, *, is_ended: bool = False) -> None:
        room = READ_BYTES if held.terminal.closed else self._room(held, is_ended)
        if not room:
            return
        try:
            size = held.sock.recv_into(self._buffer, room)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            size = 0
        terminal = held.terminal
        if terminal.closed:
            if not size:
                self._drop(held)
                return
            held.discards = True  # the client still sends: it may not have read the close frame yet
            if self._latest_give_up_s:
                self._give_up_s = min(self._clock.monotonic_s() + GOODBYE_S, self._latest_give_up_s)
            return
        user, is_opening, begun_s = terminal.user, terminal.is_opening, perf_counter()
        try:
            if not size:
                terminal.end_input()
                return
            self.incoming.free_bytes -= size
            self._read_bytes += size
            if user != self._shares.sole_user:
                self._shares.spend(user, size)
            turn = terminal.receive(self._view[:size], CONTROLS_OF_ONE)
        except Exception:
            self._break_off(held)
            return
        took_s = perf_counter() - begun_s
        is_unusual = turn.is_behind or turn.controls_left <= 0 or took_s > MOST_DIGEST_S
        if is_unusual or size == room or held.read_bytes == LEAST_READ_BYTES:
            self._adapt(held, turn, size == room, took_s)
        if turn.is_small:
            self._others_s = self._now_s
        elif terminal.brings_long:
            self._brings_long = True
        if is_opening:
            self._note_opening(held)

    def _adapt(self, held: WorkerSocket, turn: Turn, is_full: bool, took_s: float) -> None:
        """Increase the size of reads of a connection that sends messages, and decrease it if it sends other work."""
        done = self._note_controls(held, turn, took_s)
        if done >= CONTROLS_OF_ONE or (took_s > MOST_DIGEST_S and not turn.has_messages):
            held.read_bytes = LEAST_READ_BYTES
        elif turn.has_messages and (is_full or held.read_bytes == LEAST_READ_BYTES):
            held.read_bytes = min(READ_BYTES, held.read_bytes * 2)

    def _note_opening(self, held: WorkerSocket) -> None:
        """Handle input of a connection that is not open. When it opens, its heartbeat interval becomes known."""
        if held.terminal.is_opening:
            self._openings.heard(held)
        else:
            self._stop_counting(held)
            self._next_tick_s = min(self._next_tick_s, self._tick_one(held, self._clock.monotonic_s()))

    def _break_off(self, held: WorkerSocket) -> None:
        """Close a connection whose input triggered a defect; call it with the exception at hand."""
        log.exception("%s: internal error, the connection is closed", held.terminal.name)
        held.terminal.give_up()
        self._drop(held)

    def _write(self, held: WorkerSocket) -> None:
        if held.sock.fileno() < 0:
            return
        terminal = held.terminal
        held.more = False
        if not held.blocked and not held.ended:
            written_bytes = 0
            try:
                data = terminal.output()
                while data:
                    size = held.sock.send(data)
                    data = terminal.sent(size)
                    written_bytes += size
                    if written_bytes >= SHARE_BYTES and self._has_written(terminal, written_bytes):
                        held.more = True
                        break
            except (BlockingIOError, InterruptedError):
                held.blocked = True
            except OSError:
                self._drop(held)
                return
            if terminal.closed and terminal.finished():
                self._finish(held)
                return
        if held.events != READ or held.blocked or held.more or held.waiting or held.behind or terminal.holding:
            self._watch(held)

    def _has_written(self, terminal: Conversation, written_bytes: int) -> bool:
        """Return whether a connection has written its share of this turn."""
        return written_bytes >= WRITE_BYTES or (self._crowded and terminal.takes_long())

    def _finish(self, held: WorkerSocket) -> None:
        """Shut down the sending side. Unread input is discarded: it would make the system drop the last output."""
        if held.terminal.client_is_done():
            self._drop(held)
            return
        with suppress(OSError):
            held.sock.shutdown(socket.SHUT_WR)
        held.ended = True
        self._watch(held)

    def _watch(self, held: WorkerSocket) -> None:
        """Register the epoll events that are needed now."""
        events = WRITE if held.blocked or held.more else 0
        held.full = held.terminal.is_full()
        if held.full:
            events |= select.EPOLLRDHUP
        elif not (held.waiting or held.behind or (held.blocked and held.terminal.unanswered() > MOST_UNANSWERED)):
            events |= READ
        if events != held.events:
            held.events = events
            self._epoll.modify(held.sock.fileno(), events)

    def _tick(self, now_s: float) -> float:
        """Run the timers of all connections; return the time until the next one."""
        return min((self._tick_one(held, now_s) for held in list(self._sockets.values())), default=now_s + TICK_S)

    def _tick_one(self, held: WorkerSocket, now_s: float) -> float:
        terminal = held.terminal
        if terminal.closed:
            held.closed_s = held.closed_s or now_s
            if now_s - held.closed_s > (LONGEST_GOODBYE_S if held.discards else GOODBYE_S):
                self._drop(held)
            held.discards = False
            return now_s + TICK_S
        if terminal.is_opening and now_s - held.opened_s > terminal.patience_s:
            log.info("%s: nothing was opened within %.0f s", terminal.name, terminal.patience_s)
            self._drop(held)
            return now_s + TICK_S
        due_ms = terminal.tick(int(now_s * 1000))
        return min(now_s + TICK_S, due_ms / 1000) if due_ms else now_s + TICK_S

    def _drop(self, held: WorkerSocket) -> None:
        """Close the socket. The terminal's content is released by the actions that it posts."""
        fd = held.sock.fileno()
        if fd < 0:
            return
        self._stop_counting(held)
        held.terminal.give_up()
        del self._sockets[fd]
        del self._by_terminal[held.terminal]
        self._epoll.unregister(fd)
        held.sock.close()
        held.terminal.free()
        self._core.run()


def _is_silent(sock: socket.socket) -> bool:
    """Return whether nothing can be read from *sock*."""
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except OSError:
        return True
