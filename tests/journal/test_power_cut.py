"""Properties of the log after power cuts: all confirmed records exist in order, without others than those appended.

This also holds after a second cut during recovery, and with recycled containers.
"""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.base.testing.memory_disk import MemoryDirectory
from tests.harness.journal.logs import SIZE, advance_base, container_start, new_log, put, reopen

Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "seal", "flush", "flush", "base", "mark", "close", "kill"]),
        st.integers(0, 3000) | st.integers(40_000, 65_536),
    ),
    min_size=5,
    max_size=60,
)
Held = tuple[MemoryDirectory, int, int, list[tuple[int, bytes]]]
"""A disk, with its durable LSN, its base LSN, and the records appended until then."""


def play(steps: list[Step], directory: MemoryDirectory) -> list[Held]:
    """Perform the steps, and return the disk after each operation."""
    held: list[Held] = []
    _, journal = new_log(directory, buffers=3)
    appended: list[tuple[int, bytes]] = []

    def hold(_: str) -> None:
        held.append((directory.after_kill(), journal.writer.durable_lsn, journal.extent.base_lsn, list(appended)))

    directory.on_operation = hold
    for number, (action, size) in enumerate(steps):
        if action == "append":
            payload = number.to_bytes(4, "big") + bytes([number % 255 + 1]) * size
            payload = payload[:65_536]
            appended.append((put(journal, payload), payload))
        elif action == "seal":
            journal.seal()
        elif action == "flush":
            journal.flush()
        elif action == "base":
            advance_base(journal, container_start(journal, journal.writer.durable_lsn))
        elif action == "mark":
            journal.writer.write_mark()
        else:
            if action == "close":
                journal.close()
            else:
                journal.abandon()
            journal, report, found = reopen(directory, buffers=3)
            appended = [item for item in appended if item[0] < report.end_lsn]
            assert [(read.lsn, read.payload) for read in found] == [
                item for item in appended if item[0] >= report.base_lsn
            ]
    journal.flush()
    return held


def check(disk: MemoryDirectory, durable_lsn: int, base_lsn: int, appended: list[tuple[int, bytes]]) -> int:
    journal, report, found = reopen(disk)
    survived = [(read.lsn, read.payload) for read in found]
    assert report.base_lsn <= max(base_lsn, SIZE * ((report.end_lsn - 1) // SIZE + 1))
    possible = [item for item in appended if item[0] >= report.base_lsn]
    assert survived == possible[: len(survived)]  # no record exists without those before it
    acked = [item for item in possible if item[0] < durable_lsn]
    assert survived[: len(acked)] == acked  # all confirmed records exist
    assert journal.next_lsn >= durable_lsn
    for lsn, payload in survived:
        assert journal.stored.read_record(lsn).payload == payload
    return len(survived)


@given(steps=STEPS, seed=st.integers(0, 2**32), sector_bytes=st.sampled_from([512, 4096]))
@settings(max_examples=60)
def test_power_cut_keeps_what_was_acked(steps: list[Step], seed: int, sector_bytes: int) -> None:
    rng = random.Random(seed)
    held = play(steps, MemoryDirectory(sector_bytes=sector_bytes))
    for disk, durable_lsn, base_lsn, appended in rng.sample(held, min(len(held), 8)):
        cut = disk.after_power_cut(rng)
        moments: list[MemoryDirectory] = []
        cut.on_operation = lambda _, cut=cut, moments=moments: moments.append(cut.after_kill())
        count = check(cut, durable_lsn, base_lsn, appended)
        for moment in rng.sample(moments, min(len(moments), 3)):  # the recovery is cut, too
            assert check(moment.after_power_cut(rng), durable_lsn, base_lsn, appended) == count
