"""A step with a power cut: states explored after it have had one more crash than their path shows."""

from __future__ import annotations

from tests.harness.recovery.kept_checkpoint import WatchedCheckpoint
from tests.harness.recovery.states import Crash
from tests.harness.recovery.world import World

RECENT = 12
"""The number of recent disk operations at which the power may fail."""


def power_cut(world: World, since: int = -RECENT) -> None:
    """Cut the power at a random moment from *since* on, keep some pending changes, recover, and check the result."""
    store = world.store
    assert store is not None
    if world.through is not None:
        return  # a faulty disk fails by itself, and its moments are not recorded
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
