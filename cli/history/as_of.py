"""`cairnmq as-of`: the queues at a point in time, and what is made of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import click

from ...amqp.client.login import BrokerLogin
from ...base.clock import SystemClock
from ...base.errors import CairnError
from ...base.texts import counted
from ...tools.backup.restore_view import restore_view
from ...tools.history.as_of import QueuesView, difference
from ...tools.history.history_view import HistoryView
from ...tools.inspect.point_in_time import parse_point_in_time
from ...tools.load.bulk_sender import BulkSender, OutgoingMessage
from ..common.local_directory import LocalDirectory
from ..common.output import answering, output, remark
from ..common.send_options import stoppable, target_of, target_options, tell_result, tell_sent
from ..common.shown_rows import Bars
from ..common.units import Finite
from ..options.common_options import SELECTION, TARGET, GroupedCommand, connect_options, option, output_options
from ..store.archives import archives_option
from .as_of_output import SelectedQueues, selected_queues, show_difference, show_queues

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
    user: str | None, ca: str | None, connect: str | None, catalog: str | None, output_format: str,
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
    now_us = SystemClock().wall_us()
    moments = [parse_point_in_time(text, now_us) for text in (diff or arguments[-1:])]
    for moment in moments:
        if moment.time_us is not None and moment.time_us > now_us:
            remark("as-of", f"warning: {moment.text} is in the future; the end of the log is used")
    sending = target_of(resend, user, ca) if resend else None
    is_table = output_format == "table"
    count_shown = _count_shown(count, is_diff=diff is not None, is_copied=bool(target or resend), is_table=is_table)
    with HistoryView(paths, connect, catalog) as past:
        selected = selected_queues(past, queues)
        with Bars() as bars:
            views = [past.view(moment, bars.show, partial=partial) for moment in moments]
        found = _Found(views, selected, output_format)
        found.show(count_shown)
        if target:
            found.restore(target)
        if sending is not None:
            found.resend(*sending, rate, skip)
        for view in views:
            view.close()
        for text in past.told():
            remark("as-of", text)
    return found.status


def _count_shown(count: int | None, *, is_diff: bool, is_copied: bool, is_table: bool) -> int | None:
    """The number of messages to show of each queue; None for all."""
    if count is not None:
        return count
    if is_diff:
        return _CHANGES_SHOWN
    return 0 if is_copied else _SHOWN if is_table else None


class _Found(NamedTuple):
    """The views of the points in time that were requested."""

    views: list[QueuesView]
    queues: SelectedQueues
    output_format: str

    @property
    def status(self) -> int:
        """The exit status."""
        return 0 if all(view.is_complete for view in self.views) else 1

    def show(self, count: int | None) -> None:
        """Show the messages of one view, or the differences between two."""
        if self.output_format == "csv" and count == 0:
            return  # the rows are those of --restore or --resend
        if len(self.views) == 1:
            with output(lambda: self.status):
                show_queues(self.queues, self.views[0], count, output_format=self.output_format)
            return
        first, second = self.views
        if first.lsn > second.lsn:
            raise CairnError("--diff", "the second point in time is before the first", "name the earlier one first")
        with Bars() as bars:
            changes = difference(first, second, self.queues.wanted, bars.show)
        with output(lambda: self.status):
            show_difference(self.queues, first, second, changes, count or 0, output_format=self.output_format)

    def restore(self, target: str) -> None:
        """Make a new store at *target*, and report it."""
        with Bars() as bars:
            restored = restore_view(
                self.queues.past, self.views[0], target, self.queues.wanted, SystemClock(), bars.show
            )
        messages = sum(restored.values())
        with output(lambda: self.status):
            fields = {"store": target, "messages": messages, "queues": restored}
            if not tell_result("restored", fields, self.output_format):
                print(f"restored {counted(messages, 'message')} to {target}")

    def resend(self, broker: BrokerLogin, address: str, rate: float | None, skip: int) -> None:
        """Send the messages to *broker*, and report that."""
        messages = self._outgoing(address, rate, skip)
        with Bars() as bars:
            run = BulkSender(broker, messages, lambda done: bars.show("sending", done, 0))
            with stoppable(run):
                sent = run.run()
        with output(lambda: self.status if sent.is_complete else 1):
            tell_sent(sent, lambda token: f"--skip {token} continues there", {}, self.output_format)

    def _outgoing(self, address: str, rate: float | None, skip: int) -> Iterator[OutgoingMessage]:
        """The messages, queue by queue, each in its order; their tokens count them."""
        view = self.views[0]
        on = {queue_id: ids.tolist() for queue_id, ids in view.on.items() if self.queues.wanted(queue_id)}
        messages = ((queue_id, message_id) for queue_id, ids in on.items() for message_id in ids)
        for number, (queue_id, message_id) in enumerate(messages):
            if number < skip:
                continue
            to = address or self.queues.past.queue_names.get(queue_id, "")
            if not to:
                raise CairnError(f"queue {queue_id}", "its name is not known any more", "end the URL with /ADDRESS")
            yield OutgoingMessage(number, to, view.content(message_id), (number - skip) / rate if rate else 0.0)
