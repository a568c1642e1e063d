"""Memory of readers of history: of two users at a time, on a long journal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from proton import Message

from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.recovery.recover import open_store
from cairnmq.store.contract.options import StoreOptions
from tests.conftest import Tell
from tests.harness.console.accounts import write_users
from tests.harness.console.browser import ApiClient, Reply
from tests.harness.console.processes import descendants
from tests.harness.process import DEADLINE_S, broker
from tests.harness.store.stores import NOW_US, queue

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

READER, CONSOLE = "cairnmq.console.history.worker", "cairnmq.console.beside"
SHORT_BYTES, LONG_BYTES = 10 << 20, 100 << 20
BODY_BYTES = 1000
BATCH = 500
USERS = ("anna", "berta")
RULES = """
[[rules]]
who = ["anna", "berta"]
may = ["*"]
"""
MOST_GROWTH_BYTES = 64 << 20
"""Of one reader, for 90 MB more journal."""


class Peak(NamedTuple):
    """The largest memory of processes, without the pages of the files that they read."""

    reader_bytes: int
    readers: int
    console_bytes: int


def fill(directory: Path, size_bytes: int) -> None:
    """Write a journal of messages, of which a quarter stay on the queue."""
    store, _ = open_store(str(directory), ManualClock(), StoreOptions(8 << 20))
    store.run_inline(store.became_durable)
    queue_id = queue(store, "orders")
    number = 0
    while number * BODY_BYTES < size_bytes:
        ids = []
        for _ in range(BATCH):
            content = bytes(Message(id=f"m{number}", body=b"x" * BODY_BYTES, durable=True).encode())
            ids.append(store.put(queue_id, content, NOW_US)[0])
            number += 1
        store.kick()
        for message_id in ids[BATCH // 4 :]:
            store.dequeue(message_id, queue_id, NOW_US)
        store.kick()
    store.close()


@contextmanager
def asking(port: int) -> Iterator[list[Future[Reply]]]:
    """Two users, each with a question about the whole journal."""
    paths = ("/history/trace?message_id=never-sent", "/history/contents?at=end&queue=orders&limit=1000")
    clients = [ApiClient(port) for _ in USERS]
    for client, user in zip(clients, USERS, strict=True):
        assert client.login(user, f"{user}-password").status == 201
    with ThreadPoolExecutor(len(clients)) as pool:
        yield [pool.submit(client.api, "GET", path) for client, path in zip(clients, paths, strict=True)]


def own_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon"))


def measured(directory: Path, size_bytes: int) -> Peak:
    directory.mkdir()
    fill(directory / "store", size_bytes)
    write_users(directory / "users", {user: f"{user}-password" for user in USERS})
    (directory / "acl.toml").write_text(RULES)
    options = ("--users-file", str(directory / "users"), "--acl-file", str(directory / "acl.toml"), "--http-port", "0")
    with broker(directory / "store", *options) as process:
        port = int(process.wait_for(r"web console at .*:(\d+)/")[1])
        sizes: dict[int, int] = {}
        console_bytes = readers = 0
        with asking(port) as questions:
            [console] = descendants(process.process.pid, CONSOLE)
            until_s = time.monotonic() + DEADLINE_S
            while not all(one.done() for one in questions):
                assert time.monotonic() < until_s
                pids = descendants(process.process.pid, READER)
                readers = max(readers, len(pids))
                for pid in pids:
                    with suppress(OSError, StopIteration):  # it has ended
                        sizes[pid] = max(sizes.get(pid, 0), own_bytes(pid))
                console_bytes = max(console_bytes, own_bytes(console))
        assert [one.result().status for one in questions] == [200, 200], [one.result() for one in questions]
        assert questions[1].result().value["total"] * BODY_BYTES * 4 >= size_bytes
    return Peak(max(sizes.values()), readers, console_bytes)


def test_memory_of_two_readers_does_not_grow_with_the_journal(tmp_path: Path, tell: Tell) -> None:
    short, long = measured(tmp_path / "short", SHORT_BYTES), measured(tmp_path / "long", LONG_BYTES)
    for size, peak in ((SHORT_BYTES, short), (LONG_BYTES, long)):
        tell(
            f"journal of {size >> 20} MiB, {peak.readers} readers at a time: the larger one has "
            f"{peak.reader_bytes / (1 << 20):.0f} MiB, the console {peak.console_bytes / (1 << 20):.0f} MiB"
        )
    assert long.readers == len(USERS)
    assert long.reader_bytes - short.reader_bytes < MOST_GROWTH_BYTES
    assert long.console_bytes - short.console_bytes < MOST_GROWTH_BYTES // 4
