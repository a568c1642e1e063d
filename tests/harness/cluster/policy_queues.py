"""Queues with policies in a cluster, and messages with fields."""

from __future__ import annotations

from typing import Any

from proton import Message, symbol

from tests.harness.cluster.cluster_harness import ClusterHarness, Receiver, Sender


def world_with(size: int = 3, **arguments: Any) -> ClusterHarness:
    return shaped(ClusterHarness(size), **arguments)


def shaped(harness: ClusterHarness, **arguments: Any) -> ClusterHarness:
    """Start *harness*, and create the queue `q` with *arguments* and the queue `dead`."""
    harness.start()
    nodes = harness[1].broker.nodes
    made: list[object] = []
    harness[1].do(nodes.create_queue, "dead", {}, made.append)
    policy = {name.replace("_", "-"): value for name, value in arguments.items()}
    harness[1].do(nodes.create_queue, "q", policy, made.append)
    assert harness.until(lambda: len(made) == 2)
    assert not isinstance(made[1], Exception), made[1]
    return harness


def content(number: int, *, annotations: dict[str, Any] | None = None, **fields: Any) -> bytes:
    """Return a message whose body begins with its number, as `number_of` requires."""
    message = Message(body=number.to_bytes(4) + b"x" * 300, durable=True, **fields)
    if annotations:
        message.annotations = {symbol(key): value for key, value in annotations.items()}
    message.inferred = True
    return bytes(message.encode())


def sent(harness: ClusterHarness, node: int, messages: dict[int, bytes]) -> Sender:
    sender = Sender(harness[node])
    harness.run(0.1)
    sender.send_whole(messages)
    assert harness.until(lambda: len(sender.confirmed) == len(messages)), (sender.rejected, sender.confirmed)
    return sender


def numbers(receiver: Receiver) -> list[int]:
    return [number for number, _ in receiver.order]


def takes(harness: ClusterHarness, node: int, count: int) -> Receiver:
    """Receive *count* messages with a new consumer on *node*; return the consumer."""
    receiver = Receiver(harness[node])
    harness.run(0.1)
    receiver.request(count)
    assert harness.until(lambda: len(receiver.order) == count), (receiver.order, receiver.failures)
    return receiver


def on_queue(harness: ClusterHarness, node: int, name: str = "q") -> list[int]:
    return [number for _, number in harness[node].contents(name)]


def is_same(harness: ClusterHarness) -> None:
    harness.run(0.3)
    assert harness.same_everywhere()
    for member in harness.members.values():
        assert member.broker.nodes.queues["q"].messages == len(member.contents("q"))
