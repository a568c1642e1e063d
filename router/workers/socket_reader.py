"""Reading for a worker: the order and the amount in which the sockets of one turn are read.

A connection gets at most `READ_BYTES` of a turn, so that long messages of one leave time for others (RFC005 F27). Long
messages are limited to `SHARE_BYTES` while other traffic arrived in the last second.

Input occupies buckets until the core has taken it over. Without a free bucket connections wait unread, the longest wait
is served first, and TCP pushes back (F26). A connection that takes no answers while it sends requests is not read
either. One that sends a long message waits while the disk is busy with its content: otherwise small messages of others,
which must be durable before they are confirmed, would wait behind all of that.
"""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from ...amqp.native.buffer_pool import Buckets
from ...amqp.ports import Drivers
from ...amqp.sasl.handshake import MAX_AHEAD_BYTES
from ...base.clock import Clock
from ..admission.user_shares import UserShares
from ..connections.terminal import Turn
from ..kernel.core import Core
from .heartbeats import Heartbeats
from .orderly_end import OrderlyEnd
from .socket_table import SocketTable
from .worker_socket import WRITE, WorkerSocket

READ_BYTES = 256 << 10
SHARE_BYTES = 64 << 10
OTHERS_S = 1.0
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

_TOO_LITTLE = Turn(CONTROLS_OF_ONE, False, False, False)
"""The effect of a part of a protocol header."""
_ENDED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


