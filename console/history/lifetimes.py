"""The lifetimes of messages, from the files of the store and of the stores of other brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ...base.errors import CairnError
from ...tools.history.history_view import HistoryView
from ...tools.history.trace import Event, MessageLifetime, find, lifetime_of, message_at, needle_of, sent_as
from ...tools.inspect.properties import Properties
from .places import ms_of, paths_of, queues_named, report_progress

MOST_LIVES = 10
MOST_READ_LIVES = 50
"""Lifetimes that are read to find those on a queue."""
Asked = Mapping[str, Any]


def trace(asked: Asked) -> Any:
    """Return the lifetimes of the messages with an ID or a property."""
    with HistoryView(paths_of(asked)) as past:
        wanted = queues_named(past, asked["queue"])
        ids = _messages(past, asked)
        lives = _lives(past, ids, wanted, most=asked.get("most_lives", MOST_LIVES))
        return {"messages": lives, "found": len(ids), "remarks": past.all_remarks()}


def trace_elsewhere(asked: Asked) -> Any:
    """Return the lifetimes of the messages with one of some message-ids, or a correlation-id, in other stores.

    A store that cannot be read is a remark.
    """
    names, correlation_id = frozenset(asked["message_ids"]), asked["correlation_id"]
    needle = b"" if correlation_id or len(names) > 1 else needle_of(*names)

    def matches(found: Properties) -> bool:
        return found.message_id in names or bool(correlation_id and found.correlation_id == correlation_id)

    lives: list[Any] = []
    remarks: list[str] = []
    count = 0
    for label, store in asked["others"].items():
        try:
            with HistoryView([store]) as past:
                ids = find(past.history, matches, needle, report_progress)
                lives += _lives(past, ids, lambda queue_id: True, label)
                remarks += [f"{label}: {text}" for text in past.all_remarks()]
                count += len(ids)
        except CairnError as error:
            remarks.append(f"{label}: {error}")
    return {"messages": lives, "found": count, "remarks": remarks}


def _lives(
    past: HistoryView, ids: Iterable[int], wanted: Callable[[int], bool], store: str | None = None,
    *, most: int = MOST_LIVES,
) -> list[Any]:  # fmt: skip
    """Return the lifetimes of messages that were on a *wanted* queue; *store*: the label of another broker's store."""
    lives: list[Any] = []
    done: set[int] = set()
    read = 0
    for message_id in ids:
        if message_id not in done and len(lives) < most and read < MOST_READ_LIVES:
            life = lifetime_of(past.history, message_id, report_progress)
            done.update(life.message_ids)
            read += 1
            if any(wanted(event.queue_id) for event in life.events):
                lives.append(_life(past, life, store))
    return lives


def _messages(past: HistoryView, asked: Asked) -> list[int]:
    if asked["id"]:
        return [message_at(past.history, asked["id"])]
    for key in ("message_id", "correlation_id"):
        text = asked[key]
        if text:
            return find(past.history, partial(_has, key, text), needle_of(text), report_progress)
    raise CairnError("trace", "no message is named", "name its id, message_id or correlation_id")


def _has(key: str, text: str, found: Properties) -> bool:
    return bool(getattr(found, key) == text)


def _life(past: HistoryView, life: MessageLifetime, store: str | None) -> Any:
    about, size = sent_as(past.history, life)
    return {
        "store": store,
        "message": {
            "ids": life.message_ids, "message-id": about.message_id or None,
            "correlation-id": about.correlation_id or None, "application-properties": about.properties,
            "size": size or None,
        },
        "on": {str(key): sorted(map(past.name_of, queues)) for key, queues in life.on.items()},
        "complete": not (life.missing or life.damage),
        "missing": life.missing,
        "events": [{"store": store, **_event(past, life, event)} for event in life.events],
    }  # fmt: skip


def _words(key: str, value: Any) -> str:
    """Return a detail of an event as text."""
    if key == "bytes":
        return f"{value} bytes"
    if key == "removed":
        return "from the last queue"
    return f"{key.replace('_', ' ')} {value}"


def _event(past: HistoryView, life: MessageLifetime, event: Event) -> dict[str, Any]:
    words = [_words(key, value) for key, value in event.more.items() if value is not False]
    if event.txn_id:
        words.append(f"transaction {life.xids.get(event.txn_id) or event.txn_id}")
    return {
        "lsn": event.lsn, "time": ms_of(event.time_us), "kind": event.what, "message_id": event.message_id,
        "queue": past.name_of(event.queue_id) if event.queue_id else None, "text": ", ".join(words) or None,
        "more": {key: str(value) for key, value in event.more.items()},
    }  # fmt: skip
