"""Program that creates a store, enqueues messages and records marks of confirmations.

    python -m tests.crash.founding KIND PATH
    python -m tests.crash.founding KIND PATH CONNECT CATALOG FIRST STEP

The second form creates stores on a server, PATH/N in catalog CATALOG-N for N = FIRST, FIRST + STEP, ...; each in a
separate process that is killed before its change number N, until one is not killed. PATH/N.marks has its marks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from itertools import count

from cairnmq.journal.write.open import MIN_CONTAINER_BYTES
from cairnmq.store import open_store
from cairnmq.store.contract.options import StoreOptions

from .recording import arm, mark

QUEUE = "orders"
MESSAGES = 3


def content_of(number: int) -> bytes:
    return b"message %d " % number + b"x" * 1000


def options_of(connect: str | None = None, catalog: str | None = None) -> StoreOptions:
    return StoreOptions(
        connect=connect, catalog=catalog, container_bytes=MIN_CONTAINER_BYTES, initial_containers=2
    )


def found(
    kind: str, path: str, connect: str | None = None, catalog: str | None = None, note: Callable[[str], None] = mark
) -> None:
    """Create the store and enqueue `MESSAGES` messages on `QUEUE`, one at a time."""
    with open_store(path, kind, options_of(connect, catalog)) as store:
        queue = store.queue(QUEUE)
        note("queue")
        for number in range(MESSAGES):
            queue.put(content_of(number)).result(180)
            note(f"message {number}")
    note("closed")


def found_killed(kind: str, path: str, connect: str, catalog: str, first: int, step: int) -> None:
    """Create stores on a server in processes that are killed, each one *step* changes later than the one before."""
    for number in count(first, step):
        child = os.fork()
        if not child:
            with open(f"{path}/{number}.marks", "a", buffering=1) as marks:
                arm(number)
                found(kind, f"{path}/{number}", connect, f"{catalog}-{number}", lambda text: print(text, file=marks))
            os._exit(0)
        if not os.waitpid(child, 0)[1]:
            return


if __name__ == "__main__":
    kind, path, *on_server = sys.argv[1:]
    if on_server:
        connect, catalog, first, step = on_server
        found_killed(kind, path, connect, catalog, int(first), int(step))
    else:
        found(kind, path)
