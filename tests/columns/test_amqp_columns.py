"""Tests of AMQP sections as typed columns, and of contents that are not AMQP messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from cairnmq.amqp.codec import sections
from cairnmq.analytics.views.amqp_columns import SCHEMA, decoded
from cairnmq.analytics.views.journal import open_journal
from cairnmq.store.embedded.library import open_store
from tests.harness.columns.contents import content

EVERY = SCHEMA.names
YEAR_1, YEAR_9999 = -62_135_596_800_000, 253_402_300_799_999
"""The first and the last ms that a calendar has."""


def row(of: bytes | None, *, complete: bool = True) -> dict[str, object]:
    return {name: array[0].as_py() for name, array in zip(EVERY, decoded([of], EVERY, complete=complete), strict=True)}


def test_every_section() -> None:
    found = row(content())
    assert found.pop("creation_time").timestamp() == 1  # type: ignore[attr-defined]
    assert found.pop("absolute_expiry_time").timestamp() == 2  # type: ignore[attr-defined]
    assert found == {
        "durable": True, "priority": 7, "ttl_ms": 5000, "first_acquirer": True, "delivery_count": 2,
        "amqp_message_id": str(UUID(int=5)), "user_id": b"me", "to": "orders", "subject": "subject",
        "reply_to": "back", "correlation_id": "12", "content_type": "text/plain", "content_encoding": "gzip",
        "group_id": "group", "group_sequence": 3, "reply_to_group_id": "there", "delivery_annotations": None,
        "message_annotations": [("x-opt-a", "5")],
        "application_properties": [("size", "3"), ("red", "true"), ("name", "x")], "body_kind": "data",
        "body": b"cairn", "body_text": "cairn", "amqp_error": None,
    }  # fmt: skip
    assert row(content(b"")) | {"body": b"cairn", "body_text": "cairn"} == row(content())


def test_a_message_that_says_nothing_has_the_defaults() -> None:
    found = row(b"\x00Sw\x40")
    assert (found["durable"], found["priority"], found["body_kind"], found["body"]) == (False, 4, "value", b"\x40")
    assert {name for name, value in row(None).items() if value is not None} == set()


@given(junk=st.binary(max_size=60), at=st.integers(0, 200))
def test_junk_is_told(junk: bytes, at: int) -> None:
    """Any content yields a row with either an error or typed values."""
    for one in (junk, content()[:at], content()[:at] + junk):
        for complete in (True, False):
            found = row(one, complete=complete)
            assert found["amqp_error"] is None or not {
                name for name, value in found.items() if value is not None and name != "amqp_error"
            }


_SECTIONS = (
    b"\x00Sp\xc0\x02\x01A", b"\x00Sp\xc0\x03\x01\xa1\x00", b"\x00Sr\xc1\x05\x02\xa3\x01aAB",
    b"\x00Sr\xc1\x03\x02\xa3\x01", sections.properties_section(sections.Properties(subject="s")),
    b"\x00Ss\xc0\x03\x01\xa1\x07", sections.application_properties_section({"a": 1}), b"\x00St\xc1\x04\x02T\x01A",
    b"\x00Su\xa0\x01v",
    b"\x00Sw\xa1\x01v", b"\x00Sw\xa1\x01\xff", b"\x00Sx\xc1\x01\x00", b"\x00Sx\xc1\x03\x01A\x00", b"",
)  # fmt: skip
"""Sections of messages, right ones and such with an error inside, in the order in which they may occur."""


@given(
    one=st.one_of(
        st.lists(st.sampled_from(range(len(_SECTIONS))), max_size=5, unique=True).map(
            lambda chosen: b"".join(_SECTIONS[at] for at in sorted(chosen))
        ),
        st.builds(lambda cut, more: content()[:cut] + more, st.integers(0, 200), st.binary(max_size=20)),
    ),
    columns=st.lists(st.sampled_from(EVERY), min_size=1, unique=True),
    complete=st.booleans(),
)
def test_value_does_not_depend_on_the_columns_that_are_read(one: bytes, columns: list[str], complete: bool) -> None:
    # S2
    every = row(one, complete=complete)
    some = {
        name: array[0].as_py() for name, array in zip(columns, decoded([one], columns, complete=complete), strict=True)
    }
    assert some == {name: every[name] for name in columns}


@given(
    time_ms=st.one_of(
        st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from((YEAR_1, YEAR_1 - 1, YEAR_9999, YEAR_9999 + 1))
    )
)
def test_time_that_no_calendar_has_is_null(time_ms: int) -> None:
    # S3
    found = row(
        sections.properties_section(sections.Properties(absolute_expiry_time_ms=time_ms, creation_time_ms=time_ms))
    )
    assert found["amqp_error"] is None
    for name in ("absolute_expiry_time", "creation_time"):
        if YEAR_1 <= time_ms <= YEAR_9999:
            at = found[name]
            assert isinstance(at, datetime)
            assert (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) == time_ms
        else:
            assert found[name] is None


def test_the_columns_of_records_and_messages(tmp_path: Path) -> None:
    with open_store(str(tmp_path)) as store:
        queue = store.queue("orders")
        queue.put(content()).result()
        queue.put(b"no amqp").result()
        queue.put_in_pieces([content() + b"\x00Su\xb0\x00\x01\x00\x00", bytes(65536)]).result()
    journal = open_journal(str(tmp_path))
    columns = ["lsn", "type", "subject", "application_properties", "amqp_error"]
    found = [row for batch in journal.records(columns=columns) for row in batch.to_pylist()]
    starts = [row for row in found if row["type"] == "start"]
    assert [row["subject"] for row in starts] == ["subject", None, "subject"]
    assert [bool(row["amqp_error"]) for row in starts] == [False, True, False]
    assert all(row["subject"] is None and row["amqp_error"] is None for row in found if row["type"] != "start")
    table = journal.messages(columns=["message_id", "queue", "body", "subject", "pieces"])
    complete = table.to_pylist()
    assert [row["queue"] for row in complete] == ["orders"] * 3
    assert [row["body"] for row in complete] == [b"cairn", None, b"cairn" + bytes(65536)]
    assert [row["name"] for row in journal.wiring().to_pylist()] == ["orders"]
