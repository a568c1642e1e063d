"""Tests of typed JSON decoding: values, and errors that name the place, the value and the reason."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cairnmq.base.typed_json import NoJson, WrongJson, decode_json


@dataclass
class Row:
    id: int
    names: list[str]


@dataclass
class Table:
    rows: list[Row]


def test_decode_json_builds_nested_values() -> None:
    assert decode_json(b'{"rows": [{"id": 1, "names": ["a"]}], "more": null}', Table) == Table([Row(1, ["a"])])


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ('{"rows": [{"id": true, "names": []}]}', "rows[0].id", "rows[0].id is True: expected `int`, got `bool`"),
        ('{"rows": [{"id": 1, "names": ["a", 5]}]}', "rows[0].names[1]", "rows[0].names[1] is 5: expected `str`"),
        ('{"rows": [{"id": 1}]}', "rows[0]", "rows[0] is {'id': 1}: object missing required field `names`"),
        ('{"rows": 1}', "rows", "rows is 1: expected `array`"),
        ("[]", "", "expected `object`, got `array`"),
        ('{"rows": "%s"}' % ("x" * 1000), "rows", "xxx...: expected `array`"),
    ],
)
def test_decode_json_names_place_value_and_reason(text: str, place: str, says: str) -> None:
    with pytest.raises(WrongJson) as raised:
        decode_json(text, Table)
    assert raised.value.place == place
    assert says in str(raised.value)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"rows": []} x', b'{"a": ' + b"[" * 100_000])
def test_decode_json_tells_malformed_json_apart(data: bytes) -> None:
    with pytest.raises(NoJson):
        decode_json(data, Table)
