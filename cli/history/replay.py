"""The command `cairnmq replay`: the arrivals of a journal, sent to a broker again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from contextlib import closing

import click

from ...analytics.scan.selection import queue_ids_named
from ...base.clock import SystemClock
from ...base.texts import counted
from ...tools.history.history_view import HistoryView
from ...tools.inspect.point_in_time import PointInTime, check_order, parse_point_in_time
from ...tools.load.replayed_messages import MAX_SPEED, ReplayedMessages
from ..common.login_options import login_of
from ..common.output import answering, output, print_rows, printable, remark
from ..common.send_options import address_of, send, target_options, tell_sent
from ..common.units import Finite
from ..options.common_options import SELECTION, TARGET, GroupedCommand, option, output_options
from ..options.confirmation import dry_run_option
from ..options.store_options import archives_option, connect_options


class _Speed(click.ParamType[float]):
    """A speed such as 10x, 0.5x or max, which is `MAX_SPEED`."""

    name = "speed"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        if value == "max":
            return MAX_SPEED
        found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)x?", str(value), re.ASCII)
        if found is None or not float(found[1]):
            self.fail(f"invalid speed {value!r}: give 1x, 10x, 0.5x or max", param, ctx)
        return float(found[1])


@click.command("replay", cls=GroupedCommand)
@click.argument("paths", nargs=-1, metavar="STORE|ARCHIVE...")
@archives_option
@option(TARGET, "--to", "url", required=True, metavar="URL",
              help="The broker. Messages are sent to their queues, or to the address in the URL.")  # fmt: skip
@option(TARGET, "--speed", type=_Speed(), default="1x", show_default=True, metavar="1x|10x|max",
              help="The speed relative to the arrival of the messages, with proportional spacing.")  # fmt: skip
@option(TARGET, "--rate", type=Finite(min=0, min_open=True), metavar="N",
              help="Send N messages per second, evenly, instead of --speed.")  # fmt: skip
@option(SELECTION, "--from-lsn", metavar="LSN", help="Send messages that arrived at LSN or later.")
@option(SELECTION, "--to-lsn", metavar="LSN", help="Send messages that arrived before LSN.")
@option(SELECTION, "--from-time", metavar="TIME", help="Send messages that arrived after TIME, or in the last 10m.")
@option(SELECTION, "--to-time", metavar="TIME", help="Send messages that arrived until TIME.")
@option(SELECTION, "--queue", "queues", multiple=True, metavar="NAME|ID",
        help="Only messages of this queue. Repeatable.")
@option(SELECTION, "--count", type=click.IntRange(min=1), metavar="N", help="Send at most N messages.")
@target_options
@connect_options("The PostgreSQL server that the store's wiring is on")
@output_options
@dry_run_option
@answering
def replay(
    paths: tuple[str, ...], archives: tuple[str, ...], url: str, speed: float, rate: float | None, from_lsn: str | None,
    to_lsn: str | None, from_time: str | None, to_time: str | None, queues: tuple[str, ...], count: int | None,
    may_create: bool, user: str | None, ca: str | None, connect: str | None, catalog: str | None, output_format: str,
    is_dry_run: bool,
) -> int:  # fmt: skip
    """Send the messages that arrived in a journal to a broker again, byte for byte and in order, at a chosen speed.

    A message is sent once for each queue that it was enqueued on. Messages of transactions that were not committed are
    left out, and so are internal queues (their names begin with $) unless --queue names them. Each message is
    confirmed. An address in the URL must be that of a queue or an exchange. With --create, and for messages that are
    sent to their queues, the broker creates a missing queue if its --auto-create permits, and refuses it otherwise.
    Ctrl-C ends the replay and prints the --from-lsn that continues it. A replay does not delay a running broker: for a
    slow replay, keep an archive (--archive-dir).

    The exit status is 0 if all selected messages were accepted, 1 if some were not, and 2 if there is no log or the
    command is wrong.
    """
    if not paths and not archives:
        raise click.UsageError("Missing argument 'STORE|ARCHIVE...'.")
    if (from_lsn and from_time) or (to_lsn and to_time):
        raise click.UsageError("give an LSN or a time, not both")
    now_us = SystemClock().wall_us()
    begin = _moment(from_lsn, from_time, now_us)
    end = _moment(to_lsn, to_time, now_us)
    if begin is not None and end is not None:
        check_order(f"--from-lsn {from_lsn} --to-lsn {to_lsn}", begin.lsn, end.lsn)
        check_order(f"--from-time {from_time} --to-time {to_time}", begin.time_us, end.time_us)
    address = address_of(url)
    with HistoryView([*paths, *archives], connect, catalog, holds=False) as past:
        ids = queue_ids_named(queues, past.queue_names, "--queue {}")
        history = past.history
        first_lsn = history.first_lsn if begin is None else history.lsn_of(begin)
        end_lsn = history.end_lsn if end is None else history.lsn_of(end)
        messages = ReplayedMessages(
            past, first_lsn, end_lsn, _wanted(past, ids), address, speed=speed, rate=rate, count=count
        )
        with closing(messages):
            if is_dry_run:
                _preview(messages, output_format)
                return 0
            target, required = login_of(url, user, ca), "" if may_create else address
            sent = send(target, iter(messages), required, "replaying")
        faults = messages.faults()
        for reported in dict.fromkeys((*past.all_remarks(), *faults)):
            remark("replay", reported)
        status = 1 if faults or not sent.is_complete else 0
        with output(lambda: status):
            tell_sent(sent, lambda token: f"--from-lsn {token} continues there", {"faults": faults}, output_format)
    return status


def _preview(messages: ReplayedMessages, output_format: str) -> None:
    """Print the number of messages for each address."""
    counts = Counter(message.address for message in messages)
    rows = [{"address": address, "messages": number} for address, number in counts.items()]
    for fault in messages.faults():
        remark("replay", fault)
    if not print_rows(rows, ("address", "messages"), output_format):
        for address, number in counts.items() or {"": 0}.items():
            print(f"would send {counted(number, 'message')}" + (f" to {printable(address)}" if address else ""))


def _moment(lsn: str | None, time: str | None, now_us: int) -> PointInTime | None:
    text = lsn or time
    if not text:
        return None
    moment = parse_point_in_time(text, now_us)
    if (moment.lsn is None) != (lsn is None):
        raise click.UsageError(f"{text}: {'an LSN' if lsn else 'a time'} is expected")
    return moment


def _wanted(past: HistoryView, ids: tuple[int, ...]) -> Callable[[int], bool]:
    own = {queue_id for queue_id, name in past.queue_names.items() if name.startswith("$")}
    return ids.__contains__ if ids else lambda queue_id: queue_id not in own

