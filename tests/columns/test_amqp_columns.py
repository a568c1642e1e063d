"""Tests of AMQP sections as typed columns, and of contents that are not AMQP messages."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from cairnmq.analytics.views.amqp_columns import SCHEMA, decoded
from cairnmq.analytics.views.journal import open_journal
from cairnmq.store.embedded.library import open_store
from tests.harness.columns.contents import content

EVERY = SCHEMA.names


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
