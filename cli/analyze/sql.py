"""The command `cairnmq sql`: SQL queries on a journal."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Any

import click

from ...base.errors import CairnError
from ...base.extras import install_hint
from ..common.output import answering, console, print_rows, remark
from ..common.row_writers import ArrowWriter, CsvWriter, JsonWriter, RowWriter, TableWriter
from ..common.signals import interrupting, temporary_directory
from ..common.units import SIZE
from ..options.common_options import output_options
from ..options.store_options import archive_option, connect_options, skip_damaged_option, store_argument
from ..options.subjects import ANALYSIS, OUTPUT, SELECTION, GroupedCommand, option
from ..tables.text_table import TextTable


@click.command("sql", cls=GroupedCommand)
@store_argument
@click.argument("query", required=False)
@option(SELECTION, "--schema", is_flag=True, help="List the tables and their columns.")
@output_options
@option(OUTPUT, "--csv", "output_format", flag_value="csv", help="Short for --output csv.")
@option(
    OUTPUT, "--csv-raw", is_flag=True, help="Print CSV with unchanged texts, including control characters and formulas."
)
@option(OUTPUT, "--arrow", type=click.Path(dir_okay=False), metavar="FILE", help="Write an Arrow stream.")
@archive_option
@skip_damaged_option
@option(ANALYSIS, "--memory-limit", type=SIZE, default="1G", show_default=True, help="Memory for sorting and joining.")
@connect_options("The PostgreSQL server that the store's wiring is on")
@answering
def sql(
    store: str, query: str | None, schema: bool, output_format: str, csv_raw: bool, arrow: str | None,
    archive_dir: str | None, skip_damaged: bool, memory_limit: int, connect: str | None, catalog: str | None,
) -> None:  # fmt: skip
    """Query a journal with SQL. A broker may be running on it; nothing is written into it.

    The tables are records, messages, places, orphan_records, live_set, transactions, containers, queues and wiring;
    --schema lists their columns.
    Payloads are read only if QUERY names one of their columns. QUERY is in the SQL dialect of DuckDB; `-` reads it from
    standard input.
    """
    try:
        from ...analytics.views import sql as engine
        from ...analytics.views.journal import open_journal
    except ImportError as error:
        raise CairnError("sql", f"{error.name} is missing", install_hint("sql")) from error
    if sum((output_format == "json" or (output_format == "csv" and not csv_raw), csv_raw, arrow is not None)) > 1:
        reason = "rows can be written in one way"
        raise CairnError("sql", reason, "give one of --output, --csv-raw and --arrow")
    if schema or query == ".tables":
        _show(engine.schemas(), output_format)
        return
    if not query:
        raise CairnError("sql", "no query is given", "--schema lists tables and columns")
    text = sys.stdin.read() if query == "-" else query
    text.encode()  # DuckDB reports invalid UTF-8 as a wrong type of argument
    journal = open_journal(store, archive=archive_dir, connect=connect, catalog=catalog)
    if truncated := journal.log.truncation():
        remark("sql", truncated)
    with temporary_directory("cairnmq-sql-") as spill:
        asked = engine.JournalSql(journal, skip_damaged=skip_damaged, memory_limit_bytes=memory_limit, spill=spill)
        with closing(asked), interrupting(asked.interrupt), closing(_writer(output_format, csv_raw, arrow)) as writer:
            writer.open()
            found = asked.query(text)
            if found is not None:
                writer.write(found.schema, asked.batches(found))


def _writer(output_format: str, csv_raw: bool, arrow: str | None) -> RowWriter:
    if arrow is not None:
        return ArrowWriter(arrow)
    if csv_raw or output_format == "csv":
        return CsvWriter(raw=csv_raw)
    return JsonWriter() if output_format == "json" else TableWriter(is_raw=output_format == "raw")


def _show(schemas: dict[str, Any], output_format: str) -> None:
    """Show the tables and columns."""
    types = {name: {field.name: str(field.type) for field in schema} for name, schema in schemas.items()}
    columns = ("table", "column", "type")
    rows = [dict(zip(columns, (name, *one), strict=True)) for name, of in types.items() for one in of.items()]
    if print_rows(rows, columns, output_format, types):
        return
    table = TextTable(*columns)
    for row in rows:
        table.add_row(*row.values())
    console().print(table)
