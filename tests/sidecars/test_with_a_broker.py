"""The process that a broker starts for them, and that ends with it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from cairnmq.analytics.sidecars.folder import Folder
from cairnmq.analytics.views.journal import open_journal

from ..process import DEADLINE_S, BrokerProcess, broker


def until(true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline_s


def fill(running: BrokerProcess, count: int) -> None:
    connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
    sender = connection.create_sender("orders")
    for _ in range(count):
        sender.send(Message(body=b"x" * 100_000, durable=True))
    connection.close()


def keeper_of(running: BrokerProcess, of: str = "sidecars") -> int:
    """The process that the broker started for these; for a moment that still looks like the broker."""
    found: list[int] = []

    def is_found() -> bool:
        found.clear()
        with suppress(OSError):  # a thread or a process may end while it is looked at
            threads = Path(f"/proc/{running.process.pid}/task").iterdir()
            children = {int(pid) for thread in threads for pid in (thread / "children").read_text().split()}
            module = f"cairnmq.analytics.{of}.keeper"
            found[:] = [pid for pid in children if module in Path(f"/proc/{pid}/cmdline").read_text()]
        return len(found) == 1

    until(is_found)
    return found[0]


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def made(store: Path) -> set[int]:
    uuid = open_journal(str(store)).log.uuid
    return Folder(str(store / "sidecars"), uuid).containers


def sealed(store: Path) -> set[int]:
    return {piece.slot_lsn for piece in open_journal(str(store)).log.pieces if piece.last_lsn}


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_they_are_made_and_their_process_ends_with_the_broker(tmp_path: Path, end: signal.Signals) -> None:
    store = tmp_path / "store"
    with broker(store, "--port", "0", "--sidecars") as running:
        assert running.wait_for("sidecars in (.*)")[1] == str(store / "sidecars")
        child = keeper_of(running)
        fill(running, 40)
        until(lambda: len(made(store)) >= 3)
        running.stop(end)
        until(lambda: has_ended(child))
    with broker(store, "--port", "0", "--sidecars") as running:
        fill(running, 20)
        until(lambda: made(store) >= sealed(store) and len(made(store)) >= 4)


def test_a_broker_goes_on_without_them(tmp_path: Path) -> None:
    with broker(tmp_path / "store", "--port", "0", "--sidecars") as running:
        os.kill(keeper_of(running), signal.SIGKILL)
        running.wait_for("no more sidecars are made")
        fill(running, 3)
        assert running.stop() == 0
