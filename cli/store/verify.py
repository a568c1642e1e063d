"""`cairnmq verify`: the check of a store. The checks are in `tools.verify`; this module renders the results."""

from __future__ import annotations

import click
from rich.text import Text

from ...base.texts import counted
from ...tools.inspect.format_text import size_text
from ...tools.verify.archive_check import verify_archive
from ...tools.verify.store_check import verify_store
from ...tools.verify.verdicts import Verdict, VerifyReport
from ..common.output import answering, bars, console, output, print_rows, printable
from ..options.common_options import output_options
from ..options.store_options import archive_option, connect_options, store_argument
from ..options.subjects import GroupedCommand
from ..tables.text_table import TextTable

_COLUMNS = ("kind", "place", "first_lsn", "end_lsn", "what", "lost", "remedy")
_STYLES = {"corrupt": "bold red", "torn": "yellow", "note": "dim"}


@click.command("verify", cls=GroupedCommand)
@store_argument
@archive_option
@connect_options("The PostgreSQL server that the store's wiring is on")
@output_options
@answering
def verify(store: str, archive_dir: str | None, connect: str | None, catalog: str | None, output_format: str) -> int:
    """Check all of a store: every checksum and reference, the checkpoint and SQL against the journal.

    A broker may be running; the command writes nothing. STORE may also be a backup, or a journal directory.

    The exit status is 0 if the store is consistent, also if the end of the log is torn, as after a crash. It is 1 if
    durable data is damaged or inconsistent, and 2 if there is no store or the command is wrong.
    """
    report = VerifyReport(store)
    try:
        with bars() as progress:
            verify_store(report, progress, connect, catalog)
            if archive_dir is not None:
                verify_archive(report, archive_dir, progress)
        report.complete = True
    except KeyboardInterrupt:
        if report.records:
            _show(report, output_format)
        raise
    with output(lambda: report.exit_status):
        _show(report, output_format)
    return report.exit_status


def _show(report: VerifyReport, output_format: str) -> None:
    if print_rows([verdict.fields() for verdict in report.verdicts], _COLUMNS, output_format, report.fields()):
        return
    shown = console()
    if report.verdicts:
        table = TextTable("finding", "place", "LSN", "what", "lost", "remedy", prose=("what", "lost", "remedy"))
        for verdict in report.verdicts:
            table.add_row(*_row(verdict))
        shown.print(table)
    counts = report.counts()
    speed = f", {report.bytes / report.seconds / 1e9:.2f} GB/s" if report.seconds > 0.1 else ""
    shown.print(
        f"{report.store}: {counted(report.records, 'record')} in {counted(report.blocks, 'block')} of "
        f"{counted(report.containers, 'container')}, "
        f"{size_text(report.bytes)}, LSN {report.base_lsn} to {report.end_lsn}, {counted(report.messages, 'message')}, "
        f"in {report.seconds:.1f} s{speed}"
    )
    shown.print(f"checked: {', '.join(report.checked)}")
    wrong = [f"{counts[kind]} {kind}" for kind in ("corrupt", "torn") if counts[kind]]
    found = ", ".join(wrong) or "all is well"
    shown.print(found if report.complete else f"{found}, but it was interrupted: the rest was not looked at")


def _row(verdict: Verdict) -> list[Text]:
    lsns = f"{verdict.first_lsn} to {verdict.end_lsn}" if verdict.end_lsn else ""
    texts = (verdict.place, lsns, verdict.what, verdict.lost, verdict.remedy)
    return [Text(verdict.kind, style=_STYLES[verdict.kind]), *(Text(printable(text)) for text in texts)]
