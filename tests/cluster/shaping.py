"""Queues with policies in a cluster, and messages with fields."""

from __future__ import annotations

from typing import Any

from proton import Message, symbol

from .world import Sender, World


def world_with(size: int = 3, **arguments: Any) -> World:
    return shaped(World(size), **arguments)


def shaped(world: World, **arguments: Any) -> World:
    """It is started, and has the queues `q` with these arguments, and `dead`."""
    world.start()
    nodes = world[1].broker.nodes
    made: list[object] = []
    world[1].do(nodes.create_queue, "dead", {}, made.append)
    policy = {name.replace("_", "-"): value for name, value in arguments.items()}
    world[1].do(nodes.create_queue, "q", policy, made.append)
    assert world.until(lambda: len(made) == 2)
    assert not isinstance(made[1], Exception), made[1]
    return world


def content(number: int, *, annotations: dict[str, Any] | None = None, **fields: Any) -> bytes:
    """A message whose body ends as `number_of` wants it."""
    message = Message(body=number.to_bytes(4) + b"x" * 300, durable=True, **fields)
    if annotations:
        message.annotations = {symbol(key): value for key, value in annotations.items()}
    message.inferred = True
    return bytes(message.encode())


def sent(world: World, node: int, messages: dict[int, bytes]) -> Sender:
    sender = Sender(world[node])
    world.run(0.1)
    sender.send_whole(messages)
    assert world.until(lambda: len(sender.confirmed) == len(messages)), (sender.rejected, sender.confirmed)
    return sender
