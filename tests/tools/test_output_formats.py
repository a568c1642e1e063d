"""Tests of `--output`: JSON, CSV and a table have the same rows, with any names in them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cairnmq.base.printable import printable
from cairnmq.cli.common.csv_rows import safe_cell
from tests.tools.conftest import Dump, Result, Store

HOSTILE = 'a,"b"\nc;\x1b[2Jd\u202e'
FORMULA = "=1+1"
WRONG_CALL = 2
VARYING = ("store", "backup", "seconds", "time", "oldest_age_s", "age_s")
"""The fields whose values differ from call to call."""
Rows = Callable[[Result], list[dict[str, Any]]]


@pytest.fixture
def hostile(store: Store) -> Store:
    """Return a store with messages on two queues whose names attack terminals, CSV and spreadsheets."""
    store.name_queues(HOSTILE, FORMULA)
    first, *_ = store.put_flushed(b"x" * 100, b"y" * 200)
    store.put(b"z", queue_id=2)
    store.take(first)
    store.journal.flush()
    return store


def document(*path: str) -> Rows:
    """Return a function that reads the rows at *path* of a JSON document; an object is one row."""

    def rows(result: Result) -> list[dict[str, Any]]:
        found = json.loads(result.out)
        for name in path:
            found = found[name]
        return found if isinstance(found, list) else [found]

    return rows


def lines(*others: str) -> Rows:
    """Return a function that reads the lines of JSON, without objects that have a key of *others*."""

    def rows(result: Result) -> list[dict[str, Any]]:
        return [found for found in map(json.loads, result.out.splitlines()) if not set(others) & set(found)]

    return rows


CASES: list[tuple[str, Rows, bool]] = [
    ("stat {store}", document("queues"), True),
    ("stat {store} --containers", document("containers"), False),
    ("explain tail {store}", document("pins"), False),
    ("explain space {store}", document("parts"), False),
    ("verify {store}", document("findings"), False),
    ("backup {store} {new}", document(), False),
    ("load {new} {dump}", document("loaded"), False),
    ("salvage {store} --to {new}", document("lost"), False),
    ("trace {store} {message}", lines("message"), True),
    ("as-of {store} end", lines("as_of"), True),
    ("as-of {store} --diff {message} end", lines("diff", "changes"), True),
    ("as-of {store} end --restore {new}", lambda result: [json.loads(result.out.splitlines()[-1])["restored"]], False),
    ("sql {store} {query}", lines(), True),
]


QUERY = "select max(message_id) as id from messages where queue like 'a,%'"


@pytest.mark.parametrize(("call", "rows", "has_names"), CASES, ids=[case[0] for case in CASES])
def test_formats_have_the_same_values(
    call: str, rows: Rows, has_names: bool, hostile: Store, tmp_path: Path, command: Dump
) -> None:
    complete = tmp_path / "dump.jsonl"
    complete.write_text(command("dump", hostile.path, "--complete").out)
    message = command("sql", hostile.path, QUERY, "--json").objects[0]["id"]

    def run(output: str) -> Result:
        known = {"store": hostile.path, "new": tmp_path / f"new-{output}", "dump": complete, "message": message}
        words = [word.format(**known, query="from queues select queue, depth") for word in call.split()]
        found = command(*words, "--output", output)
        assert found.status != WRONG_CALL, found.err
        assert "\x1b" not in found.out
        return found

    objects = rows(run("json"))
    header, *cells = csv.reader(io.StringIO(run("csv").out, newline=""))
    if objects:
        assert set(header) == {name for row in objects for name in row}
    assert len(cells) == len(objects)
    for row, texts in zip(objects, cells, strict=True):
        for name, text in zip(header, texts, strict=True):
            expected = "" if row.get(name) is None else str(safe_cell(row[name]))
            assert text == expected or name in VARYING, name
    table = run("table").out
    if has_names:
        assert HOSTILE in {row["queue"] for row in objects}
        assert any(HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e") in texts for texts in cells)
        assert printable(HOSTILE) in table.replace("\n", "")


def test_dump_refuses_csv_and_names_the_way(hostile: Store, command: Dump) -> None:
    refused = command("dump", hostile.path, "--output", "csv")
    assert (refused.status, refused.out) == (2, "")
    assert "cairnmq sql STORE 'from records' --output csv" in refused.err


@pytest.mark.parametrize("call", ["explain tail {store}", "explain space {store}", "dump {store}"])
def test_option_may_stand_at_every_level(call: str, hostile: Store, command: Dump) -> None:
    first, *rest = (word.format(store=hostile.path) for word in call.split())
    shown = [
        command(*words).out
        for words in (
            (first, *rest, "--json"), ("--json", first, *rest), ("--output", "csv", first, *rest, "--json"),
            ("--output", "json", first, "--json", *rest),
        )
    ]  # fmt: skip
    assert shown[0].startswith("{")
    assert [_without_ages(text) for text in shown] == [_without_ages(shown[0])] * 4


def _without_ages(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if "age_s" not in line)
