"""The views of `cairnmq as-of`: shown and compared, restored to a store, or sent to a broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ...amqp.client.login import BrokerLogin
from ...base.clock import SystemClock
from ...base.errors import CairnError
from ...base.printable import printable
from ...base.texts import counted
from ...tools.backup.restore_view import restore_view
from ...tools.history.as_of import QueueChange, QueuedMessage, QueuesView, Transition, difference
from ...tools.history.history_view import HistoryView
from ...tools.inspect.format_text import size_text
from ...tools.inspect.point_in_time import check_order, time_words
from ...tools.load.bulk_sender import OutgoingMessage
from ..common.output import Bars, long_line_console, output, print_fields, print_line, print_values
from ..common.send_options import send, tell_sent
from ..tables.text_table import TextTable

_MESSAGE = ("queue", "queue_id", *QueuedMessage._fields)
_CHANGE = ("queue", "message_id", "change", *Transition._fields)


class FoundViews(NamedTuple):
    """The views of the points in time that were requested, and the queues of them that are to be shown."""

    past: HistoryView
    views: list[QueuesView]
    queue_ids: tuple[int, ...]
    """All if empty."""
    output_format: str

    @property
    def status(self) -> int:
        """The exit status."""
        return 0 if all(view.is_complete for view in self.views) else 1

    def wanted(self, queue_id: int) -> bool:
        """Return whether a queue is selected."""
        return not self.queue_ids or queue_id in self.queue_ids

    def show(self, count: int | None) -> None:
        """Show the messages of one view, or the differences between two."""
        if self.output_format in ("csv", "raw") and count == 0:
            return  # the rows are those of --restore or --resend
        if len(self.views) == 1:
            with output(lambda: self.status):
                _show_queues(self, count)
            return
        first, second = self.views
        check_order("--diff", first.lsn, second.lsn)
        with Bars() as bars:
            changes = difference(first, second, self.wanted, bars.show)
        with output(lambda: self.status):
            _show_difference(self, changes, count or 0)

    def restore(self, target: str) -> None:
        """Make a new store at *target*, and report it."""
        with Bars() as bars:
            restored = restore_view(self.past, self.views[0], target, self.wanted, SystemClock(), bars.show)
        messages = sum(restored.values())
        with output(lambda: self.status):
            fields = {"store": target, "messages": messages, "queues": restored}
            if not print_fields(fields, self.output_format, "restored"):
                print(f"restored {counted(messages, 'message')} to {target}")

    def resend(self, broker: BrokerLogin, address: str, required: str, rate: float | None, skip: int) -> None:
        """Send the messages to *broker*, and report that. *required*: an address that must exist, if any."""
        messages = self._outgoing(address, rate, skip)
        sent = send(broker, messages, required, "sending")
        with output(lambda: self.status if sent.is_complete else 1):
            tell_sent(sent, lambda token: f"--skip {token} continues there", {}, self.output_format)

    def _outgoing(self, address: str, rate: float | None, skip: int) -> Iterator[OutgoingMessage]:
        """The messages, queue by queue, each in its order; their tokens count them."""
        view = self.views[0]
        on = {queue_id: ids.tolist() for queue_id, ids in view.on.items() if self.wanted(queue_id)}
        messages = ((queue_id, message_id) for queue_id, ids in on.items() for message_id in ids)
        for number, (queue_id, message_id) in enumerate(messages):
            if number < skip:
                continue
            to = address or self.past.queue_names.get(queue_id, "")
            if not to:
                raise CairnError(f"queue {queue_id}", "its name is not known any more", "end the URL with /ADDRESS")
            yield OutgoingMessage(number, to, view.content(message_id), (number - skip) / rate if rate else 0.0)


def _head(found: FoundViews, view: QueuesView) -> dict[str, Any]:
    on = {queue_id: ids for queue_id, ids in view.on.items() if found.wanted(queue_id)}
    return {
        "lsn": view.lsn, "complete": view.is_complete, "messages": sum(map(len, on.values())),
        "queues": {found.past.name_of(queue_id): len(ids) for queue_id, ids in on.items()},
        "faults": view.faults() if view.is_kept else ["not all containers are kept any more", *view.faults()],
    }  # fmt: skip


def _show_queues(found: FoundViews, count: int | None) -> None:
    """Show the messages on queues; *count*: at most so many of each."""
    view = found.views[0]
    head = _head(found, view)
    on = [queue_id for queue_id in view.on if found.wanted(queue_id)]
    if print_values(_rows(found, view, on, count), _MESSAGE, found.output_format):
        return
    if found.output_format == "json":
        print_line({"as_of": head})
        for row in _rows(found, view, on, count):
            print_line(row)
        return
    out = long_line_console()
    out.print(f"as of LSN {view.lsn}: {counted(head['messages'], 'message')} on {counted(len(on), 'queue')}")
    _print_faults(view)
    table = TextTable("queue", "messages", "bytes")
    for queue_id in on:
        ids = view.on[queue_id].tolist()
        size = size_text(sum(map(view.contents.size_of, ids)))
        table.add_row(printable(found.past.name_of(queue_id)), f"{len(ids):,}", size)
    if on:
        out.print(table)
    for queue_id in on if count else ():
        _show_queue(found, view, queue_id, count or 0)


def _rows(found: FoundViews, view: QueuesView, on: list[int], count: int | None) -> Iterator[dict[str, object]]:
    """Yield the messages of the queues *on*, at most *count* of each."""
    for queue_id in on:
        name = found.past.name_of(queue_id)
        for row in view.rows(queue_id, count):
            yield {"queue": name, "queue_id": queue_id, **row._asdict()}


def _show_queue(found: FoundViews, view: QueuesView, queue_id: int, count: int) -> None:
    out = long_line_console()
    columns = "", "message", "arrived", "bytes", "message-id", "state"
    table = TextTable(*columns, title=printable(found.past.name_of(queue_id)))
    for row in view.rows(queue_id, count):
        when = time_words(row.time_us) if row.time_us else ""
        size = size_text(row.size_bytes)
        table.add_row(str(row.place), str(row.message_id), when, size, printable(row.amqp_id), row.state)
    out.print(table)
    if (left := len(view.on[queue_id]) - count) > 0:
        out.print(f"and {left} more")


def _print_faults(view: QueuesView) -> None:
    if not view.is_complete:
        out = long_line_console()
        out.print(f"INCOMPLETE: {view.history.complete_from_words()}")
        for fault in view.faults():
            out.print(printable(f"  {fault}"))


def _show_difference(found: FoundViews, changes: dict[int, QueueChange], count: int) -> None:
    """Show the changes from the first view to the second; *count*: at most so many messages of each queue."""
    if found.output_format == "json":
        first, second = [_head(found, view) for view in found.views]
        print_line({"diff": {"from": first, "to": second}})
        for queue_id, change in changes.items():
            for row in _moved(found, queue_id, change):
                print_line(row)
            print_line({"queue": found.past.name_of(queue_id), "changes": _counts(change)})
        return
    rows = (row for queue_id in changes for row in _moved(found, queue_id, changes[queue_id]))
    if not print_values(rows, _CHANGE, found.output_format):
        _show_changes(found, changes, count)


def _moved(found: FoundViews, queue_id: int, change: QueueChange) -> Iterator[dict[str, object]]:
    """Yield the messages that were added or removed."""
    name = found.past.name_of(queue_id)
    for kind, some in (("added", change.came), ("removed", change.went)):
        for message_id, at in some.items():
            yield {"queue": name, "message_id": message_id, "change": kind, **at._asdict()}


def _show_changes(found: FoundViews, changes: dict[int, QueueChange], count: int) -> None:
    out = long_line_console()
    first, second = found.views
    out.print(f"from LSN {first.lsn} to LSN {second.lsn}")
    for view in found.views:
        _print_faults(view)
    table = TextTable("queue", "added", "removed", "added and removed")
    for queue_id, change in changes.items():
        table.add_row(printable(found.past.name_of(queue_id)), *(f"{count:,}" for count in _counts(change).values()))
    out.print(table if changes else "nothing has changed")
    for queue_id, change in changes.items():
        if not count or not (change.went or change.came):
            continue
        table = TextTable("", "message", "at LSN", "when", "reason", title=printable(found.past.name_of(queue_id)))
        for sign, some in (("-", change.went), ("+", change.came)):
            for message_id, at in list(some.items())[:count]:
                when = time_words(at.time_us) if at.time_us else ""
                table.add_row(sign, str(message_id), str(at.lsn or ""), when, at.reason)
        out.print(table)
        if (left := max(0, len(change.went) - count) + max(0, len(change.came) - count)) > 0:
            out.print(f"and {left} more")


def _counts(change: QueueChange) -> dict[str, int]:
    return {"added": len(change.came), "removed": len(change.went), "passed": change.passed}
