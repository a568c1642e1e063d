"""Tests of reading many records at once, which gives the payload or the error of a single read for each."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.base.disk.seam import File
from cairnmq.base.errors import CairnError, JournalError
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.write.journal import Journal
from tests.harness.journal.logs import BIG, SIZE, START, advance_base, container_start, flip_lsn, new_log, put

MUCH = 1 << 30


def alone(journal: Journal, lsn: int) -> bytes | str:
    try:
        return journal.stored.read_record(lsn).payload
    except CairnError as error:
        return str(error)


def shown(found: list[bytes | CairnError]) -> list[bytes | str]:
    return [one if isinstance(one, bytes) else str(one) for one in found]


def log_of(sizes: list[int], flush_every: int) -> tuple[MemoryDirectory, Journal, list[int]]:
    directory = MemoryDirectory()
    _, journal = new_log(directory)
    lsns: list[int] = []
    for number, size in enumerate(sizes):
        lsns += journal.append_all(START, [number.to_bytes(4) + bytes(size)] * 3, time_us=1)
        put(journal, b"something else")
        if number % flush_every == 0:
            journal.flush()
    journal.flush()
    return directory, journal, lsns


@given(
    sizes=st.lists(st.integers(0, 2000) | st.sampled_from([60_000]), min_size=1, max_size=40),
    flush_every=st.integers(1, 10),
    chosen=st.data(),
)
@settings(max_examples=60)
def test_many_are_what_each_is_alone(sizes: list[int], flush_every: int, chosen: st.DataObject) -> None:
    """The LSNs are requested in any order, with damage anywhere, and some are not those of records."""
    directory, journal, lsns = log_of(sizes, flush_every)
    for lsn in chosen.draw(st.lists(st.sampled_from(lsns), max_size=3), "rotten"):
        flip_lsn(directory, lsn + chosen.draw(st.integers(0, 200), "at"), 1 << chosen.draw(st.integers(0, 7), "bit"))
    wanted = chosen.draw(st.just(lsns) | st.lists(st.sampled_from([*lsns, 512 * 30, 10 * SIZE]), max_size=40), "wanted")
    expected = [alone(journal, lsn) for lsn in wanted]
    assert shown(journal.stored.read_many(wanted, MUCH)) == expected
    most = chosen.draw(st.integers(1, 100_000), "most")
    some = journal.stored.read_many(wanted, most)
    assert shown(some) == expected[: len(some)]
    read = [len(one) for one in some if isinstance(one, bytes)]
    assert len(some) == len(wanted) or sum(read) >= most > sum(read[:-1])


def test_a_long_block_head_is_not_believed() -> None:
    """A wrong size in a damaged block header costs no memory."""
    directory, journal, lsns = log_of([10] * 20, 100)
    flip_lsn(directory, lsns[0] - 64 + 19, 0x40)  # the block's size grows by 1 GiB
    assert shown(journal.stored.read_many(lsns, MUCH)) == [alone(journal, lsn) for lsn in lsns]


def test_a_few_reads_bring_many() -> None:
    _, journal, lsns = log_of([256] * 1000, 100)
    reads: list[int] = []

    class Counting:
        def __init__(self, file: File) -> None:
            self._file = file

        def read_at(self, offset: int, size_bytes: int) -> bytes:
            reads.append(size_bytes)
            return self._file.read_at(offset, size_bytes)

    use = journal.pool.read
    journal.pool.read = lambda slot, how: use(slot, lambda file: how(Counting(file)))  # type: ignore
    assert len(journal.stored.read_many(lsns, MUCH)) == len(lsns) == 3000
    assert len(reads) < 20


def test_nobody_waits_for_a_read_and_nothing_else_is_returned() -> None:
    """The pool continues to work while a slow disk is read; a container recycled meanwhile gives an error."""
    _, journal = new_log()
    lsn = put(journal, b"old")
    journal.flush()
    slot = lsn // SIZE
    reading, go_on = threading.Event(), threading.Event()
    outcome: list[object] = []

    def slow(file: File) -> bytes:
        reading.set()
        assert go_on.wait(180)
        return file.read_at(0, 10)  # still open

    def read() -> None:
        try:
            outcome.append(journal.pool.read(slot, slow))
        except KeyError as error:
            outcome.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    assert reading.wait(180)
    for _ in range(60):
        put(journal, BIG)
        advance_base(journal, container_start(journal, journal.next_lsn))
        journal.flush()
    assert slot not in journal.pool.slots()
    go_on.set()
    reader.join(180)
    assert isinstance(outcome[0], KeyError)
    with pytest.raises(JournalError, match="no container holds it any more"):
        journal.stored.read_record(lsn)
    assert "no container holds it any more" in str(journal.stored.read_many([lsn] * 20, MUCH)[0])
