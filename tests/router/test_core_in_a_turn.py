"""Tests of the number of core runs in one turn of a worker (W2)."""

from __future__ import annotations

from time import perf_counter

import pytest

from cairnmq.base.clock import SystemClock
from cairnmq.broker_plugin.run import RunningBroker
from cairnmq.router.kernel.core import TURN_S, Core
from cairnmq.router.workers.worker import RERUN_S, Worker


class Busy:
    """Work of the core that takes *seconds* and wakes a terminal, which posts the same work again."""

    def __init__(self, core: Core, worker: Worker, seconds: float) -> None:
        self._core, self._worker, self._seconds = core, worker, seconds
        self.runs = 0

    def run(self) -> None:
        until_s = perf_counter() + self._seconds
        while perf_counter() < until_s:
            pass
        self.runs += 1
        self._worker.wake(self)  # type: ignore[arg-type]

    def do_work(self) -> bool:
        self._core.post(self.run)
        return False


@pytest.fixture
def core() -> Core:
    def fail(error: BaseException) -> None:
        raise error

    return Core(lambda: None, fail)


@pytest.fixture
def worker(core: Core, broker: RunningBroker) -> Worker:
    """Return a worker without connections, whose thread is not started."""
    return Worker(9, core, broker._broker.drivers, SystemClock(), 1 << 20, 4096)


def test_work_that_comes_during_a_turn_waits_for_the_next_one(core: Core, worker: Worker) -> None:
    """Work posted in a long turn waits for the next one, so that sockets are read between slices of background work."""
    busy = Busy(core, worker, 1.5 * RERUN_S)
    core.post(busy.run)
    for turn in range(1, 4):
        worker._settle(set())
        assert busy.runs == turn


def test_work_that_a_turn_began_with_is_done_in_it(core: Core, worker: Worker) -> None:
    busy = Busy(core, worker, TURN_S)
    for _ in range(3):
        core.post(busy.run)
    worker._settle(set())
    assert busy.runs >= 2, "the end of a turn of the core does not end that of the worker"
