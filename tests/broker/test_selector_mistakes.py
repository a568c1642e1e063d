"""Tests of invalid selectors, which are refused with the position and the reason, also if too long or too deep."""

from __future__ import annotations

import pytest
from proton import Message

from cairnmq.broker.selector.compiler import MAX_CHARACTERS, Selector, SelectorError
from cairnmq.broker.selector.expressions import MAX_DEPTH

CONTENT = bytes(Message(body="x").encode())


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("", 1, "ends"),
        ("  ", 1, "ends"),
        ("age =", 6, "ends"),
        ("age = 1 AND", 12, "ends"),
        ("(age = 1", 9, "ends"),
        ("age = 1)", 8, r"\) is not expected"),
        ("age == 1", 6, "= is not expected"),
        ("age != 1", 5, "'!' is not expected"),
        ("age = 1 b", 9, "b is not expected"),
        ("age = 'x", 7, "a string without an end"),
        ("age = 'x'''y", 12, "y is not"),
        ('age = "x"', 7, "'\"' is not expected"),
        ("a < b < c", 7, "< is not expected"),
        ("5", 1, "takes a condition, not a number"),
        ("'x'", 1, "takes a condition, not a string"),
        ("age + 1", 1, "takes a condition, not a number"),
        ("yes AND 'x'", 9, "AND takes a condition, not a string"),
        ("1 OR yes", 1, "OR takes a condition, not a number"),
        ("NOT 'x'", 5, "NOT takes a condition, not a string"),
        ("age > 'x'", 7, "> takes a number, not a string"),
        ("TRUE < yes", 1, "< takes a number, not a condition"),
        ("age + 'x' = 1", 7, r"\+ takes a number, not a string"),
        ("age * (a = b) = 1", 8, r"\* takes a number, not a condition"),
        ("-'x' = 1", 2, "a sign - takes a number"),
        ("age BETWEEN 'a' AND 'b'", 13, "takes a number"),
        ("age BETWEEN 1", 14, "ends"),
        ("age BETWEEN 1 OR 2", 15, "OR is not expected"),
        ("age IN ()", 9, r"\) is not expected"),
        ("age IN (1)", 9, "1 is not expected"),
        ("age IN ('a' 'b')", 13, "'b' is not expected"),
        ("'x' IN ('a')", 1, "IN takes a name"),
        ("age LIKE b", 10, "b is not expected"),
        ("'x' LIKE 'x'", 1, "LIKE takes a name"),
        ("a LIKE 'x' ESCAPE ''", 19, "one character"),
        ("a LIKE 'x' ESCAPE 'xy'", 19, "one character"),
        ("a LIKE 'x!' ESCAPE '!'", 8, "escapes nothing"),
        ("a LIKE 'x!y' ESCAPE '!'", 8, "which needs none"),
        ("a LIKE '%" + "_x" * 200 + "%'", 8, "at most 256 characters"),
        ("5 IS NULL", 1, "IS NULL takes a name"),
        ("a = NULL", 5, "NULL is not expected"),
        ("a IS 5", 6, "5 is not expected"),
        ("NULL", 1, "NULL is not expected"),
        ("BETWEEN = 1", 1, "BETWEEN is not expected"),
        ("escape = 1", 1, "escape is not expected"),
        ("a = 09", 5, "09 is not a number"),
        ("a = 0x", 5, "0x is not a number"),
        ("a = 0x1.8", 5, "is not a number"),
        ("a = 1.5L", 5, "is not a number"),
        ("a = 9223372036854775809", 5, "more than a long"),
        ("a = " + "9" * 5000, 5, "more than a long"),
        ("a = 0x10000000000000000", 5, "more than a long"),
        ("a = 1e400", 5, "more than a float"),
        ("a = 1e39f", 5, "more than a float"),
        ("a = 0x1p5000", 5, "more than a float"),
        ("JMSDestination = 'q'", 1, "amqp.to can"),
        ("JMSReplyTo = 'q'", 1, "amqp.reply_to can"),
        ("JMSExpiration = 1", 1, "amqp.absolute_expiry_time can"),
        ("yes AND amqp.nothing = 1", 9, "no field 'nothing'"),
        ("1a = 1", 2, "a is not expected"),
        ("a; b", 2, "';' is not expected"),
        ("a-b.c = 'x' \x00", 13, "is not expected"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, place: int, reason: str) -> None:
    with pytest.raises(SelectorError, match=reason) as found:
        Selector(text)
    assert found.value.place == f"selector, at character {place}"


def test_the_length_is_limited() -> None:  # A16
    text = "a = 'x'" + " OR a = 'x'" * 2000
    Selector(text[:MAX_CHARACTERS].rsplit(" OR", 1)[0])
    with pytest.raises(SelectorError, match="longer than 16384 characters"):
        Selector(text)


@pytest.mark.parametrize(
    ("begin", "middle", "end"),
    [("NOT ", "a", ""), ("(", "a", " OR b)"), ("-(", "a", "+1)"), ("(", "a", "=b)"), ("-", "a", "")],
)
def test_the_depth_is_limited(begin: str, middle: str, end: str) -> None:  # A16
    def text(depth: int) -> str:
        return begin * depth + middle + end * depth + (" = 1" if begin[0] == "-" else "")

    Selector(text(40)).matches(CONTENT)
    with pytest.raises(SelectorError, match=f"nested deeper than {MAX_DEPTH} levels"):
        Selector(text(1000))
    Selector("(" * 2000 + "a" + ")" * 2000).matches(CONTENT)  # parentheses do not count as operators
