"""Tests of the progress that a long recovery reports."""

from __future__ import annotations

import pytest

from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.cli.run.recovery_progress import RecoveryProgress
from cairnmq.recovery.recover import recover
from tests.harness.checkpoints import MemoryCheckpoint
from tests.harness.recovery.world import OPTIONS, MemoryWiring
from tests.harness.store.stores import BIG, NOW_US, queue

MIB = 1 << 20


def test_a_quick_start_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock = ManualClock()
    progress = RecoveryProgress(clock)
    for done in range(100):
        clock.advance(0.009)
        progress(done * MIB, 100 * MIB)
    assert caplog.messages == []


def test_it_is_said_once_a_second_with_what_is_left(caplog: pytest.LogCaptureFixture) -> None:
    """Progress is logged once per second, with a remaining time that is right to a second at a constant speed."""
    caplog.set_level("INFO")
    clock = ManualClock()
    progress = RecoveryProgress(clock)
    clock.advance(60)  # time before the recovery
    progress(0, 20 * MIB)
    for step in range(1, 101):
        clock.advance(0.1)
        progress(step * MIB // 5, 20 * MIB)
    said = caplog.messages
    assert 9 <= len(said) <= 10
    for line in said:
        words = line.split()
        read, left = int(words[1]), int(words[-4])
        assert line == f"recovering: {read} of at most 20 MiB read, {left} s to go"
        assert abs(10 - read / 2 - left) <= 1


def test_more_than_was_expected_is_no_time_at_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock = ManualClock()
    progress = RecoveryProgress(clock)
    progress(0, 0)  # no basis for an estimate
    clock.advance(3)
    progress(5 * MIB, 4 * MIB)
    assert caplog.messages == ["recovering: 5 of at most 4 MiB read, 0 s to go"]


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_what_recovery_tells_grows_up_to_what_there_is(has_checkpoint: bool) -> None:
    """Reported progress increases up to the total size: the log after the checkpoint, at most its containers."""
    files, wiring, file = MemoryDirectory(), MemoryWiring(), MemoryCheckpoint()
    checkpoint = file if has_checkpoint else None
    store, _ = recover(files, wiring, ManualClock(), OPTIONS, checkpoint=checkpoint)
    q = queue(store)
    for _ in range(20):
        store.put(q, BIG, NOW_US)
    store.kick()
    store.close()
    store, _ = recover(files, wiring, ManualClock(), OPTIONS, checkpoint=checkpoint)
    for _ in range(4):
        store.put(q, BIG, NOW_US)
        store.kick()
    store.journal.abandon()
    told: list[tuple[int, int]] = []
    store, report = recover(
        files, wiring, ManualClock(), OPTIONS, progress=lambda *done: told.append(done), checkpoint=checkpoint
    )
    done = [one for one, _ in told]
    assert done == sorted(set(done))
    [total] = {total for _, total in told}
    behind = report.log.end_lsn - max(report.log.resumed_lsn, report.log.base_lsn)
    assert (4 if has_checkpoint else 24) * len(BIG) < done[-1] <= min(total, behind)
    assert total <= behind + 2 * OPTIONS.container_bytes
    assert has_checkpoint == (done[-1] < 20 * len(BIG))
    store.close()
