"""Tests of filters: exactly the records that pass all filters are shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import DrawFn, composite, integers, sampled_from, sets

from cairnmq.journal.format.record import Flag, RecordType
from cairnmq.journal.write.journal import OWN_LSN
from cairnmq.tools.inspect.dump import Totals, last_of
from cairnmq.tools.inspect.dump import dump as dump_lines
from cairnmq.tools.inspect.evidence import open_evidence
from cairnmq.tools.inspect.lines import JsonLines
from cairnmq.tools.inspect.point_in_time import time_words
from cairnmq.tools.inspect.row_filter import RowFilter

if TYPE_CHECKING:
    from tests.tools.conftest import Dump, Store

NAMES = (
    "log-open", "start", "start+enqueue", "start+more", "enqueue", "chunk", "dequeue", "delete", "tx-start", "type-99",
)  # fmt: skip


@pytest.fixture
def mixed(store: Store) -> Store:
    """Return a store with records of many types, over four containers."""
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
        store.reopen()  # a reopened journal begins a new container
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


@settings(max_examples=100)
@given(choices())
def test_filters_show_what_they_name_and_nothing_else(mixed: Store, dump: Dump, choice: dict[str, Any]) -> None:
    everything = dump(mixed.path, "--json").records
    assert len(everything) == 3 * 8 + 4
    all_messages = sorted({found["message_id"] for found in everything})
    edges = sorted({0, *(at + move for at in mixed.record_lsns()[::3] for move in (0, 1)), 1 << 40})
    first, end = sorted(edges[number % len(edges)] for number in choice["range"])
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


@pytest.fixture
def timed(store: Store) -> Store:
    """Return a store with two messages per second, each with its second as content, over several containers."""
    store.name_queues("orders")
    for second in range(40):
        for _ in range(2):
            store.put(b"%05d" % second * 9000)
            store.journal.flush()
        store.clock.advance(1)
    return store


@pytest.mark.parametrize(("since", "until"), [(0, 100), (3, 3), (None, 7), (31, None), (50, None)])
def test_a_range_of_times(timed: Store, dump: Dump, since: int | None, until: int | None) -> None:
    everything = dump(timed.path, "--json").records
    begin_us = everything[1]["time_us"]
    arguments: list[object] = []
    for option, second in (("--since", since), ("--until", until)):
        if second is not None:
            arguments += [option, time_words(begin_us + second * 1_000_000)]
    least, most = since or 0, 1 << 30 if until is None else until
    wanted = [
        one["lsn"] for one in everything if least <= (one["time_us"] - begin_us) / 1_000_000 <= most
        or (since is None and one["time_us"] < begin_us)
    ]  # fmt: skip
    assert dump(timed.path, "--json", *arguments).lsns == wanted
    assert dump(timed.path, "--json", "--since", "17").status == 2


def test_range_that_ends_before_it_begins_is_refused(timed: Store, dump: Dump) -> None:
    for options in (("--from-lsn", "9", "--to-lsn", "8"), ("--since", "1m", "--until", "1h")):
        result = dump(timed.path, "--json", *options)
        assert (result.status, result.lsns) == (2, [])
        assert f"{' '.join(options)}: the second point in time is before the first" in result.err


@pytest.mark.parametrize("count", [1, 2, 3, 17, 79, 80, 5000])
def test_the_last_of_what_is_meant(timed: Store, dump: Dump, count: int) -> None:
    everything = dump(timed.path, "--json")
    last = dump(timed.path, "--json", "--last", count)
    assert last.lsns == everything.lsns[-count:]
    assert last.objects[-1] == {"end": {"records": min(count, len(everything.lsns)), "corrupt": 0, "torn": 0}}
    puts = dump(timed.path, "--json", "--type", "enqueue", "--to-lsn", everything.lsns[60]).lsns
    assert dump(
        timed.path, "--json", "--type", "enqueue", "--to-lsn", everything.lsns[60], "--last", count
    ).lsns == puts[-count:]  # fmt: skip
    assert dump(timed.path, "--last", "0").status == 2


def test_the_last_of_a_damaged_store_with_the_damage_among_them(timed: Store, dump: Dump) -> None:
    lsns = dump(timed.path, "--json").lsns
    timed.flip(lsns[-3] + 100)
    found = dump(timed.path, "--json", "--last", 4)
    assert found.lsns == [*lsns[-5:-3], *lsns[-2:]]
    assert (len(found.damage), found.status) == (1, 1)
    assert (dump(timed.path, "--last", 2).status, dump(timed.path, "--json", "--last", 2).lsns) == (0, lsns[-2:])


def test_the_last_while_the_log_grows_are_so_many(timed: Store) -> None:
    """`--last` shows the records that were last when it searched, although a broker appends others meanwhile."""
    evidence = open_evidence([str(timed.path)])
    row_filter = last_of(evidence, RowFilter(), 5)
    before = timed.record_lsns()[-5:]
    timed.put_flushed(b"later", b"later still")
    shown: list[str] = []
    dump_lines(evidence, row_filter, JsonLines({}), shown.append, Totals())
    assert [json.loads(line)["lsn"] for line in "".join(shown).splitlines()[:-1]] == before


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
    """A slot stays empty if power fails while its container is taken, and the dump reports no damage there."""
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