@dataclass(eq=False, repr=False)
class SocketReader:
    """Reads the sockets of one worker within their limits; the worker's thread only, unless noted."""

    _sockets: SocketTable
    _end: OrderlyEnd
    _heartbeats: Heartbeats
    _core: Core
    _drivers: Drivers
    _clock: Clock
    incoming: Buckets
    """The content that was read and that the core has not taken over."""
    _ring: Callable[[], None]
    """Wakes the worker. Any thread."""
    _handle_other: Callable[[int], None]
    """Gets ready descriptors that belong to no connection."""

    def __post_init__(self) -> None:
        self._buffer = bytearray(READ_BYTES)
        self._view = memoryview(self._buffer)
        self.waiting: deque[WorkerSocket] = deque()
        """Sockets that wait for a bucket, or for the disk."""
        self.behind: deque[WorkerSocket] = deque()
        """Sockets with unprocessed bytes, in the order of their turns."""
        self._passed_over: list[WorkerSocket] = []
        self.shares = UserShares(self._drivers.core_share)
        self._controls_left = 0
        """Control frames that may still be processed in this turn, of connections that sent many."""
        self.read_bytes = 0
        """Bytes in the buckets that were read in this turn."""
        self._brings_long = False
        """True if some of them are part of a long message."""
        self._held_up = False
        """True while long messages wait for the disk. Written only by the core."""
        self.taken_over: deque[int] = deque()
        """Bytes of content that the core has taken over from the buckets since; appended by the core."""
        self._now_s = 0.0
        """The approximate time at which the last turn began."""
        self._others_s = -OTHERS_S
        """The last time at which input arrived that was not part of a long message."""
        self.is_crowded = False
        """True if that was less than a second ago."""

    def read_turn(self, ready: list[tuple[int, int]], active: set[WorkerSocket]) -> float:
        """Read the sockets of a turn, and add them to *active*; return the time.

        *ready*: the descriptors that epoll found, with their events.
        """
        self._controls_left = CONTROLS_OF_ALL
        if self.behind:
            self._catch_up(active)
        if self.shares.sole_user is None:
            self.shares.begin_turn()
        if self._passed_over:
            self._read_passed_over(active)
        by_fd = self._sockets.by_fd
        for fd, mask in ready:
            held = by_fd.get(fd)
            if held is None:
                self._handle_other(fd)
                continue
            active.add(held)
            if mask & WRITE:
                held.blocked = False
            if mask & ~WRITE:
                self._read(held, is_ended=bool(mask & _ENDED))
        self._now_s = now_s = self._clock.monotonic_s()
        self.is_crowded = now_s - self._others_s < OTHERS_S
        return now_s

    def put_behind(self, held: WorkerSocket) -> None:
        """Process input of a connection that was read, but not processed, in a later turn."""
        held.behind = True
        self.behind.append(held)

    def _catch_up(self, active: set[WorkerSocket]) -> None:
        """Process input that waits since an earlier turn, one connection at a time, within the limit of this turn."""
        for _ in range(len(self.behind)):
            if self._controls_left <= 0:
                return
            held = self.behind.popleft()
            if held.sock.fileno() < 0:
                continue
            held.behind = False
            try:
                turn = held.terminal.go_on(CONTROLS_OF_ONE)
            except Exception:
                self._sockets.abort(held)
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
            self.waiting.append(held)
            return 0
        if terminal.user != self.shares.sole_user:
            left = self.shares.room(terminal.user)
            if left == 0:
                self._pass_over(held)
                return 0
            if left is not None:
                room = min(room, left)
        if terminal.is_opening:
            return min(room, MAX_AHEAD_BYTES)
        return min(room, SHARE_BYTES if self.is_crowded and brings_long else READ_BYTES, held.read_bytes)

    def _pass_over(self, held: WorkerSocket) -> None:
        """Leave a socket to the next turn, because its user has used their share of this one."""
        self.shares.wants(held.terminal.user)
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
            if size:
                self._end.discard(held)
            else:
                self._sockets.close(held)
            return
        user, is_opening, begun_s = terminal.user, terminal.is_opening, perf_counter()
        try:
            if not size:
                terminal.end_input()
                return
            self.incoming.free_bytes -= size
            self.read_bytes += size
            if user != self.shares.sole_user:
                self.shares.spend(user, size)
            data: bytes | memoryview = self._view[:size]
            if held.other is not None:
                data = self._sockets.choose(held, self._view[:size])
                terminal = held.terminal
            turn = terminal.receive(data, CONTROLS_OF_ONE) if data else _TOO_LITTLE
        except Exception:
            self._sockets.abort(held)
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

    def _note_controls(self, held: WorkerSocket, turn: Turn, took_s: float = 0.0) -> int:
        """Return the number of control frames that were processed of the `CONTROLS_OF_ONE` that were allowed."""
        done = CONTROLS_OF_ONE - turn.controls_left
        if held.read_bytes == LEAST_READ_BYTES:
            self._controls_left -= max(done, int(took_s / CONTROL_S))
        if turn.is_behind:
            self.put_behind(held)
        return done

    def _note_opening(self, held: WorkerSocket) -> None:
        """Handle input of a connection that is not open. When it opens, its heartbeat interval becomes known."""
        if held.terminal.is_opening:
            self._sockets.note_progress(held)
        else:
            self._sockets.stop_counting(held)
            self._heartbeats.begin(held)

    def hand_over(self) -> bool:
        """Have the core handle the input of this turn, after which its buckets are free again; return whether it has.

        If this thread runs the core to the end of the input, it frees them itself. Long messages always leave that to
        the core, which knows whether they must wait for the disk.
        """
        size_bytes, self.read_bytes = self.read_bytes, 0
        if self._brings_long or not self._core.run():
            self._core.post(self._note_taken_over, size_bytes, self._brings_long)
            self._brings_long = False
            return False
        self.incoming.free_bytes += size_bytes
        if self.waiting:
            self.taken_over.append(0)
        return True

    def _note_taken_over(self, size_bytes: int, is_long: bool) -> None:
        """Free the buckets of a turn, whose input was handled. Called on the core."""
        self.taken_over.append(size_bytes)
        if is_long and not self._held_up:
            self._held_up = self._drivers.held_up(self._resume_long)
        if self.waiting:
            self._ring()

    def _resume_long(self) -> None:
        """Resume long messages, since the disk has caught up. Called on the core."""
        self._held_up = False
        self.taken_over.append(0)
        self._ring()

    def read_waiting(self, active: set[WorkerSocket]) -> None:
        """Read waiting connections in order, as far as the buckets that were freed allow."""
        while self.taken_over:
            self.incoming.free_bytes += self.taken_over.popleft()
        waiting, self.waiting = self.waiting, deque()
        for held in waiting:
            held.waiting = False
            if held.sock.fileno() >= 0:
                active.add(held)
                self._read(held)
