"""Questions about past states of a store, answered from its files. Nothing is written to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...base.clock import SystemClock
from ...base.errors import CairnError, JournalError
from ...tools.explain.explain import explain_tail
from ...tools.explain.stat import stat_store
from ...tools.history.as_of import QueuesView, difference
from ...tools.history.history_view import HistoryView
from ...tools.inspect.point_in_time import PointInTime, check_order, parse_point_in_time
from .lifetimes import trace, trace_elsewhere
from .places import ms_of, paths_of, report_progress, shown_queues
from .replay import replay

MOST_MESSAGES = 1000
MOST_CONTAINERS = 10_000
Asked = Mapping[str, Any]


def _moment(text: str) -> PointInTime:
    return parse_point_in_time(text, SystemClock().wall_us())


def span(asked: Asked) -> Any:
    """Return the LSNs and times between which history is kept."""
    with HistoryView(paths_of(asked)) as past:
        history = past.history
        begun = [piece.begun_us for piece in history.log.pieces if piece.begun_us]
        return {
            "first_lsn": history.first_lsn,
            "last_lsn": history.end_lsn,
            "first_time": ms_of(begun[0]) if begun else None,
            "last_time": ms_of(SystemClock().wall_us()),
            "complete_from": history.complete_from_words(),
            "remarks": past.all_remarks(),
        }


def contents(asked: Asked) -> Any:
    """Return the messages on queues as of a point in time."""
    with HistoryView(paths_of(asked)) as past:
        wanted = shown_queues(past, asked["queue"])
        view = past.view(_moment(asked["at"]), report_progress, partial=True)
        on = {queue_id: ids for queue_id, ids in view.on.items() if wanted(queue_id)}
        items: list[dict[str, Any]] = []
        for queue_id in on:
            left = min(asked["limit"], MOST_MESSAGES) - len(items)
            if left <= 0:
                break
            for row in view.rows(queue_id, left):
                items.append({
                    "id": row.message_id, "lsn": row.message_id, "message_id": row.amqp_id or None,
                    "queue": past.name_of(queue_id), "size": row.size_bytes, "time": ms_of(row.time_us),
                    "state": row.state,
                })  # fmt: skip
        size_of = view.contents.size_of
        queues = [
            {"queue": past.name_of(queue_id), "messages": len(ids), "bytes": sum(map(size_of, ids.tolist()))}
            for queue_id, ids in on.items()
        ]
        found = {
            "lsn": view.lsn, "complete": view.is_complete, "faults": view.faults(), "queues": queues, "items": items,
            "total": sum(map(len, on.values())), "remarks": past.all_remarks(),
        }  # fmt: skip
        view.close()
        return found


def changes(asked: Asked) -> Any:
    """Return the differences of queues between two points in time."""
    with HistoryView(paths_of(asked)) as past:
        wanted = shown_queues(past, asked["queue"])
        views = [past.view(_moment(asked[key]), report_progress, partial=True) for key in ("from", "to")]
        first, second = views
        check_order("from, to", first.lsn, second.lsn)
        items: list[dict[str, Any]] = []
        queues = []
        for queue_id, change in difference(first, second, wanted, report_progress).items():
            name = past.name_of(queue_id)
            queues.append(
                {"queue": name, "added": len(change.came), "removed": len(change.went), "passed": change.passed}
            )
            for kind, moves, view in (("added", change.came, second), ("removed", change.went, first)):
                for message_id, move in list(moves.items())[: max(0, MOST_MESSAGES - len(items))]:
                    items.append({
                        "change": kind, "id": message_id, "queue": name, "lsn": move.lsn, "time": ms_of(move.time_us),
                        "reason": move.reason, "size": _size(view, message_id),
                        "message_id": _amqp_id(view, message_id),
                    })  # fmt: skip
        found = {"from": first.lsn, "to": second.lsn, "queues": queues, "items": items, "remarks": past.all_remarks()}
        for view in views:
            view.close()
        return found


def _size(view: QueuesView, message_id: int) -> int | None:
    try:
        return view.contents.size_of(message_id)
    except (CairnError, KeyError):
        return None


def _amqp_id(view: QueuesView, message_id: int) -> str | None:
    """Return the message-id of the sender; None for a message without one, and if it can't be read."""
    try:
        return view.amqp_id_of(message_id) or None
    except (JournalError, KeyError):
        return None


def destroyed_by(command: str) -> str | None:
    """Return what a command destroys for good; None for nothing."""
    if " queues purge " in command:
        return "It removes all messages of the queue that no consumer holds, also those that are still needed."
    if " transactions " in command:
        return "It decides for the coordinator of the transaction."
    return None


def journal(asked: Asked) -> Any:
    """Return the containers of the journal, and why the log is as long as it is."""
    store = asked["store_dir"]
    stat = stat_store(store, report_progress)
    tail = explain_tail(store, report_progress, url=asked["url"])
    log, size = stat.log, stat.container_bytes
    containers = []
    for slot in stat.slots[:MOST_CONTAINERS]:
        ratio = round(slot.live_bytes / size, 4) if size else 0
        state = "live" if slot.live_bytes else "pinned" if slot.is_needed else "reclaimable"
        containers.append({
            "slot": slot.slot, "state": state, "file": slot.file, "first_lsn": slot.first_lsn,
            "begun": ms_of(slot.begun_us), "records": slot.records, "live_bytes": slot.live_bytes,
            "dead_bytes": slot.dead_bytes, "live_ratio": ratio,
            "held_by": {"text": tail.pins[0].name} if slot.slot == tail.slot and tail.pins else None,
        })  # fmt: skip
    commands = [
        *({"text": "To see what holds the oldest container:", "command": one} for one in tail.inspections),
        *({"text": "To release the oldest container:", "command": one, "destroys": destroyed_by(one)}
          for one in tail.remedies),
    ]
    held_by = None
    if tail.pins:
        kinds = ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in tail.counts.items())
        held_by = {"text": f"The oldest container {tail.file} is held by {kinds}.", "command": None}
    reclaimable = int(str(log["used_bytes"])) - int(str(log["live_bytes"]))
    return {
        **log, "container_bytes": size, "containers": containers, "reclaimable_bytes": reclaimable, "held_by": held_by,
        "explanation": [*commands, *({"text": text} for text in tail.by_itself)],
        "pins": [pin.fields() for pin in tail.pins],
        "queues": stat.queues, "notes": stat.notes, "complete": stat.complete,
    }  # fmt: skip


QUESTIONS: dict[str, Callable[[Asked], Any]] = {
    "range": span, "contents": contents, "difference": changes, "trace": trace,
    "trace elsewhere": trace_elsewhere, "journal": journal, "replay": replay,
}  # fmt: skip
