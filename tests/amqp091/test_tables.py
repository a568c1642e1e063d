"""Tests of field tables: they keep values and types, agree with pamqp, and refuse everything else."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import decode as pamqp_decode
from pamqp import encode as pamqp_encode

from cairnmq.amqp091.tables import MAX_DEPTH, MOST_VALUES, BadTable, read_table, write_table
from tests.harness.amqp.tables import names, tables, typed


@given(tables)
def test_a_table_keeps_values_and_types(table: dict[str, Any]) -> None:
    encoded = write_table(table)
    found, end = read_table(encoded, 0, len(encoded))
    assert end == len(encoded)
    assert typed(found) == typed(table)


@given(st.dictionaries(names, st.text(max_size=50) | st.booleans() | st.none() | st.integers(-(1 << 31), 1 << 31)))
def test_tables_of_pamqp_are_read_and_pamqp_reads_tables(table: dict[str, Any]) -> None:
    encoded = pamqp_encode.field_table(table)
    assert read_table(encoded, 0, len(encoded))[0] == table
    assert pamqp_decode.field_table(write_table(table))[1] == table


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(data: bytes) -> None:
    table = len(data).to_bytes(4) + data
    try:
        found, _ = read_table(table, 0, len(table))
    except BadTable:
        return
    write_table(found)


def test_nesting_and_number_of_values_are_bounded() -> None:
    nested: dict[str, Any] = {}
    for _ in range(MAX_DEPTH - 1):
        nested = {"t": nested}
    assert read_table(write_table(nested), 0, 1 << 20)[0] == nested
    with pytest.raises(BadTable, match="nested deeper"):
        write_table({"t": nested})
    inner = b""
    for _ in range(MAX_DEPTH + 1):
        inner = b"\1tF" + len(inner).to_bytes(4) + inner
    with pytest.raises(BadTable, match="nested deeper"):
        read_table(len(inner).to_bytes(4) + inner, 0, 1 << 20)
    many = b"\1a" + b"A" + (MOST_VALUES + 1).to_bytes(4) + b"V" * (MOST_VALUES + 1)
    with pytest.raises(BadTable, match=f"more than {MOST_VALUES} values"):
        read_table(len(many).to_bytes(4) + many, 0, len(many) + 4)


@pytest.mark.parametrize("value", [object(), {"k" * 256: 1}, Decimal("1e400"), 1j], ids=range(4))
def test_what_no_table_has_is_refused(value: Any) -> None:
    with pytest.raises(BadTable):
        write_table({"v": value})
