"""`cairnmq as-of`: the queues as they were. What it does is in `tools.as_of`, `tools.restoring` and `tools.sending`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import click
from rich.table import Table

from ...analytics.scan.selection import queue_ids_named
from ...base.clock import SystemClock
from ...base.errors import CairnError
from ...base.printable import printable
from ...tools.backup.restore_view import restore_view
from ...tools.history.as_of import QueueChange, QueuesView, difference
from ...tools.history.history_view import HistoryView
from ...tools.inspect.point_in_time import parse_point_in_time, time_words
from ...tools.load.bulk_sender import BulkSender, OutgoingMessage
from ..common.connect import connect_options
from ..common.local_directory import LocalDirectory
from ..common.output import answering, output, remark
from ..common.send_options import stoppable, target_of, target_options, tell_sent
from ..common.shown_rows import Bars, console, line
from ..common.units import Finite
from ..store.archives import archives_option

Wanted = Callable[[int], bool]
_SHOWN = 10
_CHANGES_SHOWN = 20


@click.command("as-of")
@click.argument("arguments", nargs=-1, required=True, metavar="STORE... LSN|TIME")
@archives_option
@click.option("--queue", "queues", multiple=True, metavar="NAME|ID", help="Only this queue. Repeatable.")
@click.option("--count", type=click.IntRange(min=0), metavar="N",
              help=f"Show so many messages of each queue: by default {_SHOWN}, with --json all.")  # fmt: skip
@click.option("--diff", nargs=2, metavar="A B", help="What came and what went between two moments.")
@click.option("--partial", is_flag=True, help="Show what is left where some of the history is not kept any more.")
@click.option("--restore", "target", type=LocalDirectory(), metavar="DIR", help="Make a new store there that holds it.")
@click.option("--resend", metavar="URL",
              help="Send the messages to a broker: to their queues, or to the address the URL ends in.")  # fmt: skip
@click.option("--rate", type=Finite(min=0, min_open=True), metavar="N", help="So many a second at most.")
@click.option("--skip", type=click.IntRange(min=0), default=0, metavar="N",
              help="Leave out the first N messages of --resend, which were sent before.")  # fmt: skip
@target_options
@connect_options("The PostgreSQL server that the store's wiring is on")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@answering
def as_of(
    arguments: tuple[str, ...],
    archives: tuple[str, ...],
    queues: tuple[str, ...],
    count: int | None,
    diff: tuple[str, str] | None,
    partial: bool,
    target: str | None,
    resend: str | None,
    rate: float | None,
    skip: int,
    user: str | None,
    ca: str | None,
    connect: str | None,
    catalog: str | None,
    as_json: bool,
) -> int:
    """Show the queues as they were, also while a broker runs on the store.

    STORE is a store directory, or several: a store and its archives, or archives alone. The moment is an LSN, and all
    records before it count; or a time like 2026-05-17T12:30:00Z, an age like 10m or 2h, or `end`. What is shown is what
    a crash then would have left. Nothing is written into the store.

    The exit status is 1 if what is left of the history is not whole, or not all was sent, and 2 if there is no log.
    """
    paths = [*(arguments if diff else arguments[:-1]), *archives]
    if not paths or (not diff and not arguments[:-1] and not archives):
        raise click.UsageError("name a store, and a moment")
    if diff and (target or resend):
        raise click.UsageError("--diff shows two moments: --restore and --resend take one")
    now_us = SystemClock().wall_us()
    moments = [parse_point_in_time(text, now_us) for text in (diff or arguments[-1:])]
    sending = target_of(resend, user, ca) if resend else None
    whole = True
    with HistoryView(paths, connect, catalog) as past:
        ids = queue_ids_named(queues, past.queue_names, "--queue {}")

        def wanted(queue_id: int) -> bool:
            return not ids or queue_id in ids

        with Bars() as bars:
            views = [past.view(moment, bars.show, partial=partial) for moment in moments]
        whole = all(view.is_whole for view in views)
        with output(lambda: 0 if whole else 1):
            if diff:
                _show_difference(past, views, wanted, _CHANGES_SHOWN if count is None else count, as_json)
            else:
                shown = count if count is not None or as_json else _SHOWN
                _show(past, views[0], wanted, 0 if (target or resend) and count is None else shown, as_json)
        if target:
            with Bars() as bars:
                report = restore_view(past, views[0], target, wanted, SystemClock(), bars.show)
            with output(lambda: 0 if whole else 1):
                told = {"restored": {"store": target, "messages": report.messages, "queues": report.queues}}
                line(told) if as_json else print(f"restored {report.messages} messages to {target}")
        if sending is not None:
            where, address = sending
            messages = _outgoing(past, views[0], wanted, address, rate, skip)
            with Bars() as bars:
                run = BulkSender(where, messages, lambda done: bars.show("sending", done, 0))
                with stoppable(run):
                    sent = run.run()
            with output(lambda: 0 if whole and sent.is_complete else 1):
                tell_sent(sent, lambda token: f"--skip {token} goes on there", {}, as_json)
        for view in views:
            view.close()
        for text in past.told():
            remark("as-of", text)
    return 0 if whole else 1


def _head(past: HistoryView, view: QueuesView, wanted: Wanted) -> dict[str, object]:
    on = {queue_id: ids for queue_id, ids in view.on.items() if wanted(queue_id)}
    return {
        "lsn": view.cut.lsn, "whole": view.is_whole, "messages": sum(map(len, on.values())),
        "queues": {past.name_of(queue_id): len(ids) for queue_id, ids in on.items()},
        "faults": view.faults() if view.is_kept else ["not all containers are kept any more", *view.faults()],
    }  # fmt: skip


def _show(past: HistoryView, view: QueuesView, wanted: Wanted, count: int | None, as_json: bool) -> None:
    head = _head(past, view, wanted)
    on = [queue_id for queue_id in view.on if wanted(queue_id)]
    if as_json:
        line({"as_of": head})
        for queue_id in on:
            for row in view.rows(queue_id, count):
                line({"queue": past.name_of(queue_id), "queue_id": queue_id, **row._asdict()})
        return
    out = console()
    out.print(f"as of LSN {view.cut.lsn}: {head['messages']} messages on {len(on)} queues")
    _print_faults(view)
    table = Table("queue", "messages", "bytes")
    for queue_id in on:
        ids = view.on[queue_id]
        table.add_row(printable(past.name_of(queue_id)), str(len(ids)), str(sum(map(view.size_of, ids))))
    if on:
        out.print(table)
    for queue_id in on if count else ():
        columns = "", "message", "arrived", "bytes", "message-id", "state"
        table = Table(*columns, title=printable(past.name_of(queue_id)), title_justify="left")
        for row in view.rows(queue_id, count):
            when = time_words(row.time_us) if row.time_us else ""
            table.add_row(
                str(row.place), str(row.message_id), when, str(row.size_bytes), printable(row.amqp_id), row.state
            )
        out.print(table)
        if (left := len(view.on[queue_id]) - (count or 0)) > 0:
            out.print(f"and {left} more")


def _print_faults(view: QueuesView) -> None:
    if not view.is_whole:
        out = console()
        out.print(f"NOT WHOLE: {view.history.whole_from_words()}")
        for fault in view.faults():
            out.print(printable(f"  {fault}"))


def _show_difference(past: HistoryView, views: list[QueuesView], wanted: Wanted, count: int, as_json: bool) -> None:
    first, second = views
    if first.cut.lsn > second.cut.lsn:
        raise CairnError("--diff", "the second moment is before the first", "name the earlier one first")
    changes = difference(first, second, wanted)
    if as_json:
        line({"diff": {"from": _head(past, first, wanted), "to": _head(past, second, wanted)}})
        for queue_id, change in changes.items():
            name = past.name_of(queue_id)
            for message_id in change.came:
                line({"queue": name, "message_id": message_id, "came": True})
            for message_id, went in change.went.items():
                line({"queue": name, "message_id": message_id, "came": False, **went._asdict()})
            line({"queue": name, "changes": _counts(change)})
        return
    out = console()
    out.print(f"from LSN {first.cut.lsn} to LSN {second.cut.lsn}")
    for view in views:
        _print_faults(view)
    table = Table("queue", "came", "went", "came and went")
    for queue_id, change in changes.items():
        table.add_row(printable(past.name_of(queue_id)), *map(str, _counts(change).values()))
    out.print(table if changes else "nothing has changed")
    for queue_id, change in changes.items() if count else ():
        table = Table("", "message", "at LSN", "when", "why", title=printable(past.name_of(queue_id)))
        for message_id, went in list(change.went.items())[:count]:
            table.add_row("-", str(message_id), str(went.lsn or ""), _when(went.time_us), went.why)
        for message_id in change.came[:count]:
            table.add_row("+", str(message_id), "", "", "")
        out.print(table)
        if (left := max(0, len(change.went) - count) + max(0, len(change.came) - count)) > 0:
            out.print(f"and {left} more")


def _when(time_us: int) -> str:
    return time_words(time_us) if time_us else ""


def _counts(change: QueueChange) -> dict[str, int]:
    return {"came": len(change.came), "went": len(change.went), "passed": change.passed}


def _outgoing(
    past: HistoryView, view: QueuesView, wanted: Wanted, address: str, rate: float | None, skip: int
) -> Iterator[OutgoingMessage]:
    """The messages, queue by queue, each in its order; their tokens count them."""
    messages = (
        (queue_id, message_id) for queue_id, ids in view.on.items() if wanted(queue_id) for message_id in ids
    )
    for number, (queue_id, message_id) in enumerate(messages):
        if number < skip:
            continue
        to = address or past.queue_names.get(queue_id, "")
        if not to:
            raise CairnError(f"queue {queue_id}", "its name is not known any more", "end the URL with /ADDRESS")
        due_s = (number - skip) / rate if rate else 0.0
        yield OutgoingMessage(number, to, view.content(message_id), due_s)
