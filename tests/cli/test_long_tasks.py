"""Tests of workers whose tasks take longer than the idle timeout of the broker."""  # U3

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from proton import ConnectionException, Message
from proton.utils import BlockingConnection

from cairnmq.amqp.keep_alive import keep_alive
from tests.harness.process import CAIRNMQ, DEADLINE_S, BrokerProcess, broker

IDLE_S = 4


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker(tmp_path / "store", "--idle-timeout", f"{IDLE_S}s", "--journal-acquisitions") as started:
        yield started


def command(*arguments: str) -> str:
    done = subprocess.run([CAIRNMQ, *arguments], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done
    return done.stdout


def queue(running: BrokerProcess, name: str) -> dict[str, Any]:
    shown = command("ctl", "--url", f"127.0.0.1:{running.port}", "--json", "queues", "show", name)
    found: dict[str, Any] = json.loads(shown)
    return found


def connected(running: BrokerProcess) -> Any:
    connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
    connection.create_sender("tasks").send(Message(body="render", durable=True))
    return connection


def test_task_longer_than_the_idle_timeout_is_delivered_once(running: BrokerProcess) -> None:
    connection = connected(running)
    receiver = connection.create_receiver("tasks", credit=1)
    receiver.receive()
    assert keep_alive(connection, lambda seconds: Event().wait(seconds), 2 * IDLE_S) is False
    receiver.accept()
    connection.close()
    found = queue(running, "tasks")
    assert (found["messages"], found["dequeued"], found["silent-consumer"]) == (0, 1, "")


def test_task_error_is_raised_in_the_worker(running: BrokerProcess) -> None:
    connection = connected(running)
    with pytest.raises(ZeroDivisionError):
        keep_alive(connection, lambda: 1 // 0)
    connection.close()


def test_lost_connection_is_raised_in_the_worker(running: BrokerProcess) -> None:
    connection = connected(running)
    running.stop()
    with pytest.raises(ConnectionException):
        keep_alive(connection, lambda: Event().wait(DEADLINE_S))


def test_silent_consumer_is_named_with_the_remedy(running: BrokerProcess) -> None:
    connection = connected(running)
    connection.create_receiver("tasks", credit=1).receive()
    line = running.wait_for(r"WARNING consumer\.silent (.*)")[1]  # the worker works, and calls Proton no more
    assert "queue tasks: the consumer 127.0.0.1:" in line
    assert f"was idle for {IDLE_S} s and lost 1 message" in line
    assert "heartbeats" in line
    assert connection.container.container_id in line
    found = queue(running, "tasks")
    assert (found["ready"], found["silent-consumer"]) == (1, line.removeprefix("queue tasks: the consumer "))


def test_trace_shows_that_the_message_returned_and_why(running: BrokerProcess, tmp_path: Path) -> None:
    connection = connected(running)
    connection.create_receiver("tasks", credit=1).receive()
    running.wait_for(r"WARNING consumer\.silent")
    running.stop()
    store = str(tmp_path / "store")
    [message] = {json.loads(line)["message_id"] for line in command("dump", store, "--json").splitlines()
                 if '"type":"start' in line}  # fmt: skip
    shown = [json.loads(line) for line in command("trace", store, str(message), "--json").splitlines()]
    events = [(one["event"], one.get("reason")) for one in shown if "event" in one]
    returned = ("returned to the queue", f"connection lost: idle for {IDLE_S} s")
    assert returned in events
    assert events.index(returned) > [what for what, _ in events].index("acquired")
    assert returned[1] in command("dump", store)
