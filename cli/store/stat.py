"""`cairnmq stat`: the use of space in a store. The figures are computed in `tools.explain`, and rendered here."""

from __future__ import annotations

from typing import Any

import click

from ...base.texts import counted
from ...tools.explain.stat import Stat, stat_store
from ...tools.inspect.format_text import age_text, size_text
from ..common.output import answering, bars, console, output, print_rows, printable, remark
from ..common.statuses import FOUND
from ..options.common_options import output_options
from ..options.store_options import connect_options, store_argument
from ..options.subjects import OUTPUT, GroupedCommand, option
from ..tables.text_table import TextTable
from .log_map import log_map

_QUEUES = 20
_QUEUE = ("queue", "queue_id", "messages", "bytes", "oldest_message_id", "oldest_time_us", "oldest_age_s")
_CONTAINER = (
    "slot", "file", "first_lsn", "begun_us", "incarnation", "blocks", "records", "record_bytes", "live_bytes",
    "is_needed", "dead_bytes", "live_ratio", "types",
)  # fmt: skip


@click.command("stat", cls=GroupedCommand)
@store_argument
@option(OUTPUT, "--containers", is_flag=True, help="Show a row for each container, too; in CSV instead of queues.")
@option(OUTPUT, "--queues", "queues_shown", default=_QUEUES, show_default=True, type=click.IntRange(0),
              help="Show at most N queues in the table, the largest first.")  # fmt: skip
@connect_options("The PostgreSQL server with the names of the queues")
@output_options
@answering
def stat(
    store: str, containers: bool, queues_shown: int, connect: str | None, catalog: str | None, output_format: str
) -> int:
    """Show the space usage of a store: live and dead bytes, queues, types of records, and a map of the log.

    Only the headers of records are read, and nothing is written. A broker may be running on the store. The exit status
    is 1 if a part of the log cannot be read; the figures do not include it.
    """
    with bars() as progress:
        found = stat_store(store, progress, connect, catalog)
    status = 0 if found.complete else FOUND
    if found.truncation:
        remark("stat", found.truncation)
    with output(lambda: status):
        fields: dict[str, Any] = found.fields()
        rows, columns = (fields["containers"], _CONTAINER) if containers else (fields["queues"], _QUEUE)
        if not print_rows(rows, columns, output_format, fields):
            _show(found, containers, queues_shown)
    return status


def _show(found: Stat, containers: bool, queues_shown: int) -> None:
    shown = console()
    log: dict[str, Any] = found.log
    for line in log_map(found.slots, found.container_bytes):
        shown.print(line)
    table = TextTable(prose=("",))
    for name, text in _lines(log):
        table.add_row(name, text)
    shown.print(table)
    if log["types"]:
        kinds = sorted(log["types"].items(), key=lambda item: -item[1])
        shown.print("records: " + ", ".join(f"{count:,} {name}" for name, count in kinds))
    queues: list[dict[str, Any]] = found.queues
    if queues and queues_shown:
        table = TextTable("queue", "messages", "bytes", "oldest", "of age")
        for queue in queues[:queues_shown]:
            name = printable(queue["queue"] or f"id {queue['queue_id']}")
            age = "" if queue["oldest_age_s"] is None else age_text(queue["oldest_age_s"])
            size = size_text(queue["bytes"])
            table.add_row(name, f"{queue['messages']:,}", size, str(queue["oldest_message_id"]), age)
        shown.print(table)
        if len(queues) > queues_shown:
            shown.print(f"and {counted(len(queues) - queues_shown, 'more queue')}")
    if containers:
        columns = ("slot", "file", "LSN", "blocks", "records", "live", "dead", "ratio", "by type")
        table = TextTable(*columns)
        for slot in found.slots:
            kinds = sorted(slot.types.items(), key=lambda item: -item[1])
            table.add_row(
                str(slot.slot), slot.file, str(slot.first_lsn), f"{slot.blocks:,}", f"{slot.records:,}",
                size_text(slot.live_bytes), size_text(slot.dead_bytes),
                f"{slot.live_bytes / found.container_bytes:.0%}", ", ".join(f"{n} {name}" for name, n in kinds),
            )  # fmt: skip
        shown.print(table)
    for note in found.notes:
        shown.print(printable(note))
    if not found.complete:
        shown.print("parts can't be read, and the figures leave them out; `cairnmq verify` shows the damage")


def _lines(log: dict[str, Any]) -> list[tuple[str, str]]:
    free = "" if log["disk_free_bytes"] is None else f"; {size_text(log['disk_free_bytes'])} free on the disk"
    lines = [
        ("log", f"LSN {log['base_lsn']} to {log['end_lsn']}, {counted(log['containers'], 'container')} of "
                f"{size_text(log['container_bytes'])}, {counted(log['holes'], 'hole')}"
                + (", closed" if log["closed"] else "")),
        ("used", f"{size_text(log['used_bytes'])}, and {counted(log['free_containers'], 'free container')}{free}"),
        ("live", f"{size_text(log['live_bytes'])} ({log['live_ratio']:.0%}) in {counted(log['messages'], 'message')}"),
    ]  # fmt: skip
    if log["write_amplification"] is not None:
        moved = size_text(log["relocated_bytes"])
        text = f"{log['write_amplification']:.2f} for the records in the log: compaction copied {moved}"
        lines.append(("write amplification", text))
    if log["checkpoint_lsn"]:
        behind = size_text(max(0, log["end_lsn"] - log["checkpoint_lsn"]))
        lines.append(("checkpoint", f"{age_text(log['checkpoint_age_s'])} old, {behind} behind it"))
    else:
        lines.append(("checkpoint", "none that could be used: the next start reads the whole log"))
    lines.append(("read for this", size_text(log["read_bytes"])))
    return lines
