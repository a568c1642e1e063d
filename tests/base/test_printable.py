"""Tests of escaping external text for terminals, logs, spreadsheets and programs."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.base.printable import printable, printable_json
from cairnmq.cli.common.row_writers import CsvWriter

FORMULAS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


@given(st.text())
def test_printable_text_controls_nothing(text: str) -> None:  # W12
    assert printable(text).isprintable()
    assert text.isprintable() == (printable(text) == text)


@given(st.recursive(st.text(), lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(), one, max_size=3)))
def test_printable_json_is_the_same_document(value: Any) -> None:  # W12
    for indent in (None, 1):
        text = printable_json(json.dumps(value, ensure_ascii=False, indent=indent))
        assert text.replace("\n", "").isprintable()
        assert json.loads(text) == value


def written(values: list[Any], *, raw: bool) -> str:
    out = io.StringIO()
    writer = CsvWriter(out, raw=raw)
    table = pa.table({"a": pa.array(values), "b": pa.array([0] * len(values))})
    writer.begin(table.schema)
    for batch in table.to_batches():
        writer.rows(batch)
    return out.getvalue().removeprefix("a,b\n")


@given(text=st.text(st.characters(exclude_categories=["Cs"])) | st.text("=+-@\t\n\r\x1b\u202e\u2028a1", min_size=1))
def test_text_in_csv_controls_no_terminal_and_is_no_formula(text: str) -> None:  # W15, attack 68
    line = written([text], raw=False)
    assert line.replace("\n", "").replace("\t", "").isprintable()
    [[cell, _]] = csv.reader(io.StringIO(line, newline=""))
    assert not cell.startswith((*FORMULAS, "\t", "\r", "\n"))
    if text.isprintable() and not text.startswith(FORMULAS):
        assert cell == text


@pytest.mark.parametrize("raw", [False, True])
def test_number_in_csv_is_a_number(raw: bool) -> None:
    assert written([-5, 7], raw=raw) == "-5,0\n7,0\n"


def test_raw_csv_is_unchanged() -> None:
    assert written(["=1+1", "\x1b[2J"], raw=True) == "=1+1,0\n\x1b[2J,0\n"
