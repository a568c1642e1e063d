"""Processes of a coordinator, for a test to kill.

`python -m tests.harness.store.coordinator_process` starts one for each JSON line that it reads.

This process has imported everything and forks for each line, so that a process costs milliseconds. It prints a line
for each step, `result` with the result, and `ended` with the exit status; at a given step, the forked process kills
itself, or prints `paused` and waits for a line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass

from tests.harness.store.coordinator import Coordinator, DecisionLog, Participant
from tests.harness.store.participants import SqlParticipant, StoreParticipant

FIRST, SECOND, ROWS = "first", "second", "rows"
"""The participants: the source store of the moved message, its target store, and the rows that record the move."""
OUT, IN = "out", "in"
"""The queues of each store."""


@dataclass(frozen=True)
class Orders:
    """The instructions for a process: participants, transaction and faults."""

    place: str
    address: str
    participants: tuple[str, ...] = (FIRST, SECOND, ROWS)
    """The participants in the order of requests."""
    xid: str = ""
    """The transaction to run; empty for a recovery."""
    rolls_back: bool = False
    """True if the application rolls back although all participants are prepared."""
    operator: bool | None = None
    """True if an operator of the first store commits, right after the coordinator's decision; None for no operator."""
    kill_at: int = 0
    pause_at: int = 0

    def line(self) -> str:
        return json.dumps(asdict(self))


def content_of(xid: str) -> bytes:
    """Return the content of the message that the transaction moves; some need two records."""
    times = 4000 if xid.endswith("4") else 10
    return f"the message of {xid} ".encode() * times


class Life:
    """A run of the coordinator in a forked process."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._steps = 0
        self._participants: dict[str, Participant] = {}

    def run(self) -> bool | None:
        orders = self._orders
        with ExitStack() as open_things:
            log = open_things.enter_context(closing(DecisionLog(os.path.join(orders.place, "decisions"))))
            for name in orders.participants:
                one: Participant
                if name == ROWS:
                    one = SqlParticipant(name, orders.address)
                else:
                    one = StoreParticipant(name, os.path.join(orders.place, name))
                self._participants[name] = open_things.enter_context(closing(one))
            coordinator = Coordinator(log, list(self._participants.values()), self._step)
            if not orders.xid:
                return coordinator.recover()
            return coordinator.run(orders.xid.encode(), self._work(), rolls_back=orders.rolls_back)

    def _work(self) -> dict[str, Callable[[], None]]:
        """Return the work of each participant; the message to move is enqueued before the first step."""
        xid, content = self._orders.xid.encode(), content_of(self._orders.xid)
        work: dict[str, Callable[[], None]] = {}
        first, second, rows = (self._participants.get(name) for name in (FIRST, SECOND, ROWS))
        if isinstance(first, StoreParticipant):
            message_id = first.put(OUT, content)
            first.wait()
            into = second if isinstance(second, StoreParticipant) else first

            def take() -> None:
                first.move_out(xid, OUT, message_id)
                if into is first:
                    first.move_in(xid, IN, content)

            work[FIRST] = take
            work[SECOND] = lambda: into.move_in(xid, IN, content)
        if isinstance(rows, SqlParticipant):
            work[ROWS] = lambda: rows.record(xid, content)
        return work

    def _step(self, name: str) -> None:
        self._steps += 1
        tell(f"step {name}")
        first = self._participants.get(FIRST)
        if name == "decided" and self._orders.operator is not None and isinstance(first, StoreParticipant):
            first.decide(self._orders.xid.encode(), commit=self._orders.operator)
        if self._steps == self._orders.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._steps == self._orders.pause_at:
            tell("paused")
            if not sys.stdin.buffer.readline():
                os._exit(1)


def tell(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def _live(orders: Orders) -> None:
    status = 1
    try:
        tell(f"result {json.dumps(Life(orders).run())}")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    with tempfile.TemporaryDirectory() as path:
        StoreParticipant(FIRST, os.path.join(path, FIRST)).close()  # also runs the late imports
    while line := sys.stdin.buffer.readline():
        fields = json.loads(line)
        pid = os.fork()
        if not pid:
            _live(Orders(**fields))
        _, status = os.waitpid(pid, 0)
        tell(f"ended {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main()
