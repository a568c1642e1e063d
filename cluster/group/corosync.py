"""The bus on corosync: closed process groups for messages and members, and the quorum service.

Constraints of the library:

* Dispatch one event at a time, never "all".
* A dispatch needs one mebibyte of stack.
* A callback must not raise; it only appends to a list.
* TRY_AGAIN is the only sign of back-pressure; no event reports its end.
* The error LIBRARY means that the local daemon ended.

Connecting takes time, and blocks while the daemon is suspended, so a separate thread does it. `join` waits for this
thread for at most ANSWER_S, and raises a `GroupError` that names the missing part. `rejoin` does not wait: `poll`
checks whether the thread is done, and logs if the daemon does not respond. All other calls return immediately. Two
callbacks report members and rings; each call of either makes a `BusChange`.
"""

from __future__ import annotations

import logging
import os
import resource
import select
import threading
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from ...base.clock import Clock, SystemClock
from .bus import BusAddress, BusChange, BusDied, BusEvent, BusMessage, RingId
from .corosync_library import (
    AGREED,
    EXIST,
    MAX_NAME_BYTES,
    NOT_NOW,
    OK,
    ONE_NONBLOCKING,
    TRACK_CHANGES,
    TRACK_CURRENT,
    check,
    ffi,
    load,
    nodes_configured,
)
from .detached_call import DetachedCall
from .group import GroupError
from .group_events import Quorum

log = logging.getLogger(__name__)

STACK_BYTES = 2 << 20
"""The stack size that a thread needs: a dispatch allocates one mebibyte at once."""
JOIN_RETRY_S = 0.02
ANSWER_S = 10.0
"""A running daemon that does not respond for so long is considered suspended or hung."""
SILENT = "it is running, but has not answered for {:.0f} s"
SILENT_REMEDY = "it is paused or hangs: resume it (kill -CONT), or restart it (systemctl restart corosync); see its log"
CLOSE_S = 2.0
"""The time limit for the daemon to close the connections."""
V1 = 1
INITIAL_RING = 1


class CorosyncConnection(NamedTuple):
    """A connection to one service of the daemon."""

    handle: int
    fd: int
    node: int = 0
    """The ID of this node, for a connection to the closed process groups."""


