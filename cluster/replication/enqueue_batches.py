"""The messages of a client, as batches that fit into one event each. Core only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...broker.queues.ends import TargetQueue
from ..kernel.events import Message

EVENT_BYTES = 60 << 10
"""The approximate size of an event of several messages."""


def split(messages: Sequence[Message]) -> list[Sequence[Message]]:
    """Splits *messages* into batches, each for one event."""
    size = sum([len(content) for content, _ in messages])
    if size + 4 * len(messages) <= EVENT_BYTES:
        return [messages]
    batches: list[Sequence[Message]] = []
    batch: list[Message] = []
    size = 0
    for message in messages:
        if batch and size + len(message[0]) + 4 > EVENT_BYTES:
            batches.append(batch)
            batch, size = [], 0
        batch.append(message)
        size += len(message[0]) + 4
    return [*batches, batch]


def count_arrivals(queues: Sequence[TargetQueue], messages: Sequence[Message]) -> Callable[[], None] | None:
    """Counts *messages* against the limits of *queues* until the action that it returns is called.

    Returns None if no queue has limits.
    """
    all_limits = [queue.limits for queue in queues if queue.limits is not None]
    if not all_limits:
        return None
    size = sum([len(content) for content, _ in messages])
    for limits in all_limits:
        limits.comes(len(messages), size)

    def received() -> None:
        for limits in all_limits:
            limits.came(len(messages), size)

    return received
