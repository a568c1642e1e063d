"""Delivery failures of a broker in memory, and the counts that its queues store."""

from __future__ import annotations

import pytest

from cairnmq.amqp.native.proton_ffi import MODIFIED
from cairnmq.amqp.ports import Outcome
from cairnmq.broker.queues.delivery_counts import PREFIX, RECORD
from tests.harness.broker.policies import Policed
from tests.harness.broker.transacting import Transacting
from tests.harness.broker.world import FakeTerminal

COUNTS = PREFIX + "q"


@pytest.fixture
def policed() -> Transacting:
    return Transacting()


def fail(policed: Policed, taker: FakeTerminal, number: int = -1) -> None:
    """Settle message *number* of *taker* with the outcome `modified` and `delivery-failed`."""
    policed.world.do(taker.driver.outcomes, [Outcome(None, taker.forwarded[number][0], MODIFIED, True, False)])


def recorded(policed: Policed) -> dict[int, int]:
    """Return the stored counts by message id; check that each message has a single record."""
    store, queues = policed.world.store, policed.world.broker.nodes.queues
    if COUNTS not in queues:
        return {}
    contents = store.load_many(store.messages().get(queues[COUNTS].queue_id, []), 1 << 30)
    pairs = [RECORD.unpack(content) for content in contents if isinstance(content, bytes)]
    assert len(dict(pairs)) == len(contents)
    return dict(pairs)


def counts(policed: Policed) -> list[int]:
    return sorted(recorded(policed).values())
