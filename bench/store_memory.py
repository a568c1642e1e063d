"""Measurements of the memory that a store needs per message on a queue, and per open transaction.

Each kind of store runs in a separate process, where Python counts allocations (tracemalloc). Durable content is not in
memory; each transaction is local, with an enqueue of empty content and a dequeue.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable

from .running import now_us
from .store_kinds import KINDS, make_durable, open_with_queue
from .table import BenchError

_BATCH = 1000


def measure_memory(path: str, messages: int) -> dict[str, str]:
    """Return notes on the memory of each kind of store, by operation."""
    told = [(name, *_process(name, os.path.join(path, f"memory-{name}"), messages)) for name in KINDS]
    return {
        "put": ", ".join(f"{name} {a_message:.0f}" for name, a_message, _ in told)
        + " bytes of memory per live message",
        "transactions of 10": ", ".join(f"{name} {a_transaction:.0f}" for name, _, a_transaction in told)
        + " bytes of memory per open transaction of a put and a take",
    }


def _process(name: str, path: str, messages: int) -> tuple[float, float]:
    command = [sys.executable, "-m", f"{__package__}.store_memory", name, path, str(messages)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"the memory of {name}: {done.stderr[-2000:]}")
    a_message, a_transaction = json.loads(done.stdout)
    return a_message, a_transaction


def _bytes_of(work: Callable[[], object]) -> int:
    """Run *work* and return the number of bytes that remain allocated, including its result."""
    before_bytes = tracemalloc.get_traced_memory()[0]
    kept = work()
    left_bytes = tracemalloc.get_traced_memory()[0] - before_bytes
    del kept
    return left_bytes


def main() -> None:
    name, path, messages = sys.argv[1], sys.argv[2], int(sys.argv[3])
    (store, queue_id), content = open_with_queue(name, path), os.urandom(256)
    transactions = messages // 10

    def put_all() -> None:
        for _ in range(0, messages, _BATCH):
            for _ in range(_BATCH):
                _, lsn = store.put(queue_id, content, now_us())
            make_durable(store, lsn)

    def begin_all() -> object:
        kept = [store.transactions.begin(now_us()) for _ in range(transactions)]
        for transaction, message_id in zip(kept, message_ids, strict=False):
            transaction.put(queue_id, b"", now_us())
            transaction.dequeue(message_id, queue_id, now_us())
        return kept

    put_all()  # warm-up: allocations for only the first messages do not count
    tracemalloc.start()
    a_message = _bytes_of(put_all) / messages
    message_ids = store.messages()[queue_id]
    a_transaction = _bytes_of(begin_all) / transactions
    print(json.dumps([a_message, a_transaction]), flush=True)
    store.close()


if __name__ == "__main__":
    main()
