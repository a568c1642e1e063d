"""Tests that tables fit their console, cut only texts, and show values as people read them."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from cairnmq.cli.tables.human_values import human, raw
from cairnmq.cli.tables.text_table import TextTable

pytestmark = pytest.mark.hypothesis

NAMES = ("name", "messages", "address", "since", "reason")
TEXTS = st.text(st.sampled_from("abcdefgh-./日é "), max_size=90)
ROWS = st.tuples(
    TEXTS, st.integers(0, 10**12).map("{:,}".format), TEXTS, st.just("2026-11-28 16:42:54Z"), TEXTS,
)  # fmt: skip


def lines_of(table: TextTable, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, markup=False).print(table)
    return out.getvalue().splitlines()


@given(st.lists(ROWS, max_size=8), st.integers(30, 220), st.booleans())
def test_table_fits_and_cuts_only_texts(rows: list[tuple[str, ...]], width: int, prose: bool) -> None:  # U5
    table = TextTable(*NAMES, prose=("reason",) if prose else ())
    for row in rows:
        table.add_row(*row)
    lines = lines_of(table, width)
    assert all(cell_len(line) <= width for line in lines)
    header, text = lines[0].split(), "\n".join(lines)
    assert header[0] == "name"
    if "messages" in header:
        assert all(row[1] in text for row in rows), "numbers are complete"
    if "since" in header:
        assert all(row[3] in text for row in rows), "times are complete"
    left_out = [name for name in NAMES if name not in header]
    assert header == list(NAMES[: len(header)]), "columns are left out from the right"
    assert not left_out or all(name in text.partition("not shown: ")[2] for name in left_out)
    if not prose and not left_out:
        assert len(lines) == 1 + len(rows), "one line per row"


def test_long_value_ends_with_an_ellipsis_and_short_ones_are_complete() -> None:  # U5
    table = TextTable("name", "address")
    table.add_row("orders", "127.0.0.1:37676")
    table.add_row("o" * 220, "[::1]:37676")
    _, second, third = lines_of(table, 80)
    assert second.split() == ["orders", "127.0.0.1:37676"]
    assert third.split()[0].endswith("o…")
    assert third.split()[1] == "[::1]:37676"
    assert lines_of(TextTable("a", raw=True), 80) == ["a"]


def test_raw_table_neither_cuts_nor_leaves_out() -> None:
    table = TextTable(*NAMES, raw=True)
    table.add_row("o" * 220, "1", "a" * 90, "2026-11-28 16:42:54Z", "r" * 50)
    out = io.StringIO()
    Console(file=out, width=40, soft_wrap=True).print(table)
    assert "o" * 220 in out.getvalue()
    assert "r" * 50 in out.getvalue()


NUMBERS = st.one_of(st.integers(-(2**70), 2**70), st.floats(allow_nan=True, allow_infinity=True))


@given(
    st.sampled_from(("since", "time-us", "held-bytes", "idle-seconds", "max-ms", "live-ratio", "messages", "id")),
    st.one_of(NUMBERS, st.text(), st.none(), st.booleans(), st.lists(NUMBERS), st.dictionaries(st.text(), NUMBERS)),
)
def test_any_value_has_a_printable_text(name: str, value: object) -> None:  # S4
    assert human(name, value).isprintable()
    assert raw(value).isprintable()


def test_values_are_shown_with_their_units() -> None:
    shown = {
        ("held-bytes", 42_100_000): "40.1 MiB",
        ("uptime-seconds", 7265): "2 h 1 min",
        ("since", 1_764_348_174_000): "2025-11-28T16:42:54Z",
        ("messages", 17234): "17,234",
        ("durable-lsn", 1234567): "1234567",
        ("durable", True): "yes",
        ("alarms", ("disk: 4 MiB are left",)): "disk: 4 MiB are left",
    }
    assert {key: human(*key) for key in shown} == shown
    assert human("arguments", {"max-message-bytes": 1 << 20, "paused": True}) == "max-message-bytes=1.0 MiB, paused=yes"
