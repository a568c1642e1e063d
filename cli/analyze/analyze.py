"""The command `cairnmq analyze`: Spark jobs over a journal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

import click

from ...base.disk.real import disk_error, disk_errors
from ...base.errors import CairnError
from ...base.extras import install_hint
from ...base.private_files import open_private
from ..common.output import answering, console, remark
from ..common.row_writers import CsvWriter, JsonWriter, RowWriter, TableWriter
from ..common.units import SIZE, Duration
from ..options.common_options import ANALYSIS, INPUT, OUTPUT, GroupedCommand, option, output_options
from ..options.store_options import archive_option, connect_options, skip_damaged_option, store_argument


@click.command("analyze", cls=GroupedCommand)
@click.argument("job")
@store_argument
@archive_option
@option(ANALYSIS, "--master", default="local[*]", show_default=True, help="The Spark master, like spark://host:7077.")
@option(ANALYSIS, "--memory", type=SIZE, default="2G", show_default=True, help="The memory of the Spark driver.")
@option(ANALYSIS, "--every", type=Duration(1), default="1m", show_default=True, help="Time step of values over time.")
@option(INPUT, "--with", "other", type=click.Path(), help="The other store of compare.")
@option(INPUT, "--producer-log", type=click.Path(dir_okay=False), help="The log for trace-join: CSV or JSON lines.")
@skip_damaged_option
@output_options
@option(OUTPUT, "--to", "rows_file", metavar="FILE", help="Write the rows of --output json or csv into this file.")
@option(OUTPUT, "--html", "html_file", metavar="FILE", help="Write a report with tables and plots into one file.")
@option(OUTPUT, "--spark-log", type=click.Path(dir_okay=False), default=os.devnull,
              help="The file for the log of Spark.  [default: none]")  # fmt: skip
@connect_options("The PostgreSQL server that the store's wiring is on")
@answering
def analyze(
    job: str, store: str, archive_dir: str | None, master: str, memory: int, every: float, other: str | None,
    producer_log: str | None, skip_damaged: bool, output_format: str, rows_file: str | None, html_file: str | None,
    spark_log: str, connect: str | None, catalog: str | None,
) -> None:  # fmt: skip
    """Analyze a journal with Spark jobs. A broker that runs on it reclaims nothing meanwhile.

    \b
    JOB is all, or one of
      integrity     errors and dangling references
      backlog       messages on queues, and the part of the log that they retain
      liveness      live part of each container
      space         amount written, and rewritten by compaction
      groups        records per block, the unit of writing and syncing
      depth         number of messages on queues over time
      lifetimes     time that messages stayed on queues
      throughput    arrivals and departures of queues over time
      fan-out       number of queues that messages were enqueued on
      transactions  outcomes of transactions, and time from prepare to outcome
      in-doubt      prepared transactions that wait for their coordinator
      duplicates    messages with the same message-id
      redeliveries  signs of messages that were delivered more than once
      expiry        reasons other than acceptance for which messages left
      trace-join    fate of the messages of a producer (--producer-log)
      compare       differences between the queues of two stores (--with)

    docs/reference/analysis.md describes the columns. Records that left the log are counted with --archive-dir only.
    """
    try:
        from ...analytics.jobs import job_run as running
        from ...analytics.jobs import views
        from ...analytics.scan.read_lease import held
        from ...analytics.spark.session import session
        from ...base.texts import counted
    except ImportError as error:
        raise _missing(error) from error
    if rows_file is not None and output_format == "table":
        raise CairnError(f"--to {rows_file}", "a table is for terminals", "give --output json or --output csv, too")
    asked = views.ViewsRequest(archive_dir, connect, catalog, skip_damaged, int(every), other, producer_log)
    jobs = running.chosen(job, asked)
    if job == "all" and output_format == "csv":
        reason = "the rows of different jobs have different columns"
        raise CairnError("--output csv", reason, "name one job; or use --html")
    many = job == "all"
    views.look(store, asked)
    if html_file is not None:
        try:
            from ...analytics.jobs.report import html_of
        except ImportError as error:
            raise _missing(error) from error
    with held(store), held(other or store), _written(html_file) as html, _written(rows_file) as rows:
        with _quiet(spark_log):
            conf = {"spark.driver.memory": f"{max(memory >> 20, 512)}m"} | running.conf_for(master)
            spark = running.started(lambda: session(master, "cairnmq analyze", conf), master)
        try:
            seen = views.Views(spark, store, asked, many=len(jobs) > 1)
            if truncated := seen.log.truncation():
                remark("analyze", truncated)
            for gap in seen.gaps:
                where = f"LSN {gap.first_lsn} to {gap.end_lsn}"
                click.echo(f"{where} is neither in the log nor in the archive: the answers are of the rest", err=True)
            reported: list[tuple[Any, Any]] = []
            begun_s = time.monotonic()
            for number, one in enumerate(jobs, 1):
                table = running.answer(one, seen)
                if many:
                    seconds, begun_s = time.monotonic() - begun_s, time.monotonic()
                    size = counted(table.num_rows, "row", spec=",")
                    text = f"{number} of {len(jobs)}: {one.name}, {size}, {seconds:.1f} s"
                    click.echo(text, err=True)
                tell(one, table, rows or sys.stdout, output_format, many=many)
                reported.append((one, table))
            if html is not None:
                html.writelines(html_of(reported, seen.store, seen.log, datetime.now(UTC)))
        finally:
            spark.stop()


def _missing(error: ImportError) -> CairnError:
    return CairnError("analyze", f"{error.name} is missing", install_hint("analysis"))


def tell(job: Any, table: Any, rows: TextIO, output_format: str, *, many: bool) -> None:
    """Write the rows of a job to *rows* as JSON or CSV, or print a table."""
    if output_format == "json":
        writer: RowWriter = JsonWriter(rows, {"job": job.name} if many else {})
    elif output_format == "csv":
        writer = CsvWriter(rows)
    else:
        writer = TableWriter()
        if many:
            console().print(f"\n{job.name}: {job.title}")
        if not table.num_rows:
            console().print("nothing: no rows")
            return
    with closing(writer):
        writer.write(table.schema, table.to_batches())


@contextmanager
def _written(path: str | None) -> Iterator[TextIO | None]:
    """A text file that gets its name when it is complete; created at once, so that errors are reported early."""
    if path is None or path == "-":
        yield None if path is None else sys.stdout
        return
    partial = path if os.path.exists(path) and not os.path.isfile(path) else path + ".partial"
    with disk_errors(path, "create"):
        opener = open_private if partial != path else None  # a pipe may well be reached over a link
        file = open(partial, "w", encoding="utf-8", newline="", opener=opener)  # noqa: SIM115
    try:
        with file:
            yield file
        if partial != path:
            os.replace(partial, path)
    except BaseException as error:
        if partial != path:
            os.unlink(partial)
        if isinstance(error, OSError):
            raise disk_error(path, "write", error) from error
        raise


@contextmanager
def _quiet(path: str) -> Iterator[None]:
    """Redirects the standard error of processes that are started within to *path*."""
    kept = os.dup(2)
    try:
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        os.close(kept)
        raise disk_error(path, "open", error) from error
    os.dup2(log, 2)
    os.close(log)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
