"""Tests of the log messages of a member that does not serve clients for a long time."""

from __future__ import annotations

import pytest

from cairnmq.cluster.health.not_serving_log import LONG_S
from cairnmq.cluster.kernel.phases import TRANSFERRING
from tests.harness.cluster.cluster_harness import ClusterHarness, Sender, SimulatedMember

WAITS = "no clients were served here"


def test_who_serves_nobody_for_long_says_why_once(caplog: pytest.LogCaptureFixture) -> None:
    """A member logs the reason after its start and a long partition, but not while it serves or after a short one."""
    harness = ClusterHarness()
    harness[1].start()
    harness.run(LONG_S - 1)
    assert WAITS not in caplog.text
    harness.run(20)
    [told] = [line for line in caplog.messages if WAITS in line]
    phase = "(phase: outside; 0 of 3 members are connected"
    assert f"this broker is not connected to a majority of its cluster {phase}" in told
    assert "missing: nodes 1, 2, 3" in told
    assert "--cluster-force" in told
    for node in (2, 3):
        harness[node].start()
    assert harness.until(lambda: all(member.serves for member in harness.members.values())), harness.reason()
    caplog.clear()
    harness.network.partition([3], [1, 2])
    harness.run(3)
    harness.network.heal()
    harness.run(30)
    assert WAITS not in caplog.text
    harness.network.partition([3], [1, 2])
    harness.run(30)
    assert caplog.text.count(WAITS) == 1


class SlowWhenUpdated(SimulatedMember):
    """A member whose disk delays the writes of a state transfer until `hurry_disk`."""

    def _durable(self, lsn: int) -> None:
        self.is_disk_slow = self.core.state.phase == TRANSFERRING and self.lives > 1
        super()._durable(lsn)


def test_member_that_is_brought_up_to_date_says_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:  # B4, B5
    """The log message advises to wait, and does not suggest `--cluster-force`."""
    harness = ClusterHarness(member=SlowWhenUpdated).start()
    sender = Sender(harness[1])
    harness.run(0.2)
    harness[3].kill()
    sender.send(range(5000))
    assert harness.until(lambda: len(sender.confirmed) == 5000)
    harness[3].start()
    assert harness.until(lambda: WAITS in caplog.text, 2 * LONG_S)
    [told] = [line for line in caplog.messages if WAITS in line]
    assert "phase: transferring" in told
    assert f"{harness[3].core.receiver.received:,} of 5,000 messages received" in told
    assert "Wait: no action is needed" in told
    assert "--cluster-force" not in told
    assert harness[3].core.receiver.received == 5000
    harness[3].lives = 1
    harness[3].hurry_disk()
    assert harness.until(lambda: harness[3].serves, 60), harness.reason()

