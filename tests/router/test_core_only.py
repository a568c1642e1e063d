"""Tests of the detection of core-only calls on other threads: in production by terminals, in tests at once."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from cairnmq.broker.contents.arrival_order import ArrivalOrder
from cairnmq.broker.kernel.queue_memory import QueueMemory
from cairnmq.broker.queues.queue import Queue
from cairnmq.broker_plugin.run import RunningBroker
from cairnmq.cluster.replication.replica import Replica
from cairnmq.cluster.replication.transactions import TransactionHandler
from cairnmq.management.node import Management
from cairnmq.router.connections.terminal import Terminal
from cairnmq.router.kernel.core import Core
from tests.harness import core_only
from tests.harness.clients.peers import Peer


def on_thread(name: str, call: Any) -> Any:
    """Run *call* on a thread of the given name; return the exception that it raised, or None."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name=name)
    thread.start()
    thread.join()
    return raised[0] if raised else None


def test_one_thread_at_a_time_is_the_core(broker: RunningBroker) -> None:  # C2, C9
    core = Core(lambda: None, lambda error: None)
    seen: list[bool] = []

    def is_current() -> bool:
        return core.player == threading.get_ident()

    core.post(lambda: seen.append(is_current()))
    core.post(lambda: seen.append(on_thread("other", lambda: seen.append(is_current())) is None))
    assert not is_current()
    core.run()
    assert seen == [True, False, True]


def test_who_finds_the_core_busy_leaves_the_action_to_it() -> None:  # C3, C7
    order: list[str] = []
    core = Core(lambda: order.append("end of step"), lambda error: None)

    def first() -> None:
        core.post(order.append, "second")
        assert on_thread("other", core.run) is None, "it returns, and the one who is at it goes on"
        order.append("first")

    core.post(first)
    core.run_all()  # another turn is necessary if the other thread takes longer than one
    assert [said for said in order if said != "end of step"] == ["first", "second"]
    assert order[-1] == "end of step"


def test_a_worker_off_the_core_is_caught(broker: RunningBroker, peer: Peer) -> None:  # C9
    peer.put(peer.sender("q"), ["one"])
    queue: Queue = broker._broker.nodes.queues["q"]
    assert isinstance(on_thread("cairnmq-worker-9", queue.dispatch), core_only.OffTheCore)
    (terminal,) = broker._router._workers[0].sockets.by_terminal
    assert isinstance(terminal, Terminal)
    assert isinstance(on_thread("anybody", lambda: terminal.note(print)), AssertionError)


@pytest.mark.parametrize("method", [Management.handle, TransactionHandler.move, Replica.count_dequeued])
def test_the_check_covers_management_and_the_cluster(method: Any) -> None:
    assert isinstance(on_thread("cairnmq-worker-9", method), core_only.OffTheCore)


@pytest.mark.parametrize("method", [Queue.dispatch, ArrivalOrder.add, ArrivalOrder.give_back, QueueMemory.hold])
def test_the_check_covers_a_queue(method: Any) -> None:
    assert hasattr(method, "__wrapped__")
