"""A step in which the power fails: what is explored behind it has met one more crash than its path says."""

from __future__ import annotations

from tests.harness.recovery.kept_checkpoint import WatchedCheckpoint
from tests.harness.recovery.states import Crash
from tests.harness.recovery.world import World

RECENT = 12
"""So many of the last operations on the disk the power may fail at."""


def power_cut(world: World, since: int = -RECENT) -> None:
    """The power fails at one of the moments from *since* on, and some of what is pending is left."""
    store = world.store
    assert store is not None
    if world.through is not None:
        return  # that disk fails in its own way, and no moment of it is held
    recent = [moment for moment in world.moments[since:] if not moment.recovering]
    unsure = [moment for moment in recent if moment.disk.pending()]
    crash = Crash(world.random.choice(unsure or recent or [world.now("power cut")]))
    moment = crash.moment
    last = max((item.operation for item in crash.pending), default=0)
    before = sum(1 << n for n, item in enumerate(crash.pending) if item.operation != last)
    disk = crash.disk(world.random.choice((before, before, crash.any(world.random))))
    store.journal.abandon()
    world.disk, world.history, world.confirmed_lsn = disk, moment.past, moment.confirmed_lsn
    world.store = None
    world.wiring.put_back(moment.sql)
    disk.on_operation = world.hold
    if world.file is not None:
        world.file = WatchedCheckpoint(moment.kept)
        world.file.on_commit = world.hold
    store = world.open()
    assert world.report is not None
    moment.expected.check(store, world.report)
