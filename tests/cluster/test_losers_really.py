"""Tests of three real members, one of which rejoins: its divergent state is backed up, also if it is killed meanwhile.
In a rolling restart a member keeps its messages, and no state is backed up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from cairnmq.tools.lab.cluster_lab import unavailable_reason
from cairnmq.tools.lab.cluster_lab_conf import address
from tests.harness.cluster.real_cluster import PATIENCE_S, PORT, RealScenario, real_scenario

COUNT = 300
BODY = bytes(20_000)
MAIN = "from cairnmq.cli.main import main; main()"


def kept(store: Path) -> list[Path]:
    place = store / "aside"
    return sorted(one for one in place.iterdir() if one.suffix != ".partial") if place.is_dir() else []


def messages_in(place: Path) -> int:
    """Return the number of messages on the queue q at the end of the backup."""
    words = [sys.executable, "-c", MAIN, "as-of", str(place), place.name.rpartition("-")[2], "--json", "--count", "1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    head = json.loads(done.stdout.splitlines()[0])["as_of"]
    assert head["complete"]
    return int(head["queues"]["q"])


def accept(scenario: RealScenario, count: int) -> None:
    with scenario.lab.inside(1):
        client = BlockingConnection(f"amqp://{address(1)}:{PORT}", timeout=PATIENCE_S, allowed_mechs="ANONYMOUS")
    receiver = client.create_receiver("q", credit=10)
    for _ in range(count):
        receiver.receive()
        receiver.accept()
    client.close()


@pytest.mark.timeout(900)
def test_what_a_member_had_is_kept_aside(tmp_path: Path) -> None:  # rule 17
    reason = unavailable_reason()
    if reason:
        pytest.skip(f"no corosync: {reason}")
    store = tmp_path / "store3"
    with real_scenario(tmp_path) as scenario:
        with scenario.lab.inside(1):
            client = BlockingConnection(f"amqp://{address(1)}:{PORT}", timeout=PATIENCE_S, allowed_mechs="ANONYMOUS")
        sender = client.create_sender("q")
        for _ in range(COUNT):
            sender.send(Message(body=BODY, durable=True))
        client.close()
        scenario.wait(scenario.is_quiet, "they come to rest")
        scenario.brokers[3].stop()
        accept(scenario, COUNT - 10)
        for node in (1, 2):
            scenario.brokers[node].stop()
        for node in (1, 2):
            scenario.start_broker(node)
        scenario.wait(lambda: all(scenario.figures(node).get("cluster_serving") == 1.0 for node in (1, 2)), "two serve")
        scenario.start_broker(3)
        scenario.wait(lambda: os.path.isdir(store / "aside"), "the loser sets aside")
        killed = scenario.brokers[3]
        killed.stop(signal.SIGKILL)
        scenario.start_broker(3)
        last = scenario.brokers[3]
        scenario.wait(scenario.all_serve, "all serve again")
        scenario.wait(scenario.is_quiet, "they come to rest")
        places = kept(store)
        assert places
        assert messages_in(places[0]) == COUNT
        contents = scenario.stopped()
        assert [len(contents[node]["q"]) for node in scenario.lab.nodes] == [10, 10, 10]
        # either process may have logged it: the kill may come after the backup, when no divergent state was left
        told = f"is backed up in {places[-1]} (look into it: cairnmq as-of {places[-1]} "
        assert any(told in line for line in [*killed.lines, *last.lines]), (killed.lines, last.lines)
        assert messages_in(places[0]) == COUNT


@pytest.mark.timeout(900)
def test_rolling_restart_sets_nothing_aside_and_receives_nothing(scenario: RealScenario, tmp_path: Path) -> None:  # B5
    with scenario.lab.inside(1):
        client = BlockingConnection(f"amqp://{address(1)}:{PORT}", timeout=PATIENCE_S, allowed_mechs="ANONYMOUS")
    sender = client.create_sender("q")
    for _ in range(COUNT):
        sender.send(Message(body=BODY, durable=True))
    client.close()
    scenario.wait(scenario.is_quiet, "they come to rest")
    for node in scenario.lab.nodes:
        scenario.brokers[node].stop()
        scenario.start_broker(node)
        scenario.wait(scenario.all_serve, "all serve again")
        scenario.brokers[node].wait_for(
            f"transfer is complete: {COUNT} of {COUNT} messages were on its own disk; 0 that"
        )
        assert not [line for line in scenario.brokers[node].lines if "WARNING" in line]
        assert not kept(tmp_path / f"store{node}")
    assert sum(scenario.figures(node)["cluster_brought_messages_total"] for node in scenario.lab.nodes) == 0
    scenario.wait(scenario.is_quiet, "they come to rest")
    assert [len(contents["q"]) for contents in scenario.stopped().values()] == [COUNT] * 3
