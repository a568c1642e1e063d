"""Tests of the text of message bodies, which is the same in SQL, the views, the dump and PEEK."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.amqp.codec import encode, sections
from cairnmq.amqp.codec.bodies import body_text
from cairnmq.analytics.views.journal import open_journal
from cairnmq.base.texts import bytes_words, text_in
from cairnmq.cli.manage.ctl_client import _body_text, readable
from cairnmq.store.embedded.library import open_store

from .conftest import Dump


def data(*parts: bytes) -> bytes:
    return b"".join(b"\x00Su" + encode.binary(part) for part in parts)


def value(of: object) -> bytes:
    return b"\x00Sw" + encode.value(of)


BODIES: dict[str, tuple[bytes, str | None]] = {
    "a value that is a string": (value("one cairn, please"), "one cairn, please"),
    "a long one": (value("ä" * 300), "ä" * 300),
    "data": (data(b"one cairn, please"), "one cairn, please"),
    "data that cut a character": (data("schö".encode()[:-1], "schö".encode()[-1:] + b"n\n\t"), "schön\n\t"),
    "no bytes": (data(b""), ""),
    "bytes that are no UTF-8": (data(b"\xff\xfe"), None),
    "a packed number": (data(b"\x00\x00\x00\x05"), None),
    "a map": (value({"a": 1}), None),
    "null": (value(None), None),
    "a sequence": (b"\x00Sv" + encode.value([1]), None),
    "no AMQP": (b"no amqp", None),
}
HEADER = sections.properties_section(sections.Properties("id"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_store(str(tmp_path)) as opened:
        queue = opened.queue("orders")
        for body, _ in BODIES.values():
            queue.put(HEADER + body if body != b"no amqp" else body).result()
    return tmp_path


def test_every_tool_shows_the_same_text(store: Path, command: Dump) -> None:
    expected = [text for _, text in BODIES.values()]
    assert [body_text(HEADER + body) for body, _ in BODIES.values()] == expected
    columns = open_journal(str(store)).messages(columns=["body_text"])["body_text"].to_pylist()
    assert columns == expected
    query = "select body_text from records where type = 'start' order by lsn"
    assert [row["body_text"] for row in command("sql", store, query, "--json").objects] == expected
    shown = [line for line in command("dump", store, "--type", "start", "--payload", "400").lines if "start" in line]
    for line, text in zip(shown, expected, strict=True):
        assert ("  body " in line) == (text is not None)
        if text is not None:
            printed = text.replace("\n", "\\n").replace("\t", "\\t")
            assert line.endswith(f'  body "{printed}"')
    records = command("dump", store, "--json", "--payload", "400", "--type", "start").records
    assert [record.get("body_text") for record in records] == expected
    complete = command("dump", store, "--complete", "--type", "start").records
    assert not any("body_text" in record for record in complete)  # the text would be a duplicate


def test_a_peeked_body_is_text_or_says_how_long_it_is() -> None:
    """PEEK returns the bytes of a data body, up to a limit, or the value."""
    for body, text in (("one", "one"), (b"one", "one"), ("ö".encode()[:1], None), (b"\x00\x01", None), (None, None)):
        assert _body_text(body, 64) == text
    assert _body_text("schö".encode()[:-1], 4) == "sch"  # the limit cuts the last character
    assert readable({"body": b"\x00\x01", "body-text": None})["body"] == "2 bytes, hex 0001"
    assert readable({"body": b"one", "body-text": "one"})["body"] == "one"
    assert readable({"body": {"a": 1}, "body-text": None})["body"] == {"a": 1}
    assert bytes_words(bytes(20)) == "20 bytes, hex 0000000000000000..."


@given(st.binary(max_size=20))
def test_text_is_what_was_encoded(some: bytes) -> None:
    text = text_in(some)
    if text is not None:
        assert text.encode() == some
        assert json.loads(json.dumps(text)) == text
        assert not any(char in text for char in "\x00\x07\x08\x7f")


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=10), st.integers(1, 3))
def test_a_cut_text_loses_its_last_character_only(text: str, more: int) -> None:
    some = (text + "€").encode()[: -more if more < 3 else None]
    assert text_in(some, is_cut=True) == (text + "€" if more == 3 else text)
