"""Tests of the live set and of orphan records, compared with a loop over all records."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.analytics.lifetimes.lifetimes import NEVER
from cairnmq.analytics.views.journal import Journal, open_journal
from cairnmq.journal.format.record import HEAD_BYTES
from tests.harness.columns.logs import lay_out, live, rows


def held_by(journal: Journal) -> dict[int, dict[str, Any]]:
    """Return the expected live set by container, computed record by record."""
    messages = {
        row["message_id"]: [place for place in row["places"] if place["end"] is None]
        for row in journal.messages().to_pylist() if row["state"] in ("queued", "in doubt")
    }  # fmt: skip
    newest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows(journal):
        message_id, kind, extra = row["message_id"], row["type"], row["extra"]
        if message_id in messages and kind in ("start", "chunk"):
            newest[message_id, kind, extra if kind == "chunk" else 0] = row
        elif message_id in messages and kind == "enqueue" and not row["flags"] & 16:
            place = (row["queue_id"], extra or row["lsn"])
            if place in [(on["queue_id"], on["position"]) for on in messages[message_id]]:
                newest[message_id, *place] = row
    size = journal.log.container_bytes
    found: dict[int, dict[str, Any]] = defaultdict(
        lambda: {"records": 0, "bytes": 0, "messages": set(), "queue_ids": set()}
    )
    for row in newest.values():
        one = found[row["lsn"] - row["lsn"] % size]
        one["records"] += 1
        one["bytes"] += row["size"] + HEAD_BYTES
        one["messages"].add(row["message_id"])
        one["queue_ids"].update(place["queue_id"] for place in messages[row["message_id"]])
    return found


def told_by(journal: Journal, ids: tuple[int, int] = (0, NEVER)) -> dict[int, dict[str, Any]]:
    return {row.pop("container"): row for row in journal.live_set(ids=ids).to_pylist()}


@settings(max_examples=8)
@given(seed=st.integers(0, 1 << 30))
def test_live_set_names_queues_of_its_messages(seed: int) -> None:
    with TemporaryDirectory() as path:
        journal = open_journal(lay_out(live(seed, 500).files, Path(path)))
        expected = held_by(journal)
        assert len(expected) > 1
        told = told_by(journal)
        assert told == {
            container: one | {"messages": len(one["messages"]), "queue_ids": sorted(one["queue_ids"])}
            for container, one in expected.items()
        }
        middle = journal.log.pieces[len(journal.log.pieces) // 2].slot_lsn
        parts = [told_by(journal, ids) for ids in ((0, middle), (middle, NEVER))]
        for container, one in told.items():
            some = [part[container] for part in parts if container in part]
            for name in ("records", "bytes", "messages"):
                assert sum(part[name] for part in some) == one[name]
            assert sorted({number for part in some for number in part["queue_ids"]}) == one["queue_ids"]


@settings(max_examples=8)
@given(seed=st.integers(0, 1 << 30))
def test_orphan_records_are_of_messages_without_start(seed: int) -> None:
    """Orphan records are those of messages without a start record, also if a container is missing."""
    with TemporaryDirectory() as path:
        store = lay_out(live(seed, 500).files, Path(path))
        complete = open_journal(store)
        os.unlink(complete.log.pieces[len(complete.log.pieces) // 2].path)
        journal = open_journal(store)
        known = set(journal.messages()["message_id"].to_pylist())
        expected = [
            row for row in rows(journal)
            if row["type"] in ("enqueue", "dequeue", "delete") and row["message_id"] not in known
        ]  # fmt: skip
        told = journal.orphan_records().to_pylist()
        assert [row["lsn"] for row in told] == [row["lsn"] for row in expected]
        for row, other in zip(told, expected, strict=True):
            names = ("type", "flags", "message_id", "txn_id", "queue_id", "extra")
            assert [row[name] for name in names] == [other[name] for name in names]
            assert row["moved"] == bool(other["flags"] & 8)
        middle = journal.log.pieces[len(journal.log.pieces) // 2].slot_lsn
        parts = [row for ids in ((0, middle), (middle, NEVER)) for row in journal.orphan_records(ids=ids).to_pylist()]
        assert sorted(parts, key=lambda row: row["lsn"]) == told
