"""`cairnmq as-of`: the queues at a point in time, and what is made of them."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ...analytics.scan.selection import queue_ids_named
from ...base.clock import SystemClock
from ...tools.history.history_view import HistoryView
from ...tools.inspect.point_in_time import PointInTime, parse_point_in_time
from ..common.local_directory import LocalDirectory
from ..common.login_options import login_of
from ..common.output import Bars, answering, remark
from ..common.send_options import address_of, target_options
from ..common.units import Finite
from ..options.common_options import SELECTION, TARGET, GroupedCommand, option, output_options
from ..options.store_options import archives_option, connect_options
from .as_of_output import FoundViews

_SHOWN = 10
_CHANGES_SHOWN = 20


@click.command("as-of", cls=GroupedCommand)
@click.argument("arguments", nargs=-1, required=True, metavar="STORE... LSN|TIME")
@archives_option
@option(SELECTION, "--queue", "queues", multiple=True, metavar="NAME|ID", help="Show this queue only. Repeatable.")
@option(SELECTION, "--count", type=click.IntRange(min=0), metavar="N",
              help=f"Show at most N messages of each queue.  [default: {_SHOWN} in a table]")  # fmt: skip
@option(SELECTION, "--diff", nargs=2, metavar="A B", help="Show the differences between two points in time.")
@option(SELECTION, "--partial", is_flag=True, help="Show the remaining history if a part of it was reclaimed.")
@option(TARGET, "--restore", "target", type=LocalDirectory(), metavar="DIR",
              help="Make a new store in DIR that holds the messages.")  # fmt: skip
@option(TARGET, "--resend", metavar="URL",
              help="Send the messages to a broker: to their queues, or to the address the URL ends in.")  # fmt: skip
@option(TARGET, "--rate", type=Finite(min=0, min_open=True), metavar="N", help="Send at most N messages per second.")
@option(TARGET, "--skip", type=click.IntRange(min=0), default=0, metavar="N",
              help="Skip the first N messages of --resend.")  # fmt: skip
@target_options
@connect_options("The PostgreSQL server that the store's wiring is on")
@output_options
@answering
def as_of(
    arguments: tuple[str, ...], archives: tuple[str, ...], queues: tuple[str, ...], count: int | None,
    diff: tuple[str, str] | None, partial: bool, target: str | None, resend: str | None, rate: float | None, skip: int,
    may_create: bool, user: str | None, ca: str | None, connect: str | None, catalog: str | None, output_format: str,
) -> int:  # fmt: skip
    """Show the contents of queues at a point in time.

    STORE is a store directory, or several: a store and its archives, or archives alone. A broker may be running on the
    store; nothing is written into it. The point in time is an LSN, and all records before it count; or a time like
    2026-05-17T12:30:00Z, a duration before now like 10m or 2h, or `end`. The contents are those that recovery would
    find after a crash at that point.

    The exit status is 1 if the history is incomplete, or not all messages were sent, and 2 if there is no log.
    """
    paths = [*(arguments if diff else arguments[:-1]), *archives]
    if not paths or (not diff and not arguments[:-1] and not archives):
        raise click.UsageError("name a store, and a point in time")
    if diff and (target or resend):
        raise click.UsageError("--diff compares two points in time: --restore and --resend take one")
    moments = _points_in_time(diff or arguments[-1:])
    broker = login_of(resend, user, ca) if resend else None
    address = address_of(resend) if resend else ""
    is_table = output_format == "table"
    count_shown = _count_shown(count, is_diff=diff is not None, is_copied=bool(target or resend), is_table=is_table)
    with HistoryView(paths, connect, catalog) as past:
        queue_ids = queue_ids_named(queues, past.queue_names, "--queue {}")
        with Bars() as bars:
            views = [past.view(moment, bars.show, partial=partial) for moment in moments]
        found = FoundViews(past, views, queue_ids, output_format)
        found.show(count_shown)
        if target:
            found.restore(target)
        if broker is not None:
            found.resend(broker, address, "" if may_create else address, rate, skip)
        for view in views:
            view.close()
        for text in past.all_remarks():
            remark("as-of", text)
    return found.status


def _points_in_time(texts: Sequence[str]) -> list[PointInTime]:
    """Parse the points in time, and warn of those in the future."""
    now_us = SystemClock().wall_us()
    moments = [parse_point_in_time(text, now_us) for text in texts]
    for moment in moments:
        if moment.time_us is not None and moment.time_us > now_us:
            remark("as-of", f"warning: {moment.text} is in the future; the end of the log is used")
    return moments


def _count_shown(count: int | None, *, is_diff: bool, is_copied: bool, is_table: bool) -> int | None:
    """The number of messages to show of each queue; None for all."""
    if count is not None:
        return count
    if is_diff:
        return _CHANGES_SHOWN
    return 0 if is_copied else _SHOWN if is_table else None
