"""Properties of the rows of jobs about space in the log: the positions and bytes of the live set.

The notes of clients define the live messages and their bytes; a plain loop over the records finds the positions of
their newest copies (`walked`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from tests.analysis.clients import Notes
from tests.harness.analysis.laws import HOUR, MINUTE, Ask, at
from tests.harness.analysis.walked import CHUNK, ENQUEUE, PREPARED, START, WITH_ENQUEUE, Record, Walked


def living(world: Notes, walked: Walked) -> list[Record]:
    """Return the newest copy of each record of a message that is on a queue or in doubt."""
    names = {number: name for name, number in world.ids.items()}
    places = {(stay.message_id, stay.queue) for stay in world.stays if stay.end_us is None}
    in_doubt = {message for work in world.work.values() for what, message, *_ in work if what == "put"}
    alive = in_doubt | {message for message, _ in places}
    newest: dict[tuple[int, ...], Record] = {}
    for record in walked.records():
        if record.message_id not in alive:
            continue
        if record.type in (START, CHUNK):
            newest[record.message_id, record.type, record.extra] = record
        elif (
            record.type == ENQUEUE
            and not record.flags & PREPARED
            and (record.message_id, names[record.queue_id]) in places
        ):
            newest[record.message_id, ENQUEUE, record.queue_id] = record
    sizes: Counter[int] = Counter()
    for record in newest.values():
        sizes[record.message_id] += record.size
    assert sizes == Counter({message: len(world.contents[message]) for message in alive})
    alone = {(record.message_id, record.queue_id) for record in newest.values() if record.type == ENQUEUE}
    with_start = {
        (record.message_id, record.queue_id) for record in newest.values()
        if record.type == START and record.flags & WITH_ENQUEUE
    }  # fmt: skip
    assert {(message, names[queue]) for message, queue in alone | with_start} >= places
    return list(newest.values())


def liveness(world: Notes, walked: Walked, ask: Ask) -> None:
    size, archived = walked.containers[0].size, {one.slot_lsn for one in walked.containers if one.is_archived}
    slots = {record.lsn - record.lsn % size for record in living(world, walked)}
    assert not archived & slots, "what lives is in the log"
    shares(world, walked, ask)


def shares(world: Notes, walked: Walked, ask: Ask) -> None:
    """Check the rows of `liveness`; unlike `liveness`, this also applies to damaged logs."""
    size = walked.containers[0].size
    held = defaultdict(list)
    for record in living(world, walked):
        held[record.lsn - record.lsn % size].append(record)
    expected = {}
    for one in walked.containers:
        if not one.is_archived:
            some = held.pop(one.slot_lsn, [])
            messages = {record.message_id for record in some}
            amounts = len(some), sum(record.bytes for record in some), len(messages)
            expected[one.slot_lsn] = one.path.name, *amounts
    rows = ask("liveness")
    assert {
        row["container"]: (row["file"], row["live_records"], row["live_bytes"], row["messages"]) for row in rows
    } == expected
    assert all(row["share"] == row["live_bytes"] / size for row in rows)
    assert rows == sorted(rows, key=lambda row: (row["share"], row["container"]))


def space(world: Notes, walked: Walked, ask: Ask) -> None:
    written = [record.size for record in walked.records() if record.type in (START, CHUNK) and not record.moved]
    assert sum(written) == sum(map(len, world.contents.values())), "what clients gave, once"
    spaces(world, walked, ask)


def spaces(world: Notes, walked: Walked, ask: Ask) -> None:
    """Check the rows of `space`; unlike `space`, this also applies to damaged logs."""
    hours = defaultdict(list)
    for one in walked.containers:
        hours[at(one.begun_us - one.begun_us % HOUR)].append(one)
    *rows, total = ask("space")
    assert [row["hour"] for row in rows] == sorted(hours)
    for row, some in [*((row, hours[row["hour"]]) for row in rows), (total, walked.containers)]:
        records = [record for one in some for record in one.records]
        new, copies = _bytes(records, moved=False), _bytes(records, moved=True)
        assert (row["containers"], row["log_bytes"]) == (len(some), sum(one.size for one in some))
        assert [row["records"], row["new_bytes"]] == new
        assert [row["copies"], row["copied_bytes"]] == copies
        assert row["write_amplification"] == ((new[1] + copies[1]) / new[1] if new[1] else None)
    live = sum(record.bytes for record in living(world, walked))
    held = sum(one.size for one in walked.containers if not one.is_archived)
    assert (total["hour"], total["live_bytes"]) == (None, live)
    assert total["space_amplification"] == held / live


def _bytes(records: Iterable[Record], *, moved: bool) -> list[int]:
    sizes = [record.bytes for record in records if record.moved is moved]
    return [len(sizes), sum(sizes)]


def groups(world: Notes, walked: Walked, ask: Ask) -> None:
    """Check the rows of `groups`: a block has the time of its first new record, or none if all are copies."""
    blocks = defaultdict(list)
    for record in walked.records():
        blocks[record.block].append(record)
    steps = defaultdict(list)
    for records in blocks.values():
        time_us = min((record.time_us for record in records if not record.moved), default=None)
        steps[None if time_us is None else at(time_us - time_us % MINUTE)].append(records)
    rows = ask("groups")
    found = {row["time"]: (row["blocks"], row["records"], row["bytes"]) for row in rows}
    assert found == {
        step: (len(some), sum(map(len, some)), sum(record.bytes for records in some for record in records))
        for step, some in steps.items()
    }
    for row in rows:
        assert row["records_per_block"] == row["records"] / row["blocks"]


LAWS = (liveness, space, groups)
