"""Properties of `append_all` and `append_last`, which have the LSNs and write the bytes of single calls of `append`."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given, settings
from hypothesis.strategies import binary, integers, lists, tuples

from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.format.record import HEAD_BYTES, MAX_PAYLOAD_BYTES, Flag, RecordType
from cairnmq.journal.write.journal import OWN_LSN, Journal
from cairnmq.journal.write.open import MIN_CONTAINER_BYTES, format_log, open_log
from tests.harness.journal.logs import content

START, ENQUEUE = int(RecordType.START), int(Flag.ENQUEUE)
DEQUEUE, DELETE = int(RecordType.DEQUEUE), int(Flag.DELETE)


def new_journal() -> tuple[MemoryDirectory, Journal]:
    directory, clock = MemoryDirectory(), ManualClock()
    format_log(directory, MIN_CONTAINER_BYTES, UUID(int=1), 0)
    return directory, open_log(directory, clock, visit=lambda block: None)[0]


sizes = integers(0, 2000) | integers(MAX_PAYLOAD_BYTES - 3, MAX_PAYLOAD_BYTES)


@settings(max_examples=60)
@given(lists(lists(sizes, min_size=1, max_size=40), min_size=1, max_size=6), binary(min_size=1, max_size=4))
def test_a_batch_is_so_many_single_appends(batches: list[list[int]], fill: bytes) -> None:
    one, by_one = new_journal()
    two, by_batch = new_journal()
    for number, batch in enumerate(batches):
        payloads = [(fill * size)[:size] for size in batch]
        single = [
            by_one.append(START, payload, time_us=number, flags=ENQUEUE, message_id=OWN_LSN, queue_id=7)
            for payload in payloads
        ]
        assert by_batch.append_all(START, payloads, time_us=number, flags=ENQUEUE, queue_id=7) == single
        if number % 2:
            assert by_batch.flush() == by_one.flush()
    by_one.close()
    by_batch.close()
    assert content(one) == content(two)


@settings(max_examples=60)
@given(lists(tuples(integers(0, 3000), integers(0, 60_000)), min_size=1, max_size=20))
def test_a_batch_of_ends_is_so_many_single_appends(runs: list[tuple[int, int]]) -> None:
    """The batches have other records in between, and more ends than a container holds."""
    one, by_one = new_journal()
    two, by_batch = new_journal()
    for number, (count, payload_bytes) in enumerate(runs):
        ids = [HEAD_BYTES * (number + 3 * index) for index in range(count)]
        single = [
            by_one.append(DEQUEUE, time_us=5, flags=DELETE, undo_prev=of, message_id=of, queue_id=7, extra=of)
            for of in ids
        ]
        assert by_batch.append_last(DEQUEUE, ids, time_us=5, flags=DELETE, queue_id=7) == single
        for journal in (by_one, by_batch):
            journal.append(START, bytes(payload_bytes), time_us=number, message_id=OWN_LSN)
        assert by_batch.flush() == by_one.flush()
    by_one.close()
    by_batch.close()
    assert content(one) == content(two)
