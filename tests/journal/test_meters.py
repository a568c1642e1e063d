"""Properties of the writer's meters, which equal the content of the log, and of histograms, which count all values."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.base.histogram import Histogram
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.format.record import HEAD_BYTES, RecordType
from cairnmq.journal.write.open import open_log
from cairnmq.store import open_store
from tests.harness.journal.logs import BIG, blocks, new_log, put

VALUES = st.lists(st.floats(0, 100) | st.sampled_from([1.0, 2.0, 3.0]))
GROUPS = st.lists(st.lists(st.integers(0, len(BIG)), max_size=30), max_size=12)


@given(VALUES)
def test_a_histogram_counts_every_value_at_its_bound(values: list[float]) -> None:
    bounds = (1.0, 2.0, 4.0)
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    found = histogram.value()
    assert found.count == len(values)
    assert found.cumulative()[:-1] == [sum(value <= bound for value in values) for bound in bounds]
    assert abs(found.total - sum(values)) < 1e-6


@settings(max_examples=30)
@given(GROUPS)
def test_what_was_counted_is_what_the_log_holds(groups: list[list[int]]) -> None:
    """The meters include the opening record, payloads of all sizes, and groups that need several containers."""
    directory, journal = new_log(keep=40)
    begun = journal.writer.meters.written
    assert (begun.flushes, begun.records, begun.own_bytes) == (1, 1, HEAD_BYTES)
    full_groups = 0
    for sizes in groups:
        for size_bytes in sizes:
            put(journal, BIG[:size_bytes])
        before = journal.writer.meters.written
        journal.flush()
        full_groups += bool(sizes)
        assert all(new >= old for new, old in zip(journal.writer.meters.written, before, strict=True))
    found = blocks(directory)
    written = journal.writer.meters.written
    assert written.blocks == len(found)
    assert written.records == sum(block.head.records for block in found)
    assert written.record_bytes == sum(HEAD_BYTES + head.size for block in found for head in block.heads())
    assert written.block_bytes == sum(block.end_lsn - block.lsn for block in found)
    own = sum(head.type >= RecordType.LOG_OPEN for block in found for head in block.heads())
    assert written.own_bytes == own * HEAD_BYTES
    assert written.moved_bytes == 0
    assert written.flushes >= 1 + full_groups  # a group larger than the buffers is flushed in between
    records, sizes_bytes = journal.writer.meters.group_records.value(), journal.writer.meters.group_bytes.value()
    assert records.count == sizes_bytes.count == written.flushes
    assert (records.total, sizes_bytes.total) == (written.records, written.block_bytes)
    journal.abandon()


def test_the_time_of_a_sync_is_the_sync_alone() -> None:
    clock, directory = ManualClock(), MemoryDirectory()
    new_log(directory)[1].close()
    journal, _ = open_log(directory, clock, visit=lambda block: None)
    opened = journal.writer.meters.fsync_s.value()
    directory.on_operation = lambda what: clock.advance(0.25 if what.startswith("sync") else 3)
    put(journal, b"x")
    journal.flush()
    found = journal.writer.meters.fsync_s.value()
    assert found.total - opened.total == 0.25
    at = bisect_left(found.bounds, 0.25)
    assert [new - old for new, old in zip(found.counts, opened.counts, strict=True)] == [
        number == at for number in range(len(found.counts))
    ]
    journal.abandon()


def test_system_counts_about_the_bytes_of_a_flush(tmp_path: Path) -> None:  # A16
    """A flush does not count as a write of the whole folio that a long write of zeros made."""
    with open_store(str(tmp_path / "data")) as store:
        queue = store.queue("q")
        queue.put(b"first").result()
        before = _written_bytes()
        for _ in range(50):
            queue.put(b"m").result()
        assert _written_bytes() - before < 50 * (64 << 10) + (4 << 20)  # with new containers


def _written_bytes() -> int:
    return int(Path("/proc/self/io").read_text().split("\nwrite_bytes: ")[1].split()[0])
