"""The command `cairnmq sql`: SQL queries on a journal."""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import click
from rich.table import Table

from ...base.errors import CairnError
from ...base.extras import install_hint
from ..common.output import answering, console, print_json, remark, store_argument
from ..common.row_writers import ArrowWriter, CsvWriter, JsonWriter, RowWriter, TableWriter
from ..common.signals import interrupting
from ..common.units import SIZE
from ..options.connect import connect_options
from ..store.archives import archive_option


@click.command("sql")
@store_argument
@click.argument("query", required=False)
@click.option("--schema", is_flag=True, help="List the tables and their columns.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a header line.")
@click.option(
    "--csv-raw", is_flag=True, help="Print CSV with unchanged texts, including control characters and formulas."
)
@click.option("--arrow", type=click.Path(dir_okay=False), metavar="FILE", help="Write an Arrow stream.")
@archive_option
@click.option("--skip-damaged", is_flag=True, help="Leave out unreadable records.")
@click.option("--memory-limit", type=SIZE, default="1G", show_default=True, help="The memory for sorting and joining.")
@connect_options("The PostgreSQL server that the store's wiring is on")
@answering
def sql(
    store: str, query: str | None, schema: bool, as_json: bool, as_csv: bool, csv_raw: bool, arrow: str | None,
    archive_dir: str | None, skip_damaged: bool, memory_limit: int, connect: str | None, catalog: str | None,
) -> None:  # fmt: skip
    """Query a journal with SQL. A broker may be running on it; nothing is written into it.

    The tables are records, messages, places, strays, living, transactions, containers, queues and wiring; --schema
    lists their columns.
    Payloads are read only if QUERY names one of their columns. QUERY is in the SQL dialect of DuckDB; `-` reads it from
    standard input.
    """
    try:
        from ...analytics.views import sql as engine
        from ...analytics.views.journal import open_journal
    except ImportError as error:
        raise CairnError("cairnmq sql", f"{error.name} is missing", install_hint("sql")) from error
    if sum((as_json, as_csv or csv_raw, arrow is not None)) > 1:
        raise CairnError("cairnmq sql", "rows can be written in one way", "give one of --json, --csv and --arrow")
    if schema or query == ".tables":
        _show(engine.schemas(), as_json)
        return
    if not query:
        raise CairnError("cairnmq sql", "no query is given", "--schema lists tables and columns")
    text = sys.stdin.read() if query == "-" else query
    journal = open_journal(store, archive=archive_dir, connect=connect, catalog=catalog)
    if truncated := journal.log.truncation():
        remark("sql", truncated)
    with tempfile.TemporaryDirectory(prefix="cairnmq-sql-") as spill:
        asked = engine.JournalSql(journal, skip_damaged=skip_damaged, memory_limit_bytes=memory_limit, spill=spill)
        try:
            with interrupting(asked.interrupt):
                _answer(asked, text, _writer(as_json, as_csv or csv_raw, csv_raw, arrow))
        finally:
            asked.close()


def _answer(asked: Any, text: str, writer: RowWriter) -> None:
    try:
        writer.open()
        found = asked.query(text)
        if found is not None:
            writer.begin(found.schema)
            for batch in asked.batches(found):
                if not writer.rows(batch):
                    break
            writer.end()
    finally:
        writer.close()


def _writer(as_json: bool, as_csv: bool, csv_raw: bool, arrow: str | None) -> RowWriter:
    if arrow is not None:
        return ArrowWriter(arrow)
    return JsonWriter() if as_json else CsvWriter(raw=csv_raw) if as_csv else TableWriter()


def _show(schemas: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json({name: {field.name: str(field.type) for field in schema} for name, schema in schemas.items()})
        return
    table = Table("table", "column", "type", box=None, pad_edge=False)
    for name, schema in schemas.items():
        for field in schema:
            table.add_row(name, field.name, str(field.type))
    console().print(table)
