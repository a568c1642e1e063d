"""Tests of the memory of history readers, for two users at a time and a long journal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from proton import Message

from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.console.history.readers import HistoryReaders
from cairnmq.console.history.worker import FIRST_TO_END
from cairnmq.console.session.errors import ApiError
from cairnmq.recovery.recover import open_store
from cairnmq.store.contract.options import StoreOptions
from tests.conftest import Tell
from tests.harness.console.accounts import write_users
from tests.harness.console.browser import ApiClient, Reply
from tests.harness.console.processes import descendants
from tests.harness.process import DEADLINE_S, BrokerProcess, broker
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
"""Maximum memory growth of one reader if the journal is 90 MB larger."""


TRACE = "/history/trace?message_id=never-sent"
CONTENTS = "/history/contents?at=end&queue=orders&limit=1000"
DIFFERENCE = "/history/difference?from=0&to=end&queue=orders"


class Peak(NamedTuple):
    """The peak memory of processes, without the page cache of the files that they read."""

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


def log_in(port: int) -> list[ApiClient]:
    clients = [ApiClient(port) for _ in USERS]
    for client, user in zip(clients, USERS, strict=True):
        assert client.login(user, f"{user}-password").status == 201
    return clients


@contextmanager
def asking(clients: list[ApiClient], paths: Sequence[str]) -> Iterator[list[Future[Reply]]]:
    """Yield the replies to one request per user about the complete journal."""
    with ThreadPoolExecutor(len(clients)) as pool:
        yield [pool.submit(client.api, "GET", path) for client, path in zip(clients, paths, strict=True)]


def own_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon"))


@contextmanager
def served(directory: Path, size_bytes: int) -> Iterator[tuple[BrokerProcess, list[ApiClient]]]:
    """Yield a broker with a journal of *size_bytes*, and the sessions of its users."""
    directory.mkdir()
    fill(directory / "store", size_bytes)
    write_users(directory / "users", {user: f"{user}-password" for user in USERS})
    (directory / "acl.toml").write_text(RULES)
    options = ("--users-file", str(directory / "users"), "--acl-file", str(directory / "acl.toml"), "--http-port", "0")
    with broker(directory / "store", *options) as process:
        yield process, log_in(int(process.wait_for(r"web console at .*:(\d+)/")[1]))


def peak_of(process: BrokerProcess, clients: list[ApiClient], *paths: str) -> Peak:
    """Return the peak memory while each client sends one request."""
    sizes: dict[int, int] = {}
    console_bytes = readers = 0
    is_first = False
    [console] = descendants(process.process.pid, CONSOLE)
    with asking(clients, paths) as questions:
        until_s = time.monotonic() + DEADLINE_S
        while not all(one.done() for one in questions):
            assert time.monotonic() < until_s
            pids = descendants(process.process.pid, READER)
            readers = max(readers, len(pids))
            for pid in pids:
                with suppress(OSError, StopIteration):  # the process has ended
                    sizes[pid] = max(sizes.get(pid, 0), own_bytes(pid))
                    is_first |= Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == FIRST_TO_END
            console_bytes = max(console_bytes, own_bytes(console))
    assert [one.result().status for one in questions] == [200, 200], [one.result() for one in questions]
    assert is_first, "the kernel ends a reader, and not the broker, when the memory runs out"
    return Peak(max(sizes.values()), readers, console_bytes)


def test_reader_that_needs_too_much_memory_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "store", 1 << 20)
    asked: dict[str, Any] = {"from": "0", "to": "end", "queue": "orders"}

    def ask(most_bytes: int) -> Any:
        return asyncio.run(
            HistoryReaders(str(tmp_path / "store"), None, (), most_bytes).ask("anna", "difference", **asked)
        )

    assert ask(1 << 30)["queues"]
    with pytest.raises(ApiError, match="needs more than 1 MiB of memory; name a queue or a shorter range") as caught:
        ask(1 << 20)
    assert (caught.value.status, caught.value.condition) == (507, "amqp:resource-limit-exceeded")


def test_memory_of_two_readers_does_not_grow_with_the_journal(tmp_path: Path, tell: Tell) -> None:
    peaks: dict[tuple[str, int], Peak] = {}
    for size_bytes in (SHORT_BYTES, LONG_BYTES):
        with served(tmp_path / str(size_bytes), size_bytes) as (process, clients):
            for name, path in (("contents", CONTENTS), ("difference", DIFFERENCE)):
                peak = peaks[name, size_bytes] = peak_of(process, clients, TRACE, path)
                assert peak.readers == len(USERS)
                tell(
                    f"journal of {size_bytes >> 20} MiB, trace and {name} at a time: the larger reader has "
                    f"{peak.reader_bytes / (1 << 20):.0f} MiB, the console {peak.console_bytes / (1 << 20):.0f} MiB"
                )
    for name in ("contents", "difference"):
        short, long = peaks[name, SHORT_BYTES], peaks[name, LONG_BYTES]
        assert long.reader_bytes - short.reader_bytes < MOST_GROWTH_BYTES
        assert long.console_bytes - short.console_bytes < MOST_GROWTH_BYTES // 4
