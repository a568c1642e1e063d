"""Test of the client of the command-line tools: long messages are split to fit the frame size and session window."""

from __future__ import annotations

from typing import Any

import pytest

from cairnmq.amqp.client.links import Receiver, Sender, data_message, data_of
from cairnmq.amqp.client.login import BrokerLogin
from cairnmq.amqp.client.loop import Loop
from cairnmq.amqp.client.management import Management, await_true
from cairnmq.amqp.client.wire import Wire
from cairnmq.amqp.frames.performatives import ACCEPTED, state_of
from cairnmq.amqp.links.events import Limits
from cairnmq.broker_plugin.options import BrokerOptions, RouterOptions, StoreOptions
from cairnmq.broker_plugin.run import RunningBroker

MAX_FRAME = 512
WINDOW_FRAMES = 4


@pytest.mark.parametrize("size", [0, 400, 416, 417, 100 * MAX_FRAME])
def test_long_messages_are_split_and_wait_for_the_window(size: int) -> None:
    """Messages of two links that take turns arrive complete and have outcomes, through a window of four frames."""
    limits = Limits(max_frame_bytes=MAX_FRAME, session_window_bytes=WINDOW_FRAMES * MAX_FRAME)
    options = BrokerOptions("", StoreOptions(), RouterOptions(port=0, limits=limits), ("*",), store_kind="memory")
    broker = RunningBroker(options)
    try:
        wire, loop = Wire(BrokerLogin(port=broker.port, timeout_s=60), "test"), Loop()
        loop.add(wire, [])
        management = Management(wire, loop)
        states: list[Any] = []
        for queue in ("q", "r"):
            sender = Sender(wire, f"to-{queue}", queue)
            wire.attach(sender)
            for _ in range(2):
                sender.post(data_message(bytes(size)), states.append)
        await_true(wire, loop, "outcomes", lambda: len(states) == 4)
        assert [state_of(state)[0] for state in states] == [ACCEPTED] * 4
        answer = management.ask({"operation": "READ", "type": "queue", "name": "q", "filler": "x" * size})
        assert (answer.status, answer.body["messages"]) == (200, 2)
        received: list[bytes] = []
        for queue in ("q", "r"):
            receiver = Receiver(wire, f"from-{queue}", queue, received.append)
            wire.attach(receiver)
            receiver.allow(2)
        await_true(wire, loop, "messages", lambda: len(received) == 4)
        assert {data_of(message) for message in received} == {bytes(size)}
        wire.close()
    finally:
        broker.stop()
    assert broker.failure is None
