"""Tests of the memory that an empty queue takes: a client may create thousands."""

from __future__ import annotations

import gc
import tracemalloc

from tests.harness.broker.world import World

COUNT = 500
MOST_BYTES = 7 << 10
"""The limit for a queue and its producer, with the terminal of the test: 5.8 KiB with CPython 3.11."""


def test_empty_queues_with_producers_take_little_memory() -> None:
    """W10: 10,000 queues take less than 64 MiB."""
    world = World(1 << 28)
    terminals = [world.open(to_client=False, address="warm-up")]
    gc.collect()
    tracemalloc.start()
    try:
        before_bytes, _ = tracemalloc.get_traced_memory()
        terminals += [world.open(to_client=False, address=f"queue {number}") for number in range(COUNT)]
        gc.collect()
        grown_bytes = tracemalloc.get_traced_memory()[0] - before_bytes
    finally:
        tracemalloc.stop()
    assert len(world.broker.nodes.queues) == COUNT + 1
    assert grown_bytes / COUNT < MOST_BYTES
