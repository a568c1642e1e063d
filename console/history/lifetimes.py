"""The lifetimes of messages, from the files of a store."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ...base.errors import CairnError
from ...tools.history.history_view import HistoryView
from ...tools.history.trace import Event, MessageLifetime, find, lifetime_of, message_at, sent_as
from ...tools.inspect.properties import Properties
from .places import ignore_progress, ms_of, paths_of, queues_named

MOST_LIVES = 10
MOST_READ_LIVES = 50
"""Lifetimes that are read to find those on a queue."""
Asked = Mapping[str, Any]


def trace(asked: Asked) -> Any:
    """Return the lifetimes of the messages with an ID or a property."""
    with HistoryView(paths_of(asked)) as past:
        lives: list[Any] = []
        done: set[int] = set()
        wanted = queues_named(past, asked["queue"])
        ids = _messages(past, asked)
        read = 0
        for message_id in ids:
            if message_id not in done and len(lives) < MOST_LIVES and read < MOST_READ_LIVES:
                life = lifetime_of(past.history, message_id, ignore_progress)
                done.update(life.message_ids)
                read += 1
                if any(wanted(event.queue_id) for event in life.events):
                    lives.append(_life(past, life))
        return {"messages": lives, "found": len(ids), "remarks": past.told()}


def _messages(past: HistoryView, asked: Asked) -> list[int]:
    if asked["id"]:
        return [message_at(past.history, asked["id"])]
    for key in ("message_id", "correlation_id"):
        text = asked[key]
        if text:
            return find(past.history, partial(_has, key, text), b"", ignore_progress)
    raise CairnError("trace", "no message is named", "name its id, message_id or correlation_id")


def _has(key: str, text: str, found: Properties) -> bool:
    return bool(getattr(found, key) == text)


def _life(past: HistoryView, life: MessageLifetime) -> Any:
    about, size = sent_as(past.history, life)
    return {
        "message": {
            "ids": life.message_ids, "message-id": about.message_id or None,
            "correlation-id": about.correlation_id or None, "application-properties": about.properties,
            "size": size or None,
        },
        "on": {str(key): sorted(map(past.name_of, queues)) for key, queues in life.on.items()},
        "complete": not (life.missing or life.damage),
        "missing": life.missing,
        "events": [_event(past, life, event) for event in life.events],
    }  # fmt: skip


def _event(past: HistoryView, life: MessageLifetime, event: Event) -> dict[str, Any]:
    words = [
        f"{value} bytes" if key == "bytes" else f"{key.replace('_', ' ')} {value}" for key, value in event.more.items()
    ]
    if event.txn_id:
        words.append(f"transaction {life.xids.get(event.txn_id) or event.txn_id}")
    return {
        "lsn": event.lsn, "time": ms_of(event.time_us), "kind": event.what, "message_id": event.message_id,
        "queue": past.name_of(event.queue_id) if event.queue_id else None, "text": ", ".join(words) or None,
        "more": {key: str(value) for key, value in event.more.items()},
    }  # fmt: skip
