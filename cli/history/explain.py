"""The command `cairnmq explain`: the reasons for the size of a store."""

from __future__ import annotations

from typing import Any

import click

from ...base.texts import counted
from ...tools.explain.explain import Explanation, Pin, explain_tail
from ...tools.explain.explain_space import SpaceReport, explain_space
from ...tools.inspect.format_text import age_text, size_text
from ...tools.inspect.point_in_time import time_words
from ..common.csv_rows import columns_of
from ..common.output import answering, bars, console, output, print_rows, printable
from ..common.statuses import FOUND
from ..options.common_options import CommonGroup, output_options, url_option
from ..options.store_options import connect_options, store_argument
from ..options.subjects import OUTPUT, option
from ..tables.text_table import TextTable

_QUEUES = 20
_PIN = ("kind", "name", "inspections", "remedies")
_PART = ("what", "bytes", "remedy")
_REMEDIES = "remedies (purge removes all messages of the queue, also those that are still needed):"
_NAMES = "The PostgreSQL server with the names of the queues"


@click.group("explain", cls=CommonGroup)
@url_option
@output_options
def explain(**_: Any) -> None:
    """Explain the size of a store, and how to reduce it. Nothing is written."""


@explain.command(
    "tail", short_help="Show what pins the oldest part of the log", example="explain tail ./data --limit 5"
)
@store_argument
@option(OUTPUT, "--limit", default=20, show_default=True, type=click.IntRange(1), help="Show at most N messages.")
@connect_options(_NAMES)
@url_option
@output_options
@answering
def tail(store: str, limit: int, url: str, connect: str | None, catalog: str | None, output_format: str) -> int:
    """Show what pins the oldest part of the log: queues, messages and transactions by name, and how to release it.

    A broker may be running on the store. The exit status is 1 if something can't be read.
    """
    with bars() as progress:
        found = explain_tail(store, progress, connect, catalog, limit, url)
    status = 0 if found.complete else FOUND
    with output(lambda: status):
        pins = [pin.fields() for pin in found.pins]
        if not print_rows(pins, columns_of(pins, _PIN), output_format, found.fields()):
            _show_tail(found)
    return status


def _show_tail(found: Explanation) -> None:
    shown = console()
    shown.print(
        f"the log is LSN {found.base_lsn} to {found.end_lsn}: {size_text(found.used_bytes)}, of which "
        f"{size_text(found.live_bytes)} live"
    )
    counts = found.counts
    if not counts:
        shown.print("nothing pins it")
    else:
        kinds = ", ".join(f"{count} {kind}{'s' if count > 1 and kind != 'ends' else ''}"
                          for kind, count in counts.items())  # fmt: skip
        shown.print(f"its oldest container {found.file} is held by {kinds}")
        table = TextTable("held by", "bytes", "age", "more", prose=("more",))
        for pin in found.pins:
            table.add_row(*_row(pin))
        shown.print(table)
        if counts["message"] > sum(pin.kind == "message" for pin in found.pins):
            queues = ", ".join(f"{printable(name)} {count}" for name, count in found.by_queue.items())
            shown.print(f"all its messages by queue: {queues}")
        shown.print(f"if all of that went, {size_text(found.freed_bytes)} would come free")
    for line in found.by_itself:
        shown.print(f"by itself: {line}")
    for title, commands in (("to inspect them:", found.inspections), (_REMEDIES, found.remedies)):
        if commands:
            shown.print(title)
        for command in commands:
            shown.print(f"  {printable(command)}", soft_wrap=True)
    for note in found.notes:
        shown.print(printable(note))


def _row(pin: Pin) -> list[str]:
    details = dict(pin.details)
    taken = details.pop("acquired", None)
    size, age = details.pop("size_bytes", None), details.pop("age_s", None)
    more = [f"{name.replace('_', ' ')} {value}" for name, value in details.items()
            if value not in (False, None) and name not in ("persistence_id", "queues", "xid", "state")]  # fmt: skip
    if isinstance(taken, dict):
        more.append(f"handed to {taken['container']}/{taken['link']} at {time_words(taken['time_us'])}")
    sizes = size_text(size) if isinstance(size, int) else ""
    ages = age_text(age) if isinstance(age, float) else ""
    return [printable(pin.name), sizes, ages, printable(", ".join(more))]


@explain.command("space", short_help="Show the disk usage by part and queue", example="explain space ./data")
@store_argument
@option(OUTPUT, "--queues", "queues_shown", default=_QUEUES, show_default=True, type=click.IntRange(0),
              help="Show at most N queues, the largest first.")  # fmt: skip
@connect_options(_NAMES)
@output_options
@answering
def space(store: str, queues_shown: int, connect: str | None, catalog: str | None, output_format: str) -> int:
    """Show the disk usage of a store: its parts, and its queues by bytes.

    A broker may be running on the store. The exit status is 1 if something can't be read.
    """
    with bars() as progress:
        found = explain_space(store, progress, connect, catalog)
    status = 0 if found.complete else FOUND
    with output(lambda: status):
        if not print_rows(found.part_fields(), _PART, output_format, found.fields()):
            _show_space(found, queues_shown)
    return status


def _show_space(found: SpaceReport, queues_shown: int) -> None:
    shown = console()
    table = TextTable("what", "bytes", "remedy", prose=("remedy",))
    for what, size, remedy in found.parts:
        if size:
            table.add_row(printable(what), size_text(size), remedy)
    table.add_row("all", size_text(found.total_bytes), "")
    shown.print(table)
    if found.queues and queues_shown:
        table = TextTable("queue", "messages", "bytes")
        for name, count, size in found.queues[:queues_shown]:
            table.add_row(printable(name), f"{count:,}", size_text(size))
        shown.print(table)
    if len(found.queues) > queues_shown:
        shown.print(f"and {counted(len(found.queues) - queues_shown, 'more queue')}")
    for note in found.notes:
        shown.print(printable(note))
