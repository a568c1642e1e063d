"""Tests of `State`: records lead to the same state in tables or one by one, applied once or repeatedly."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.journal.format.record import HEAD, HEAD_BYTES, TABLE, Flag, RecordHead, RecordType
from cairnmq.journal.read.scanner import LogReader
from cairnmq.journal.write.journal import Journal
from cairnmq.store.message_map.bulk_apply import apply_all
from cairnmq.store.message_map.placement import on_queues
from cairnmq.store.message_map.reconciliation import reconcile
from cairnmq.store.message_map.state import State
from tests.harness.journal.logs import blocks, records_of
from tests.harness.store.histories import MIXES, Traffic
from tests.harness.store.stores import SIZE, live_records, particulars

Record = tuple[int, RecordHead]
FIRST_SLOT = 3


def known(state: State) -> dict[str, Any]:
    """Return everything in which two equal states must agree."""
    return {
        "messages": particulars(state),
        "order": {slot: list(page) for slot, page in state.pages.items()},
        "plain": {slot: dict(page) for slot, page in state.pages.items()},
        "moved": state.moved,
        "live": state.pins.live,
        "live bytes": state.pins.live_bytes,
        "ends": state.pins.tombstones,
        "queues": {queue_id: list(ids) for queue_id, ids in on_queues(state).items()},
    }


def one_by_one(state: State, records: list[Record]) -> None:
    for lsn, head in records:
        state.apply(lsn, head, lambda: memoryview(b""))


def in_tables(state: State, records: list[Record], rng: random.Random) -> None:
    """Apply records in tables of random length, each within a slot."""
    at = 0
    while at < len(records):
        some = [records[at]]
        for lsn, head in records[at + 1 : at + rng.choice((1, 5, 100, 100_000))]:
            if lsn // SIZE != some[0][0] // SIZE:
                break
            some.append((lsn, head))
        at += len(some)
        table = np.frombuffer(b"".join(HEAD.pack(*head) for _, head in some), TABLE)
        if not apply_all(state, np.array([lsn for lsn, _ in some], np.uint64), table):
            one_by_one(state, some)


@st.composite
def any_records(draw: st.DrawFn) -> list[Record]:
    """Draw records that need not be consistent, but a message's Start record precedes its other records."""
    kinds = st.sampled_from([*[RecordType.START] * 4, *[RecordType.DEQUEUE] * 3, RecordType.DELETE, RecordType.CHUNK,
                             RecordType.ENQUEUE, RecordType.LOG_OPEN, RecordType.LOG_HOLES])  # fmt: skip
    plainly = draw(st.booleans())  # if so, most tables can be applied at once
    chosen = draw(st.lists(st.tuples(kinds, st.integers(0), st.integers(0), st.integers(0, 15), st.integers(1, 3))))
    records: list[Record] = []
    ids = [FIRST_SLOT * SIZE - 1000]
    lsn = FIRST_SLOT * SIZE + 576
    for kind, one, other, flags, number in chosen:
        message_id, source = ids[-1 - one % len(ids)], records[-1 - other % len(records)][0] if records else 600
        size, queue_id, extra = 0, number, source
        if kind == RecordType.START:
            flags &= Flag.MOVED if plainly else Flag.ENQUEUE | Flag.MORE | Flag.MOVED
            flags |= int(Flag.ENQUEUE) if plainly else 0
            message_id = message_id if flags & Flag.MOVED else lsn
            ids.append(message_id)
            size, extra = other % 65_537, 0
        elif kind in (RecordType.CHUNK, RecordType.ENQUEUE):
            if plainly:
                continue
            extra = number if kind == RecordType.CHUNK else extra
        elif kind == RecordType.DEQUEUE:
            flags |= int(Flag.DELETE) if plainly else 0
        records.append((lsn, RecordHead(kind, flags, 0, 0, size, 0, source, message_id, queue_id, 0, 0, extra)))
        lsn += HEAD_BYTES * (1 + other % 3000)
    return records


@given(records=any_records(), seed=st.integers(0, 2**32))
@settings(max_examples=300)
def test_tables_say_the_same_as_their_records(records: list[Record], seed: int) -> None:
    slots = {lsn // SIZE: 0 for lsn, _ in records}
    one, other = State(SIZE), State(SIZE)
    one_by_one(one, records)
    in_tables(other, records, random.Random(seed))
    reconcile(one, slots)
    reconcile(other, slots)
    assert known(one) == known(other)


# ---- real histories -------------------------------------------------------------------------------------------------


def history(mix: str, seed: int) -> Traffic:
    """Return traffic with compaction, with all changes durable."""
    traffic = Traffic(mix, seed)
    for _ in range(110):
        traffic.step()
    traffic.rest()
    return traffic


def records_in(traffic: Traffic) -> Iterator[Record]:
    for block in blocks(traffic.disk.files):
        for read in records_of(block):
            yield read.lsn, read.head


@pytest.mark.parametrize("mix", MIXES)
def test_what_calls_made_true_the_records_say(mix: str) -> None:
    """E50, E52: the state at run time equals the one that recovery builds, from tables or single records."""
    traffic = history(mix, seed=4)
    records = list(records_in(traffic))
    slots = dict.fromkeys(LogReader(traffic.disk.files).slots, 0)
    one, other = State(SIZE), State(SIZE)
    one_by_one(one, records)
    in_tables(other, records, traffic.rng)
    reconcile(one, slots)
    reconcile(other, slots)
    assert known(one) == known(other)
    running = traffic.store.state
    assert particulars(one) == particulars(running)
    assert on_queues(one) == on_queues(running)
    journal: Journal = traffic.store.journal
    assert {slot: one.pins.live[slot] for slot in one.pins.live} == running.pins.live == live_records(traffic.store)
    ends = {slot: {ended: count for ended, count in of.items() if ended in journal.extent.slots}
            for slot, of in one.pins.tombstones.items() if slot in journal.extent.slots}  # fmt: skip
    assert {slot: of for slot, of in ends.items() if of} == running.pins.tombstones
    if mix in ("10 % slow", "in pieces on two queues"):
        assert any(head.flags & Flag.MOVED for _, head in records)


@pytest.mark.parametrize("mix", MIXES)
def test_what_is_known_already_can_be_said_again(mix: str) -> None:
    """Records from any slot on can be applied again, as a checkpoint may contain changes after its LSN."""
    traffic = history(mix, seed=6)
    records = list(records_in(traffic))
    slots = dict.fromkeys(LogReader(traffic.disk.files).slots, 0)
    once = State(SIZE)
    in_tables(once, records, traffic.rng)
    reconcile(once, slots)
    for first in slots:
        again = State(SIZE)
        in_tables(again, records, traffic.rng)
        in_tables(again, [record for record in records if record[0] // SIZE >= first], traffic.rng)
        reconcile(again, slots)
        expected, found = known(once), known(again)
        for state in expected, found:  # ends are counted twice, but for the same slots
            state["ends"] = {slot: set(of) for slot, of in state["ends"].items()}
        assert found == expected
