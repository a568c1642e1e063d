"""Tests of acquisition records: all tools show them correctly, and none reports them as an error."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cairnmq.analytics.views.journal import open_journal
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.journal.format.record import FIRST_NOTE, RecordType
from cairnmq.recovery import replay
from cairnmq.recovery.recover import open_store
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.journaled.acquire_records import MAX_NAME_BYTES, MOST_MESSAGES, decode, encode, taker
from cairnmq.store.journaled.store import JournalStore
from tests.harness.process import CAIRNMQ, DEADLINE_S
from tests.harness.store.stores import NOW_US, queue

Run = Callable[..., str]


def opened(path: Path) -> JournalStore:
    store, _ = open_store(str(path), ManualClock(), StoreOptions(acquisitions=True))
    store.run_inline(store.became_durable)
    return store


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a store with nine messages, of which one is dequeued, and records of ten acquisitions."""
    store = opened(tmp_path / "data")
    orders = queue(store, "orders")
    ids = [store.put(orders, b"x%d" % number, NOW_US)[0] for number in range(9)]
    store.note_acquired(orders, taker("dépôt", "link\x1b"), ids, NOW_US)
    store.note_acquired(orders, taker("shop", "two"), ids[3:4], NOW_US)
    store.dequeue(ids[3], orders, NOW_US)
    store.kick()
    store.close()
    return tmp_path / "data"


def run(*arguments: object) -> str:
    command = [CAIRNMQ, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=DEADLINE_S).stdout


def test_a_dump_shows_who_and_what(place: Path) -> None:
    lines = [line for line in run("dump", place).splitlines() if " acquire " in line]
    assert [line.split("  by ")[1].split(":")[0] for line in lines] == ["dépôt/link\\x1b", "shop/two"]
    assert lines[0].endswith(", ...")
    said = [json.loads(line) for line in run("dump", place, "--json", "--type", "acquire").splitlines()]
    handed = [one["acquired"] for one in said if "acquired" in one]
    assert [(one["container"], one["link"], len(one["message_ids"])) for one in handed] == [
        ("dépôt", "link\x1b", 9), ("shop", "two", 1),
    ]  # fmt: skip
    [fourth] = handed[1]["message_ids"]
    about = [json.loads(line) for line in run("dump", place, "--json", "--message", fourth).splitlines()]
    assert [one["type"] for one in about if "lsn" in one] == ["start", "acquire", "acquire", "dequeue"]


def test_the_other_tools_count_them_and_find_nothing_wrong(place: Path, tmp_path: Path) -> None:
    assert json.loads(run("verify", place, "--json"))["findings"] == []
    told = json.loads(run("stat", place, "--json"))
    assert sum(one["types"].get("acquire", 0) for one in told["containers"]) == 2
    rows = open_journal(str(place))
    assert sum(batch.column("type").to_pylist().count("acquire") for batch in rows.records()) == 2
    by_sql = run("sql", place, "select type, sum(extra) as n from records where type = 'acquire' group by all", "--csv")
    assert by_sql.splitlines()[1] == "acquire,10"


def test_a_note_that_nobody_knows_is_passed_by_and_anything_else_is_refused(place: Path) -> None:
    store = opened(place)
    store.journal.append_hint(FIRST_NOTE + 7, b"of a later version", time_us=NOW_US, queue_id=1, extra=0)
    store.write_notes()
    before = store.messages()
    store.close()
    store = opened(place)
    assert store.messages() == before
    store.close()
    assert "type-71" in run("dump", place)
    assert not set(RecordType) - {*replay._KNOWN}


def test_names_are_cut_and_long_batches_divided(tmp_path: Path) -> None:
    store = opened(tmp_path / "data")
    orders = queue(store, "orders")
    ids = [store.put(orders, b"", NOW_US)[0] for _ in range(2 * MOST_MESSAGES + 3)]
    who = taker("é" * MAX_NAME_BYTES, "l" * 3000)
    before = store.journal.next_lsn
    store.note_acquired(orders, who, ids, NOW_US)
    store.write_notes()
    store.close()
    said = [json.loads(line) for line in run("dump", tmp_path / "data", "--json", "--from-lsn", before).splitlines()]
    handed = [one["acquired"] for one in said if "acquired" in one]
    assert [one for some in handed for one in some["message_ids"]] == ids
    assert {(one["container"], one["link"]) for one in handed} == {("é" * (MAX_NAME_BYTES // 2), "l" * MAX_NAME_BYTES)}


@pytest.mark.parametrize(
    ("payload", "count"), [(b"", 0), (bytes(9), 1), (encode(taker("abc", ""), [1, 2])[:-1], 2)]
)
def test_what_can_not_be_one_is_told(payload: bytes, count: int) -> None:
    with pytest.raises(ValueError, match="bytes hold no"):
        decode(payload, count)
