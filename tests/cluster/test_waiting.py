"""What the log of a member says that serves nobody for long."""

from __future__ import annotations

import pytest

from cairnmq.cluster.waiting import LONG_S

from .world import World

WAITS = "no clients were served here"


def test_who_serves_nobody_for_long_says_why_once(caplog: pytest.LogCaptureFixture) -> None:
    """At its start, and where it has lost the others; who serves says nothing, nor does one whose trouble was short."""
    world = World()
    world[1].start()
    world.run(LONG_S - 1)
    assert WAITS not in caplog.text
    world.run(20)
    [told] = [line for line in caplog.messages if WAITS in line]
    assert "this broker has no majority of its cluster; of its 3 members it hears too few" in told
    assert "--cluster-force" in told
    for node in (2, 3):
        world[node].start()
    assert world.until(lambda: all(member.serves for member in world.members.values())), world.why()
    caplog.clear()
    world.network.partition([3], [1, 2])
    world.run(3)
    world.network.heal()
    world.run(30)
    assert WAITS not in caplog.text
    world.network.partition([3], [1, 2])
    world.run(30)
    assert caplog.text.count(WAITS) == 1
