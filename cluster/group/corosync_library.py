"""Corosync's client libraries, called through cffi in ABI mode, which needs no compiler.

Only the functions that the bus calls are declared. The version numbers of the library files are those of corosync 3. A
missing library is reported.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import cffi

from .group import GroupError

PACKAGES = "apt-get install corosync libcpg4 libquorum5 libcmap4"

OK, LIBRARY, TIMEOUT, TRY_AGAIN, BAD_HANDLE, BUSY, ACCESS, EXIST = 1, 2, 5, 6, 9, 10, 11, 14
NO_RESOURCES, QUEUE_FULL, NO_SECTIONS, SECURITY = 18, 23, 27, 100
ONE_NONBLOCKING = 4
"""Dispatches one event without blocking. Dispatching all events may never return under load."""
AGREED = 2
TRACK_CURRENT, TRACK_CHANGES = 1, 2
MAX_NAME_BYTES = 128
NOT_NOW = frozenset((TIMEOUT, TRY_AGAIN, BUSY, NO_RESOURCES, QUEUE_FULL))

_NAMES = {
    2: "LIBRARY", 3: "VERSION", 4: "INIT", 5: "TIMEOUT", 6: "TRY_AGAIN", 7: "INVALID_PARAM", 8: "NO_MEMORY",
    9: "BAD_HANDLE", 10: "BUSY", 11: "ACCESS", 12: "NOT_EXIST", 13: "NAME_TOO_LONG", 14: "EXIST", 15: "NO_SPACE",
    16: "INTERRUPT", 18: "NO_RESOURCES", 19: "NOT_SUPPORTED", 20: "BAD_OPERATION", 21: "FAILED_OPERATION",
    22: "MESSAGE_ERROR", 23: "QUEUE_FULL", 26: "TOO_BIG", 27: "NO_SECTIONS", 30: "TOO_MANY_GROUPS", 100: "SECURITY",
}  # fmt: skip

ffi: Any = cffi.FFI()
ffi.cdef("""
struct iovec { void *iov_base; size_t iov_len; };
struct cpg_address { uint32_t nodeid; uint32_t pid; uint32_t reason; };
struct cpg_name { uint32_t length; char value[128]; };
struct cpg_ring_id { uint32_t nodeid; uint64_t seq; };
typedef void (*cpg_deliver_fn_t)(uint64_t, const struct cpg_name *, uint32_t, uint32_t, void *, size_t);
typedef void (*cpg_confchg_fn_t)(uint64_t, const struct cpg_name *, const struct cpg_address *, size_t,
    const struct cpg_address *, size_t, const struct cpg_address *, size_t);
typedef void (*cpg_totem_confchg_fn_t)(uint64_t, struct cpg_ring_id, uint32_t, const uint32_t *);
typedef struct {
    int model; cpg_deliver_fn_t deliver; cpg_confchg_fn_t confchg; cpg_totem_confchg_fn_t totem; unsigned int flags;
} cpg_model_v1_data_t;
int cpg_model_initialize(uint64_t *, int model, cpg_model_v1_data_t *, void *);
int cpg_finalize(uint64_t);
int cpg_fd_get(uint64_t, int *);
int cpg_dispatch(uint64_t, int);
int cpg_join(uint64_t, const struct cpg_name *);
int cpg_mcast_joined(uint64_t, int, const struct iovec *, unsigned int);
int cpg_local_get(uint64_t, unsigned int *);

typedef void (*quorum_notification_fn_t)(uint64_t, uint32_t, uint64_t, uint32_t, uint32_t *);
typedef struct { quorum_notification_fn_t notify; } quorum_callbacks_t;
int quorum_initialize(uint64_t *, quorum_callbacks_t *, uint32_t *);
int quorum_finalize(uint64_t);
int quorum_fd_get(uint64_t, int *);
int quorum_dispatch(uint64_t, int);
int quorum_trackstart(uint64_t, unsigned int);

int cmap_initialize(uint64_t *);
int cmap_finalize(uint64_t);
int cmap_iter_init(uint64_t, const char *, uint64_t *);
int cmap_iter_next(uint64_t, uint64_t, char *, size_t *, int *);
int cmap_get_uint32(uint64_t, const char *, uint32_t *);
""")


class Libraries(NamedTuple):
    cpg: Any
    quorum: Any
    cmap: Any


@cache
def load() -> Libraries:
    """Loads the libraries; raises `GroupError` if they are not installed."""
    found = []
    for name in ("libcpg.so.4", "libquorum.so.5", "libcmap.so.4"):
        try:
            found.append(ffi.dlopen(name))
        except OSError as error:
            raise GroupError(f"corosync's {name}", "not installed", PACKAGES) from error
    return Libraries(*found)


def check(result: int, what: str) -> None:
    """Raises `GroupError`, with its remedy, if a call failed."""
    if result == OK:
        return
    if result == LIBRARY:
        raise GroupError("corosync", "not running", "start it: systemctl start corosync; see its log")
    if result in (ACCESS, SECURITY):
        raise GroupError(
            "corosync", "access denied for this user",
            "write uidgid { uid: USER gid: GROUP } to a file in /etc/corosync/uidgid.d and reload: corosync-cfgtool -R",
        )  # fmt: skip
    if result in NOT_NOW:
        raise GroupError("corosync", f"{what}: it is busy ({_NAMES[result]})", "try again in a moment")
    raise GroupError("corosync", f"{what} failed: CS_ERR_{_NAMES.get(result, result)}", "see corosync's log")


def nodes_configured() -> tuple[int, tuple[int, ...]]:
    """Returns the size of the nodelist in corosync.conf, and the node IDs that it states."""
    cmap = load().cmap
    handle, iterator = ffi.new("uint64_t *"), ffi.new("uint64_t *")
    check(cmap.cmap_initialize(handle), "to read its configuration")
    try:
        check(cmap.cmap_iter_init(handle[0], b"nodelist.node.", iterator), "to read its nodelist")
        key, node_id = ffi.new("char[256]"), ffi.new("uint32_t *")
        nodes, ids = set(), set()
        while cmap.cmap_iter_next(handle[0], iterator[0], key, ffi.NULL, ffi.NULL) == OK:
            _, _, number, name = ffi.string(key).split(b".", 3)
            nodes.add(number)
            if name == b"nodeid" and cmap.cmap_get_uint32(handle[0], key, node_id) == OK:
                ids.add(int(node_id[0]))
    finally:
        cmap.cmap_finalize(handle[0])
    if not nodes:
        raise GroupError("corosync.conf", "it has no nodelist", "list every node of the cluster in it")
    return len(nodes), (*sorted(ids),)
