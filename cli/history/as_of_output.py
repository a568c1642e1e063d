"""Output of `cairnmq as-of`: the messages on queues at a point in time, and the differences between two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rich.table import Table

from ...base.printable import printable
from ...base.texts import counted
from ...tools.history.as_of import QueueChange, QueuedMessage, QueuesView, Transition
from ...tools.history.history_view import HistoryView
from ...tools.inspect.point_in_time import time_words
from ..common.csv_rows import print_csv
from ..common.output import long_line_console, print_line

_MESSAGE = ("queue", "queue_id", *QueuedMessage._fields)
_CHANGE = ("queue", "message_id", "change", *Transition._fields)


class SelectedQueues(NamedTuple):
    """The queues of a history that are to be shown."""

    past: HistoryView
    queue_ids: tuple[int, ...]
    """All if empty."""

    def wanted(self, queue_id: int) -> bool:
        """Return whether a queue is selected."""
        return not self.queue_ids or queue_id in self.queue_ids


def _head(found: SelectedQueues, view: QueuesView) -> dict[str, Any]:
    on = {queue_id: ids for queue_id, ids in view.on.items() if found.wanted(queue_id)}
    return {
        "lsn": view.lsn, "complete": view.is_complete, "messages": sum(map(len, on.values())),
        "queues": {found.past.name_of(queue_id): len(ids) for queue_id, ids in on.items()},
        "faults": view.faults() if view.is_kept else ["not all containers are kept any more", *view.faults()],
    }  # fmt: skip


def show_queues(found: SelectedQueues, view: QueuesView, count: int | None, *, output_format: str) -> None:
    """Show the messages on queues; *count*: at most so many of each."""
    head = _head(found, view)
    on = [queue_id for queue_id in view.on if found.wanted(queue_id)]
    if output_format == "csv":
        print_csv(_MESSAGE, _rows(found, view, on, count))
        return
    if output_format == "json":
        print_line({"as_of": head})
        for row in _rows(found, view, on, count):
            print_line(row)
        return
    out = long_line_console()
    out.print(f"as of LSN {view.lsn}: {counted(head['messages'], 'message')} on {counted(len(on), 'queue')}")
    _print_faults(view)
    table = Table("queue", "messages", "bytes")
    for queue_id in on:
        ids = view.on[queue_id].tolist()
        table.add_row(printable(found.past.name_of(queue_id)), str(len(ids)), str(sum(map(view.contents.size_of, ids))))
    if on:
        out.print(table)
    for queue_id in on if count else ():
        _show_queue(found, view, queue_id, count or 0)


def _rows(found: SelectedQueues, view: QueuesView, on: list[int], count: int | None) -> Iterator[dict[str, object]]:
    """Yield the messages of the queues *on*, at most *count* of each."""
    for queue_id in on:
        name = found.past.name_of(queue_id)
        for row in view.rows(queue_id, count):
            yield {"queue": name, "queue_id": queue_id, **row._asdict()}


def _show_queue(found: SelectedQueues, view: QueuesView, queue_id: int, count: int) -> None:
    out = long_line_console()
    columns = "", "message", "arrived", "bytes", "message-id", "state"
    table = Table(*columns, title=printable(found.past.name_of(queue_id)), title_justify="left")
    for row in view.rows(queue_id, count):
        when = time_words(row.time_us) if row.time_us else ""
        table.add_row(str(row.place), str(row.message_id), when, str(row.size_bytes), printable(row.amqp_id), row.state)
    out.print(table)
    if (left := len(view.on[queue_id]) - count) > 0:
        out.print(f"and {left} more")


def _print_faults(view: QueuesView) -> None:
    if not view.is_complete:
        out = long_line_console()
        out.print(f"INCOMPLETE: {view.history.complete_from_words()}")
        for fault in view.faults():
            out.print(printable(f"  {fault}"))


def show_difference(
    found: SelectedQueues, first: QueuesView, second: QueuesView, changes: dict[int, QueueChange], count: int, *,
    output_format: str,
) -> None:  # fmt: skip
    """Show the changes from *first* to *second*; *count*: at most so many messages of each queue."""
    if output_format == "json":
        print_line({"diff": {"from": _head(found, first), "to": _head(found, second)}})
        for queue_id, change in changes.items():
            for row in _moved(found, queue_id, change):
                print_line(row)
            print_line({"queue": found.past.name_of(queue_id), "changes": _counts(change)})
    elif output_format == "csv":
        print_csv(_CHANGE, (row for queue_id in changes for row in _moved(found, queue_id, changes[queue_id])))
    else:
        _show_changes(found, first, second, changes, count)


def _moved(found: SelectedQueues, queue_id: int, change: QueueChange) -> Iterator[dict[str, object]]:
    """Yield the messages that were added or removed."""
    name = found.past.name_of(queue_id)
    for kind, some in (("added", change.came), ("removed", change.went)):
        for message_id, at in some.items():
            yield {"queue": name, "message_id": message_id, "change": kind, **at._asdict()}


def _show_changes(
    found: SelectedQueues, first: QueuesView, second: QueuesView, changes: dict[int, QueueChange], count: int
) -> None:
    out = long_line_console()
    out.print(f"from LSN {first.lsn} to LSN {second.lsn}")
    for view in (first, second):
        _print_faults(view)
    table = Table("queue", "added", "removed", "added and removed")
    for queue_id, change in changes.items():
        table.add_row(printable(found.past.name_of(queue_id)), *map(str, _counts(change).values()))
    out.print(table if changes else "nothing has changed")
    for queue_id, change in changes.items():
        if not count or not (change.went or change.came):
            continue
        table = Table("", "message", "at LSN", "when", "reason", title=printable(found.past.name_of(queue_id)))
        for sign, some in (("-", change.went), ("+", change.came)):
            for message_id, at in list(some.items())[:count]:
                when = time_words(at.time_us) if at.time_us else ""
                table.add_row(sign, str(message_id), str(at.lsn or ""), when, at.reason)
        out.print(table)
        if (left := max(0, len(change.went) - count) + max(0, len(change.came) - count)) > 0:
            out.print(f"and {left} more")


def _counts(change: QueueChange) -> dict[str, int]:
    return {"added": len(change.came), "removed": len(change.went), "passed": change.passed}
