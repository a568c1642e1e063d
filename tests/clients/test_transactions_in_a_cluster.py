"""Tests of the coordinator through sockets, on a broker that is a member of a cluster."""

from __future__ import annotations

import time
from queue import Queue

import pytest
from proton import Delivery

from cairnmq.broker_plugin.options import ClusterOptions
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.clients.peers import DEADLINE_S, Peer
from tests.harness.clients.transacting import Control, outcome_of

from . import test_transactions as alone
from .conftest import StartBroker


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    running = start_broker(cluster=ClusterOptions("laws", size=1))
    deadline = time.monotonic() + DEADLINE_S
    denial_reason = "it was not asked"
    while denial_reason and time.monotonic() < deadline:
        answers: Queue[str] = Queue()
        running._post(lambda into=answers: into.put(running._broker.links.members.not_serving_reason()))
        denial_reason = answers.get(timeout=DEADLINE_S)
    assert not denial_reason
    return running


OTHERS = {
    "test_a_transaction_that_takes_too_long_is_rolled_back",
    "test_limits",
    "test_transient_messages_of_a_transaction_count_in_memory",
    "test_a_committed_transaction_is_there_after_a_crash_and_an_open_one_is_not",
    "test_a_distributed_transaction_waits_for_its_coordinator",
}
"""Tests that start brokers themselves."""
for _name, _law in vars(alone).items():
    if _name.startswith("test_") and _name not in OTHERS:
        globals()[_name] = _law  # D53: with the broker above


def test_distributed_ones_are_refused(peer: Peer) -> None:  # D63
    refused = Control(peer).ask(0x31, b"xid")
    assert refused.remote_state == Delivery.REJECTED
    assert outcome_of(refused) == "amqp:not-implemented"
    assert "declare a local one" in str(refused.remote.condition.description)
