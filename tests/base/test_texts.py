"""Tests of text formatting for users."""

from __future__ import annotations

import pytest

from cairnmq.base.texts import counted


@pytest.mark.parametrize(
    ("shown", "count", "noun", "plural", "spec"),
    [
        ("0 messages", 0, "message", "", ""),
        ("1 message", 1, "message", "", ""),
        ("2 messages", 2, "message", "", ""),
        ("1 entry", 1, "entry", "entries", ""),
        ("0 entries", 0, "entry", "entries", ""),
        ("1 more queue", 1, "more queue", "", ""),
        ("12,345 records", 12345, "record", "", ","),
    ],
)
def test_counted_noun_agrees_with_its_number(shown: str, count: int, noun: str, plural: str, spec: str) -> None:
    assert counted(count, noun, plural, spec=spec) == shown