class CorosyncBus:
    """The membership of this process on the bus of the local corosync."""

    def __init__(self, configured: int | None = None, clock: Clock | None = None, answer_s: float = ANSWER_S) -> None:
        """*configured*: the number of members, instead of the size of the nodelist."""
        self._clock = clock or SystemClock()
        self._answer_s = answer_s
        self.address = BusAddress(0, 0)
        self.configured = configured or 0
        self.nodes: tuple[int, ...] = ()
        """The node IDs of the nodelist."""
        self._name = ffi.new("struct cpg_name *")
        self._cpg: CorosyncConnection | None = None
        self._quorum: CorosyncConnection | None = None
        self._joining: DetachedCall[CorosyncConnection] | None = None
        """The call that connects and joins, while it runs."""
        self._joining_since_s = 0.0
        self._is_silent = False
        """True if the log reported that the daemon does not respond."""
        self._joined = False
        self._came: deque[BusEvent] = deque()
        self._members: frozenset[BusAddress] = frozenset()
        self._ring = RingId(0, 0)
        self._vector = ffi.new("struct iovec *")
        self._epoll: Any = None
        self._dead: str | None = None
        self._callbacks = (
            ffi.callback("cpg_deliver_fn_t", self._delivered, onerror=self._failed),
            ffi.callback("cpg_confchg_fn_t", self._members_changed, onerror=self._failed),
            ffi.callback("cpg_totem_confchg_fn_t", self._ring_changed, onerror=self._failed),
            ffi.callback("quorum_notification_fn_t", self._quorum_changed, onerror=self._failed),
        )

    def join(self, name: str) -> None:
        encoded = name.encode()
        if not 0 < len(encoded) <= MAX_NAME_BYTES:
            raise GroupError(f"cluster name {name!r}", f"invalid length: 1 to {MAX_NAME_BYTES} bytes are allowed")
        _check_stack()
        self._name.length = len(encoded)
        ffi.memmove(self._name.value, encoded, len(encoded))
        self._epoll = select.epoll()
        connecting = DetachedCall(self._connect, lambda found: _finalize(*found[:2]))
        if not connecting.ended(self._answer_s) and connecting.give_up():
            self.close()
            raise GroupError("corosync", SILENT.format(self._answer_s), SILENT_REMEDY)
        try:
            self._cpg, self._quorum, self.configured = connecting.result()
        except GroupError:
            self.close()
            raise
        self.address = BusAddress(self._cpg.node, os.getpid())
        self._epoll.register(self._quorum.fd, select.EPOLLIN)
        self._begin_joining(None)

    def rejoin(self) -> None:
        """Joins over a new connection: the daemon notifies the others as soon as the old one is closed."""
        self._came.clear()
        self._members = frozenset()
        before, self._cpg = self._cpg, None
        if before is not None and self._joined:
            self._epoll.unregister(before.fd)
        self._joined = False
        if self._joining is None:  # else the join that is running will do: it has received nothing yet
            self._begin_joining(before)

    def _begin_joining(self, before: CorosyncConnection | None) -> None:
        """Starts to join over the present connection, or over a new one that replaces *before*."""
        there, self._cpg = self._cpg, None
        self._joining = DetachedCall(partial(self._join, there, before), _finalize)
        self._joining_since_s = self._clock.monotonic_s()

    def send(self, frame: bytes) -> bool:
        if not self._joined or self._dead or self._cpg is None:
            return False
        self._vector.iov_base = ffi.from_buffer(frame)
        self._vector.iov_len = len(frame)
        result = load().cpg.cpg_mcast_joined(self._cpg.handle, AGREED, self._vector, 1)
        if result != OK and result not in NOT_NOW:
            self._died(result)
        return bool(result == OK)

    def poll(self, limit: int) -> Iterable[BusEvent]:
        libraries = load()
        if not self._dead and self._joining is not None:
            self._look_whether_joined(self._joining)
        if not self._dead and self._quorum is not None:
            self._dispatch(libraries.quorum.quorum_dispatch, self._quorum.handle, limit)
        if not self._dead and self._cpg is not None:
            self._dispatch(libraries.cpg.cpg_dispatch, self._cpg.handle, limit)
        came, self._came = self._came, deque()
        yield from came
        if self._dead:
            yield BusDied(self._dead)

    def fileno(self) -> int:
        return int(self._epoll.fileno())

    def wait_s(self) -> float | None:
        if self._dead or self._came:
            return 0.0
        return None if self._joined else JOIN_RETRY_S

    def close(self) -> None:
        """Closes the connections, waiting for at most CLOSE_S: a suspended daemon does not respond.

        It then detects the end of this process.
        """
        if self._joining is not None and not self._joining.give_up():
            self._look_whether_joined(self._joining)
        cpg, quorum = self._cpg, self._quorum
        self._cpg = self._quorum = self._joining = None
        self._joined = False
        if cpg or quorum:
            ending = threading.Thread(target=_finalize, args=(cpg, quorum), name="cairnmq-goodbye", daemon=True)
            ending.start()
            ending.join(CLOSE_S)
        if self._epoll:
            self._epoll.close()

    # ---- connections: each in a separate thread ---------------------------------------------------------------------

    def _connect(self, given_up: threading.Event) -> tuple[CorosyncConnection, CorosyncConnection, int]:
        cpg = self._open()
        quorum: CorosyncConnection | None = None
        try:
            quorum = self._open_quorum()
            configured, nodes = nodes_configured()
            self.nodes = nodes
            return cpg, quorum, self.configured or configured
        except GroupError:
            _finalize(cpg, quorum)
            raise

    def _join(
        self, there: CorosyncConnection | None, before: CorosyncConnection | None, given_up: threading.Event
    ) -> CorosyncConnection:
        """Joins the group over the connection *there*, or over a new one that replaces *before*."""
        _finalize(before)
        cpg = there or self._open()
        try:
            while (result := load().cpg.cpg_join(cpg.handle, self._name)) != OK:
                if result not in NOT_NOW and result != EXIST:  # EXIST: the earlier membership is still being closed
                    check(result, "to join the group")
                if given_up.wait(JOIN_RETRY_S):
                    break
        except GroupError:
            _finalize(cpg)
            raise
        return cpg

    def _open(self) -> CorosyncConnection:
        cpg = load().cpg
        handle, number = ffi.new("uint64_t *"), ffi.new("unsigned int *")
        deliver, members, ring, _ = self._callbacks
        model = ffi.new("cpg_model_v1_data_t *", (V1, deliver, members, ring, INITIAL_RING))
        check(cpg.cpg_model_initialize(handle, V1, model, ffi.NULL), "to connect")
        check(cpg.cpg_local_get(handle[0], number), "to read the ID of this node")
        return CorosyncConnection(handle[0], _descriptor(cpg.cpg_fd_get, handle[0]), number[0])

    def _open_quorum(self) -> CorosyncConnection:
        quorum = load().quorum
        handle, kind = ffi.new("uint64_t *"), ffi.new("uint32_t *")
        callbacks = ffi.new("quorum_callbacks_t *", (self._callbacks[3],))
        check(quorum.quorum_initialize(handle, callbacks, kind), "to connect to the quorum service")
        if not kind[0]:
            raise GroupError(
                "corosync.conf", "it has no quorum provider", "write quorum { provider: corosync_votequorum } to it"
            )
        check(quorum.quorum_trackstart(handle[0], TRACK_CURRENT | TRACK_CHANGES), "to follow quorum")
        return CorosyncConnection(handle[0], _descriptor(quorum.quorum_fd_get, handle[0]))

    def _look_whether_joined(self, joining: DetachedCall[CorosyncConnection]) -> None:
        waited_s = self._clock.monotonic_s() - self._joining_since_s
        if not joining.ended():
            if waited_s > self._answer_s and not self._is_silent:
                self._is_silent = True
                text, event = "corosync: %s; this broker waits: %s", {"event": "cluster.corosync-silent"}
                log.warning(text, SILENT.format(waited_s), SILENT_REMEDY, extra=event)
            return
        self._joining = None
        if self._is_silent:
            self._is_silent = False
            log.warning("corosync: it answers again after %.0f s", waited_s, extra={"event": "cluster.corosync-up"})
        try:
            self._cpg = joining.result()
        except GroupError as error:
            self._dead = error.reason
            return
        self._epoll.register(self._cpg.fd, select.EPOLLIN)
        self._joined = True

    # ---- callbacks --------------------------------------------------------------------------------------------------

    def _dispatch(self, dispatch: Any, handle: int, limit: int) -> None:
        for _ in range(limit):
            result = dispatch(handle, ONE_NONBLOCKING)
            if result != OK:
                if result not in NOT_NOW:
                    self._died(result)
                return

    def _died(self, result: int) -> None:
        self._dead = f"corosync ended or closed the connection (error {result})"

    def _failed(self, kind: Any, error: BaseException, trace: Any) -> None:
        """Ends the membership, because a callback raised: its event is lost, so no later event can be trusted."""
        self._dead = f"a callback from corosync failed: {error!r}"

    def _delivered(self, handle: int, name: Any, node: int, pid: int, message: Any, size: int) -> None:
        self._came.append(BusMessage(BusAddress(node, pid), ffi.buffer(message, size)[:]))

    def _members_changed(
        self, handle: int, name: Any, members: Any, members_count: int, left: Any, left_count: int, joined: Any,
        joined_count: int,
    ) -> None:  # fmt: skip
        self._members = _addresses(members, members_count)
        self._came.append(
            BusChange(self._ring, self._members, _addresses(left, left_count), _addresses(joined, joined_count))
        )

    def _ring_changed(self, handle: int, ring: Any, count: int, nodes: Any) -> None:
        self._ring = RingId(ring.nodeid, ring.seq)
        if self._members:
            self._came.append(BusChange(self._ring, self._members, frozenset(), frozenset()))

    def _quorum_changed(self, handle: int, quorate: int, ring_seq: int, count: int, nodes: Any) -> None:
        self._came.append(Quorum(bool(quorate)))


def _finalize(cpg: CorosyncConnection | None, quorum: CorosyncConnection | None = None) -> None:
    if cpg is not None:
        load().cpg.cpg_finalize(cpg.handle)
    if quorum is not None:
        load().quorum.quorum_finalize(quorum.handle)


def _descriptor(fd_get: Any, handle: int) -> int:
    """Returns the descriptor to wait on."""
    number = ffi.new("int *")
    check(fd_get(handle, number), "to get its file descriptor")
    return int(number[0])


def _addresses(some: Any, count: int) -> frozenset[BusAddress]:
    return frozenset(BusAddress(some[index].nodeid, some[index].pid) for index in range(count))


def _check_stack() -> None:
    """Checks the stack size: a thread with a small stack would be killed in the middle of the first dispatch."""
    size = threading.stack_size()
    if not size:
        soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
        size = STACK_BYTES if soft == resource.RLIM_INFINITY else soft
    if size < STACK_BYTES:
        raise GroupError(
            "cluster group",
            f"threads have {size // 1024} KiB of stack; corosync's library needs {STACK_BYTES // 1024} KiB",
            "raise it: ulimit -s 8192",
        )  # fmt: skip
