"""The bus on corosync: closed process groups for messages and members, the quorum service beside them.

Rules that were paid for: dispatch one event at a time and never "all"; a mebibyte of stack for it; no exception out of
a callback, which only appends to a list; the only sign of back-pressure is TRY_AGAIN, without an event for its end; the
error LIBRARY means that the local daemon is dead.

`join` and `rejoin` connect, which takes a moment, and waits for a daemon that is paused; `join` fails with a
`GroupError` that tells what is missing. Everything else comes back at once. Members and rings are told by two
callbacks: a `BusChange` is made of either.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any

from .bus import Address, BusChange, BusDied, BusEvent, BusMessage, BusQuorum, RingId
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
from .group import GroupError

STACK_BYTES = 2 << 20
"""Dispatching takes one mebibyte of the thread's stack, at once."""
JOIN_RETRY_S = 0.02
CLOSE_S = 2.0
"""So long a daemon has to take leave of us."""
V1 = 1
INITIAL_RING = 1


class CorosyncBus:
    """This process's place on the bus of the local corosync."""

    def __init__(self, configured: int | None = None) -> None:
        """*configured* members instead of as many as the nodelist has."""
        self.address = Address(0, 0)
        self.configured = configured or 0
        self._name = ffi.new("struct cpg_name *")
        self._cpg = self._quorum = 0
        """Handles; 0 while there is none."""
        self._joined = False
        self._came: deque[BusEvent] = deque()
        self._members: frozenset[Address] = frozenset()
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
            raise GroupError(f"cluster name {name!r}", f"it takes 1 to {MAX_NAME_BYTES} bytes")
        _check_stack()
        self._name.length = len(encoded)
        ffi.memmove(self._name.value, encoded, len(encoded))
        self._epoll = select.epoll()
        try:
            self._open()
            self._open_quorum()
            self.configured = self.configured or nodes_configured()
            self._try_join()
        except GroupError:
            self.close()
            raise

    def rejoin(self) -> None:
        """By a new connection: the daemon tells the others as soon as the old one is closed."""
        self._close_cpg()
        self._came.clear()
        try:
            self._open()
            self._try_join()
        except GroupError as error:
            self._dead = error.reason

    def send(self, frame: bytes) -> bool:
        if not self._joined or self._dead:
            return False
        self._vector.iov_base = ffi.from_buffer(frame)
        self._vector.iov_len = len(frame)
        result = load().cpg.cpg_mcast_joined(self._cpg, AGREED, self._vector, 1)
        if result != OK and result not in NOT_NOW:
            self._died(result)
        return bool(result == OK)

    def poll(self, limit: int) -> Iterable[BusEvent]:
        libraries = load()
        if not self._dead and not self._joined:
            try:
                self._try_join()
            except GroupError as error:
                self._dead = error.reason
        if not self._dead:
            self._dispatch(libraries.quorum.quorum_dispatch, self._quorum, limit)
        if not self._dead:
            self._dispatch(libraries.cpg.cpg_dispatch, self._cpg, limit)
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
        """A daemon that is paused answers nothing: it is waited for a moment, and told by this process's end."""
        cpg, quorum = self._cpg, self._quorum
        self._cpg = self._quorum = 0
        self._joined = False
        if cpg or quorum:
            ending = threading.Thread(target=_finalize, args=(cpg, quorum), name="cairnmq-goodbye", daemon=True)
            ending.start()
            ending.join(CLOSE_S)
        if self._epoll:
            self._epoll.close()

    # ---- connections ------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        cpg = load().cpg
        handle, number = ffi.new("uint64_t *"), ffi.new("unsigned int *")
        deliver, members, ring, _ = self._callbacks
        model = ffi.new("cpg_model_v1_data_t *", (V1, deliver, members, ring, INITIAL_RING))
        check(cpg.cpg_model_initialize(handle, V1, model, ffi.NULL), "to connect")
        self._cpg = handle[0]
        check(cpg.cpg_local_get(self._cpg, number), "to learn the number of this node")
        self.address = Address(number[0], os.getpid())
        self._watch(cpg.cpg_fd_get, self._cpg)

    def _open_quorum(self) -> None:
        quorum = load().quorum
        handle, kind = ffi.new("uint64_t *"), ffi.new("uint32_t *")
        callbacks = ffi.new("quorum_callbacks_t *", (self._callbacks[3],))
        check(quorum.quorum_initialize(handle, callbacks, kind), "to connect to the quorum service")
        self._quorum = handle[0]
        if not kind[0]:
            raise GroupError(
                "corosync.conf", "it has no quorum provider", "write quorum { provider: corosync_votequorum } to it"
            )
        check(quorum.quorum_trackstart(self._quorum, TRACK_CURRENT | TRACK_CHANGES), "to follow quorum")
        self._watch(quorum.quorum_fd_get, self._quorum)

    def _watch(self, fd_get: Any, handle: int) -> None:
        number = ffi.new("int *")
        check(fd_get(handle, number), "to learn what to wait on")
        with contextlib.suppress(FileExistsError):
            self._epoll.register(number[0], select.EPOLLIN)

    def _try_join(self) -> None:
        result = load().cpg.cpg_join(self._cpg, self._name)
        if result == OK:
            self._joined = True
        elif result not in NOT_NOW and result != EXIST:  # it exists: an earlier place of ours is still being left
            check(result, "to join the group")

    def _close_cpg(self) -> None:
        if self._cpg:
            load().cpg.cpg_finalize(self._cpg)  # its descriptor leaves the epoll by being closed
            self._cpg = 0
        self._joined = False
        self._members = frozenset()

    # ---- what comes -------------------------------------------------------------------------------------------------

    def _dispatch(self, dispatch: Any, handle: int, limit: int) -> None:
        for _ in range(limit):
            result = dispatch(handle, ONE_NONBLOCKING)
            if result != OK:
                if result not in NOT_NOW:
                    self._died(result)
                return

    def _died(self, result: int) -> None:
        self._dead = f"corosync died or cut us off (error {result})"

    def _failed(self, kind: Any, error: BaseException, trace: Any) -> None:
        """A callback raised: what it was told is lost, so nothing after it may be believed."""
        self._dead = f"what corosync said could not be taken: {error!r}"

    def _delivered(self, handle: int, name: Any, node: int, pid: int, message: Any, size: int) -> None:
        self._came.append(BusMessage(Address(node, pid), ffi.buffer(message, size)[:]))

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
        self._came.append(BusQuorum(bool(quorate)))


def _finalize(cpg: int, quorum: int) -> None:
    if cpg:
        load().cpg.cpg_finalize(cpg)
    if quorum:
        load().quorum.quorum_finalize(quorum)


def _addresses(some: Any, count: int) -> frozenset[Address]:
    return frozenset(Address(some[index].nodeid, some[index].pid) for index in range(count))


def _check_stack() -> None:
    """A thread with a small stack would be killed in the middle of the first dispatch."""
    size = threading.stack_size()
    if not size:
        soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
        size = STACK_BYTES if soft == resource.RLIM_INFINITY else soft
    if size < STACK_BYTES:
        raise GroupError(
            "cluster group",
            f"a thread has {size // 1024} KiB of stack, corosync's library needs {STACK_BYTES // 1024}",
            "raise it: ulimit -s 8192",
        )  # fmt: skip
