"""The process that maintains the column indexes (sidecars) of a running broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from proton import Message
from proton.utils import BlockingConnection

from cairnmq.analytics.views.journal import open_journal
from tests.harness.process import DEADLINE_S, BrokerProcess


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
    """Wait for the keeper process of *of*, and return its ID; before its exec, it has the broker's command line."""
    found: list[int] = []

    def is_found() -> bool:
        found.clear()
        with suppress(OSError):  # a thread or process may end during the scan
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


def sealed(store: Path) -> set[int]:
    return {piece.slot_lsn for piece in open_journal(str(store)).log.pieces if piece.last_lsn}
