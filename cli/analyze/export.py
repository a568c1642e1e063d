"""The command `cairnmq export`."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import click

from ...base.errors import CairnError
from ...base.extras import install_hint
from ...base.texts import counted
from ..common.output import answering, bars, console, print_fields, remark
from ..common.statuses import FOUND
from ..common.units import SIZE
from ..options.common_options import output_options
from ..options.store_options import archive_option, connect_options, skip_damaged_option
from ..options.subjects import INPUT, SELECTION, TARGET, GroupedCommand, option


@click.command("export", cls=GroupedCommand)
@click.argument("source", metavar="SOURCE", type=click.Path())
@click.argument("target", metavar="TARGET", type=click.Path())
@option(TARGET, "--format", "kind", type=click.Choice(["parquet", "delta", "iceberg"]),
              help="The format of TARGET.  [default: its present format, or parquet]")  # fmt: skip
@option(SELECTION, "--columns", metavar="NAMES",
              help="Columns of the view records, comma-separated.  [default: all of the record header]")  # fmt: skip
@option(SELECTION, "--payload", is_flag=True, help="Export the content of messages, too.")
@option(SELECTION, "--amqp", is_flag=True, help="Export the AMQP properties of messages as columns, too.")
@option(TARGET, "--partition-by", metavar="NAMES",
              help="Partitions: day,queue, day, queue or none.  [default: day,queue]")  # fmt: skip
@archive_option
@option(INPUT, "--names-of", type=click.Path(), metavar="STORE", help="The store with the names of the queues.")
@option(SELECTION, "--sealed", is_flag=True, help="Leave out the container that the log is writing.")
@skip_damaged_option
@option(TARGET, "--commit-size", type=SIZE, default="256M", show_default=True, help="The size of one commit.")
@output_options
@connect_options("The PostgreSQL server that the store's wiring is on")
@answering
def export(
    source: str, target: str, kind: str | None, columns: str | None, payload: bool, amqp: bool,
    partition_by: str | None, archive_dir: str | None, names_of: str | None, sealed: bool, skip_damaged: bool,
    commit_size: int, output_format: str, connect: str | None, catalog: str | None,
) -> int:  # fmt: skip
    """Export records to Parquet, Delta Lake, or Iceberg. A broker may be running; nothing is written into SOURCE.

    SOURCE is a store, an archive, or a directory of sidecars. TARGET is a directory: of Parquet files by day and
    queue, or a table of Delta Lake or Apache Iceberg. Another export adds the new records. TARGET has each record
    exactly once, even if an export was interrupted. docs/reference/export.md has the details.
    """
    try:
        from ...analytics.export.exporter import export as export_records
        from ...analytics.export.rows import columns_named, partition_named
        from ...analytics.export.sources import ExportRequest
    except ImportError as error:
        raise CairnError("export", f"{error.name} is missing", install_hint("columns")) from error
    asked = ExportRequest(
        kind, columns_named(columns, payload=payload, amqp=amqp),
        None if partition_by is None else partition_named(partition_by), archive_dir, names_of, connect, catalog,
        skip_damaged, sealed, commit_size,
    )  # fmt: skip
    begun_s = time.monotonic()
    with bars() as progress:
        done = export_records(source, target, asked, progress)
    if truncated := done.truncation():
        remark("export", truncated)
    _tell(done, time.monotonic() - begun_s, output_format)
    return FOUND if any(not gap.is_reclaimed for gap in done.missing) else 0


def _tell(done: Any, seconds: float, output_format: str) -> None:
    fields = {
        "target": done.path, "format": done.kind, "log": done.log, "records": done.records, "commits": done.commits,
        "log_bytes": done.log_bytes, "end_lsn": done.end_lsn, "exported": [list(run) for run in done.runs],
        "missing": [asdict(gap) for gap in done.missing], "seconds": round(seconds, 3),
    }  # fmt: skip
    if print_fields(fields, output_format):
        return
    out = console()
    out.print(
        f"{counted(done.records, 'record')}, {done.log_bytes / (1 << 20):.1f} MiB of the log, "
        f"in {counted(done.commits, 'commit')} and "
        f"{seconds:.1f} s; {done.kind} in {done.path} contains the log up to LSN {done.end_lsn}"
    )
    for gap in done.missing:
        reason = "reclaimed before" if gap.is_reclaimed else "lost: no container holds it"
        out.print(f"missing: LSN {gap.first_lsn} to {gap.end_lsn}, {reason}")
