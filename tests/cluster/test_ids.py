"""Tests of the duplicate window of replicated queues: message IDs of long messages, and of those of transactions."""

from __future__ import annotations

from functools import partial

import pytest

from tests.harness.cluster.policy_queues import content, sent, world_with
from tests.harness.cluster.transaction_client import Transactor

LONG = {"long": "s" * 200_000}
"""Application properties that make a message long."""


@pytest.mark.parametrize("transacted", [False, True])
def test_a_long_message_is_taken_once(transacted: bool) -> None:
    harness = world_with(duplicate_window=5)
    sent(harness, 1, {1: content(1, id="a", properties=LONG)})
    sent(harness, 2, {2: content(2, id="a", properties=LONG), 3: content(3, id="b")})
    if transacted:
        client = Transactor(harness[3])
        assert harness.until(lambda: client.is_ready)
        client.write = partial(written, "a")
        client.declare()
        harness.run(0.1)
        client.send("q", [4])
        asked = client.discharge()
        assert harness.until(lambda: asked in client.control.confirmed)
    harness.run(0.3)
    assert [number for _, number in harness[3].contents("q")] == [1, 3]


@pytest.mark.parametrize("properties", [{}, LONG], ids=["short", "long"])
def test_a_transaction_puts_an_id_once(properties: dict[str, str]) -> None:
    harness = world_with(duplicate_window=5)
    client = Transactor(harness[1], ("q",))
    assert harness.until(lambda: client.is_ready)
    client.write = partial(written, "a", properties=properties)
    client.declare()
    harness.run(0.1)
    client.send("q", [1, 2])
    client.send("q", [3])
    asked = client.discharge()
    assert harness.until(lambda: asked in client.control.confirmed)
    harness.run(0.3)
    for node in harness.members:
        assert [number for _, number in harness[node].contents("q")] == [1]


def written(name: str, number: int, size_bytes: int, durable: bool, *, properties: dict[str, str] = LONG) -> bytes:
    return content(number, id=name, properties=properties)
