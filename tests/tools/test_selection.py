"""A filter shows exactly the records it names: what is left out by one of them fails its test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import DrawFn, composite, integers, sampled_from, sets

from cairnmq.journal.log import OWN_LSN
from cairnmq.journal.record import Flag, RecordType

if TYPE_CHECKING:
    from tests.tools.conftest import Dump, Store

NAMES = (
    "log-open", "start", "start+enqueue", "start+more", "enqueue", "chunk", "dequeue", "delete", "tx-start", "type-99",
)  # fmt: skip


@pytest.fixture
def mixed(store: Store) -> Store:
    """Some of everything, over four containers."""
    store.name_queues("orders", "bills")
    now = store.clock.wall_us()
    for queue in (1, 2, 3):
        journal = store.journal
        first = store.put(b"a", queue)
        store.take(first, queue)
        long = journal.append(RecordType.START, b"b", flags=Flag.MORE, message_id=OWN_LSN, time_us=now)
        journal.append(RecordType.CHUNK, b"c", message_id=long, undo_prev=long, time_us=now)
        journal.append(RecordType.ENQUEUE, message_id=long, undo_prev=long, queue_id=queue, time_us=now)
        journal.flush()
        journal.append(RecordType.DEQUEUE, message_id=long, undo_prev=long, queue_id=queue, time_us=now)
        journal.append(RecordType.DELETE, message_id=long, undo_prev=long, time_us=now)
        journal.append(99, b"unknown", time_us=now)
        journal.flush()
        store.reopen()  # which begins a new container
    return store


def names_of(found: dict[str, Any]) -> set[str]:
    return {found["type"], *found["flags"], "+".join([found["type"], *found["flags"]])}


@composite
def choices(draw: DrawFn) -> dict[str, Any]:
    return {
        "types": draw(sets(sampled_from(NAMES), max_size=2)),
        "queues": draw(sets(sampled_from([1, 2, 3, 4]), max_size=2)),
        "messages": draw(sets(integers(0, 6), max_size=2)),
        "range": draw(sets(integers(0, 40), min_size=2, max_size=2)),
    }


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(choices())
def test_filters_show_what_they_name_and_nothing_else(mixed: Store, dump: Dump, choice: dict[str, Any]) -> None:
    everything = dump(mixed.path, "--json").records
    assert len(everything) == 3 * 8 + 4
    all_messages = sorted({found["message_id"] for found in everything})
    edges = sorted({0, *(at + move for at in mixed.record_lsns()[::3] for move in (0, 1)), 1 << 40})
    first, end = (edges[number % len(edges)] for number in sorted(choice["range"]))
    messages = {all_messages[number] for number in choice["messages"]}
    arguments: list[object] = ["--from-lsn", first, "--to-lsn", end]
    for option, values in (("--type", choice["types"]), ("--queue", choice["queues"]), ("--message", messages)):
        for value in values:
            arguments += [option, value]
    wanted = [
        found["lsn"]
        for found in everything
        if first <= found["lsn"] < end
        and (not choice["types"] or choice["types"] & names_of(found))
        and (not choice["queues"] or found["queue_id"] in choice["queues"])
        and (not messages or found["message_id"] in messages)
    ]
    result = dump(mixed.path, "--json", *arguments)
    assert result.lsns == wanted
    assert (result.status, result.damage) == (0, [])


def test_a_queue_is_named_or_numbered(mixed: Store, dump: Dump) -> None:
    by_name = dump(mixed.path, "--json", "--queue", "bills").records
    assert by_name == dump(mixed.path, "--json", "--queue", "2").records
    assert {found["queue"] for found in by_name} == {"bills"}
    both = dump(mixed.path, "--json", "--queue", "bills", "--queue", "orders").records
    assert {found["queue_id"] for found in both} == {1, 2}


def test_a_name_made_of_digits_goes_before_the_number(store: Store, dump: Dump) -> None:
    store.name_queues("2", "other")
    store.put(b"", 1)
    store.put(b"", 2)
    store.journal.flush()
    assert [found["queue_id"] for found in dump(store.path, "--json", "--queue", "2").records] == [1]


def test_a_fused_type_is_found_by_its_whole_and_its_parts(mixed: Store, dump: Dump) -> None:
    def count(name: str) -> int:
        return len(dump(mixed.path, "--json", "--type", name).lsns)

    assert (count("start"), count("start+enqueue"), count("start+more")) == (6, 3, 3)
    assert (count("enqueue"), count("delete"), count("dequeue"), count("dequeue+delete")) == (6, 6, 6, 3)
    assert (count("type-99"), count("log-open"), count("tx-commit")) == (3, 4, 0)


def test_a_range_that_begins_in_a_skipped_slot_shows_no_damage(store: Store, dump: Dump) -> None:
    """A container that was taken when the power failed leaves its slot empty for ever."""
    store.put_flushed(b"a")
    size = store.journal.container_bytes
    store.journal.pool.take(1, incarnation=1, prev_lsn=0, base_lsn=0, time_us=0).close()
    store.reopen()
    last = store.put_flushed(b"b")[0]
    assert last // size == 2
    assert dump(store.path, "--json").lsns == store.record_lsns()
    after = dump(store.path, "--json", "--from-lsn", size + 1000)
    assert (after.damage, after.lsns[-1], after.status) == ([], last, 0)
    assert all(lsn >= size + 1000 for lsn in after.lsns)
    assert dump(store.path, "--from-lsn", 9 * size).out == ""


def test_blocks_without_a_shown_record_are_left_out(mixed: Store, dump: Dump) -> None:
    shown = dump(mixed.path, "--json", "--blocks", "--queue", 1).objects
    blocks = [found["block"]["lsn"] for found in shown if "block" in found]
    assert blocks == sorted({found["block_lsn"] for found in shown if "lsn" in found})
    assert blocks
