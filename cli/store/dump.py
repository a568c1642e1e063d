"""`cairnmq dump`: show a journal. Everything it does is in `tools.dump`; here are the options and the way out."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import click

from ...analytics.scan.journal_directory import directory_of_containers
from ...analytics.scan.selection import Selection, queue_ids_named
from ...base.clock import SystemClock
from ...base.errors import InvalidOption
from ...tools.history.history_view import rows_of, stores_of
from ...tools.inspect.dump import Totals, last_of
from ...tools.inspect.dump import dump as run_dump
from ...tools.inspect.evidence import Evidence, ask_server, open_evidence
from ...tools.inspect.lines import COMPLETE_PAYLOAD, JsonLines, Lines, PeopleLines, Redact
from ...tools.inspect.loose_containers import is_empty_archive
from ...tools.inspect.point_in_time import check_order, time_of
from ...tools.inspect.row_filter import RowFilter, checked_types
from ...tools.load.load_lines import wiring_line
from ...tools.load.redaction import Redaction, Rules
from ..common.output import answering, output, remark
from ..options.common_options import OUTPUT, SELECTION, GroupedCommand, option, output_options
from ..options.store_options import archives_option, connect_options


class _Number(click.ParamType[int]):
    """A number of at least 0. Invalid values are reported in one line, not in the four lines of click."""

    def __init__(self, name: str, words: dict[str, int] | None = None) -> None:
        self.name = name
        self._words = words or {}

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value)
        if text in self._words:
            return self._words[text]
        if not (text.isascii() and text.isdecimal()):
            option = param.opts[0] if param is not None else self.name
            also = "".join(f", or {word!r}" for word in self._words)
            raise InvalidOption(f"{option} {text}", "not a number", f"give a whole number of at least 0{also}")
        return int(text)


@click.command("dump", cls=GroupedCommand)
@click.argument("paths", nargs=-1, metavar="STORE|ARCHIVE|CONTAINER...")
@archives_option
@option(SELECTION, "--from-lsn", type=_Number("LSN"), default=0, help="Leave out records before this LSN.")
@option(SELECTION, "--to-lsn", type=_Number("LSN"), help="Stop before this LSN.")
@option(SELECTION, "--since", metavar="TIME", help="Leave out older records: a time, or an age such as 10m.")
@option(SELECTION, "--until", metavar="TIME", help="Leave out newer records.")
@option(SELECTION, "--last", type=click.IntRange(1, 10_000_000), metavar="N", help="Only the last N selected records.")
@option(SELECTION, "--type", "types", multiple=True, metavar="NAME",
              help="Only records of this type: start, enqueue, dequeue, chunk, delete, log-open; `enqueue` also "
              "selects start+enqueue. Repeatable.")  # fmt: skip
@option(SELECTION, "--queue", "queues", multiple=True, metavar="NAME|ID",
        help="Only records of this queue. Repeatable.")
@option(SELECTION, "--message", "messages", type=_Number("LSN"), multiple=True,
              help="Only records of the message with this id. Repeatable.")  # fmt: skip
@output_options
@option(OUTPUT, "--payload", type=_Number("N", {"all": COMPLETE_PAYLOAD}), metavar="N|all",
              help="Bytes of payload to show.  [default: 32; 0 with --json]")  # fmt: skip
@option(OUTPUT, "--complete", is_flag=True, help="Print input for `cairnmq load`: JSON with all payloads.")
@option(OUTPUT, "--redact", "rules", multiple=True, metavar="RULE",
              help="Hide body, properties, application-properties, application-properties:NAME, annotations, all of "
              "these, or payloads, each byte of them. Repeatable.")  # fmt: skip
@option(OUTPUT, "--redact-key", metavar="TEXT", envvar="CAIRNMQ_REDACT_KEY",
              help="Show keyed hashes of hidden values, not filler: equal values stay equal.")  # fmt: skip
@option(OUTPUT, "--blocks", is_flag=True, help="Also print a line per block.")
@connect_options("The PostgreSQL server with the names of the queues")
@option(OUTPUT, "--summary", is_flag=True, help="Print only totals: records per type, bytes, LSNs, damage.")
@answering
def dump(
    paths: tuple[str, ...], archives: tuple[str, ...], from_lsn: int, to_lsn: int | None, since: str | None,
    until: str | None, last: int | None, types: tuple[str, ...], queues: tuple[str, ...], messages: tuple[int, ...],
    output_format: str, payload: int | None, complete: bool, rules: tuple[str, ...], redact_key: str | None,
    blocks: bool, connect: str | None, catalog: str | None, summary: bool,
) -> int:  # fmt: skip
    """Print the records of a journal, one per line. A broker may be running.

    STORE is a store directory or the directory of a journal, and ARCHIVE is an archive directory (--archive-dir). A
    store and its archive together have the complete history. CONTAINER is a file of a journal or an archive. The
    command writes nothing to them. Damage is shown at its place in the log.

    The output is text or JSON. `cairnmq sql STORE 'from records' --output csv` prints records as CSV, and `cairnmq
    backup` copies a store.

    The exit status is 0 if all records are readable, also if the end of the log is torn; 1 if a durable record can't
    be read; and 2 if there is no journal or the command is wrong.
    """
    as_json = _is_json(output_format) or complete
    paths, empty = _read(paths, archives)
    labels = checked_types(types)
    selection = _selection(from_lsn, to_lsn, since, until)
    evidence = open_evidence(list(paths))
    if connect is not None:
        ask_server(evidence, connect, catalog)
    queue_ids = queue_ids_named(queues, evidence.queue_names, "--queue {}")
    row_filter = RowFilter(replace(selection, queue_ids=queue_ids, message_ids=messages), labels)
    if last is not None:
        row_filter = last_of(evidence, row_filter, last)
    redaction = Redaction(Rules(rules, (redact_key or "").encode())) if rules else None
    wiring, wiring_remarks = _wiring(evidence, paths, connect, catalog) if complete and not summary else ("", [])
    lines = _lines(evidence, payload, redaction, as_json=as_json, complete=complete)
    totals = Totals()
    with output(lambda: totals.exit_status):
        sys.stdout.write(wiring)
        run_dump(evidence, row_filter, lines, sys.stdout.write, totals, with_blocks=blocks, totals_only=summary)
        if summary:
            sys.stdout.write((totals.as_json() if as_json else totals.as_text()) + "\n")
        sys.stdout.flush()
    remarks = _remarks(evidence, paths, wiring_remarks, redaction)
    for line in filter(None, dict.fromkeys((*empty, *remarks, totals.damage_text()))):
        remark("dump", line)
    return totals.exit_status


def _is_json(output_format: str) -> bool:
    if output_format == "csv":
        remedy = "give --output json, or use `cairnmq sql STORE 'from records' --output csv`"
        raise InvalidOption("--output csv", "records of different types have different fields", remedy)
    return output_format == "json"


def _read(paths: tuple[str, ...], archives: tuple[str, ...]) -> tuple[tuple[str, ...], list[str]]:
    """Each path once, without archives that are still empty, and remarks on these."""
    given = list({os.path.realpath(path): path for path in reversed((*paths, *archives))}.values())[::-1]
    empty = [path for path in archives if path in given and os.path.isdir(path) and is_empty_archive(path)]
    filled = tuple(path for path in given if path not in empty)
    return (filled, [f"{path}: empty" for path in empty]) if filled else (tuple(given), [])


def _selection(from_lsn: int, to_lsn: int | None, since: str | None, until: str | None) -> Selection:
    """Return the selection of these LSNs and times. Raises `CairnError`."""
    now_us = SystemClock().wall_us()
    since_us, until_us = (None if text is None else time_of(text, now_us) for text in (since, until))
    check_order(f"--from-lsn {from_lsn} --to-lsn {to_lsn}", from_lsn, to_lsn)
    check_order(f"--since {since} --until {until}", since_us, until_us)
    return Selection(from_lsn, to_lsn, since_us, None if until_us is None else until_us + 1)


def _lines(evidence: Evidence, payload: int | None, redact: Redact | None, *, as_json: bool, complete: bool) -> Lines:
    if not as_json:
        return PeopleLines(evidence.queue_names, 32 if payload is None else payload, redact)
    return JsonLines(evidence.queue_names, COMPLETE_PAYLOAD if complete else payload, redact, with_text=not complete)


def _wiring(
    evidence: Evidence, paths: tuple[str, ...], connect: str | None, catalog: str | None
) -> tuple[str, list[str]]:
    """The line with the wiring, empty where none is known, and what is worth knowing beside."""
    stores = stores_of([directory_of_containers(path) for path in paths if os.path.isdir(path)])
    if not evidence.sources or not (stores or connect):
        return "", []
    rows, remarks = rows_of(stores, evidence.sources[0].reader.log_uuid, connect, catalog)
    return wiring_line(rows) + "\n", remarks


def _remarks(evidence: Evidence, paths: tuple[str, ...], wiring: list[str], redaction: Redaction | None) -> list[str]:
    """Return what is worth knowing beside the records that were read."""
    truncated = evidence.truncation() if all(map(os.path.isdir, paths)) else ""
    opaque = f"{redaction.opaque} payloads are completely or partly filler" if redaction and redaction.opaque else ""
    return [truncated, *evidence.remarks(), *wiring, opaque]
