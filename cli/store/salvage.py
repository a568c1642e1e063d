"""`cairnmq salvage`: recover what is whole of a damaged store. Everything it does is in `tools.salvage`."""

from __future__ import annotations

from functools import partial

import click

from ...base.clock import SystemClock
from ...base.errors import InvalidOption
from ...base.texts import counted
from ...tools.repair.damaged_store import DamagedStore
from ...tools.repair.salvage import preview
from ...tools.repair.salvage import salvage as run_salvage
from ...tools.repair.salvage_in_place import is_interrupted, salvage_in_place
from ...tools.repair.salvage_report import LOST_STATUS, SalvageReport
from ..common.local_directory import LocalDirectory
from ..common.output import Bars, answering, long_line_console, output, print_json, print_rows, printable
from ..options.common_options import output_options
from ..options.confirmation import confirm, destructive
from ..options.store_options import connect_options
from ..options.subjects import TARGET, GroupedCommand, option
from ..tables.text_table import TextTable

_LOST = ("message_id", "queues", "certain", "reason")
"""The columns of the lost messages."""
_DAMAGE = ("kind", "file", "first_lsn", "end_lsn", "reason")
"""The columns of a dry run."""


@click.command("salvage", cls=GroupedCommand)
@click.argument("store", type=LocalDirectory())
@option(TARGET, "--to", "target", type=LocalDirectory(), metavar="NEW_STORE", help="Make a new store there.")
@option(TARGET, "--in-place", is_flag=True, help="Put the salvaged store in the place of the damaged one.")
@connect_options("The PostgreSQL server that the damaged store's wiring is on; only with --to")
@output_options
@destructive
@partial(answering, failed=1)
def salvage(
    store: str, target: str | None, in_place: bool, connect: str | None, catalog: str | None, output_format: str,
    is_sure: bool, is_dry_run: bool,
) -> int:  # fmt: skip
    """Recover every complete message from a damaged STORE. No broker may run on it.

    With --to the damaged store is only read. With --in-place its journal and wiring are moved to
    STORE/quarantine-TIME first; this needs --yes without a terminal. Nothing is deleted. Data that could not be
    recovered is kept in the directory quarantine of the new store, with a report that also lists the messages that may
    have been dequeued before. The wiring of the new store is in SQLite.

    With --dry-run the damage is shown, and nothing is written; the exit status is 0 with any damage.

    The exit status is 0 if everything was complete, 3 if data was or may have been lost, 2 if the command is
    wrong or STORE does not exist, and 1 for other errors.
    """
    if bool(target) == in_place:
        raise InvalidOption("salvage", "where to?", "give either --to NEW_STORE or --in-place")
    if in_place and connect:
        raise InvalidOption("salvage", "a wiring on a server has no place in the store", "give --to NEW_STORE")
    if is_dry_run:
        return _preview(store, target, connect, catalog, output_format)
    if in_place:
        question = f"Replace the journal and the wiring of {store} by what can be recovered?"
        confirm("salvage --in-place", question, is_sure=is_sure)
    with Bars() as bar:
        if target:
            report: SalvageReport | dict[str, object] = run_salvage(
                store, target, SystemClock(), bar.show, connect, catalog
            )
        else:
            report = salvage_in_place(store, SystemClock(), bar.show)
    if isinstance(report, dict):  # of an earlier run, which is completed now
        print_json(report)
        return 0 if report["complete"] else LOST_STATUS
    with output(lambda: report.exit_status):
        if not print_rows(report.lost_fields(), _LOST, output_format, report.fields()):
            _print(report)
    return report.exit_status


def _preview(store: str, target: str | None, connect: str | None, catalog: str | None, output_format: str) -> int:
    """Show the damage, and what a salvage would do."""
    if target is None and is_interrupted(store):
        change, report = f"complete the salvage of {store} that was interrupted", SalvageReport(store)
    else:
        with Bars() as bar:
            examined = preview(store, target, bar.show, connect, catalog)
        change, report = _change(examined, store, target), examined.report
    with output(lambda: 0):
        findings = [one.fields() for one in report.findings]
        document = {"would": change, "findings": findings, "remarks": report.remarks}
        if not print_rows(findings, _DAMAGE, output_format, document):
            _print_findings(report)
            long_line_console().print(printable(f"would {change}"))
    return 0


def _change(examined: DamagedStore, store: str, target: str | None) -> str:
    if target is not None:
        return f"copy every complete message of {store} to {target}"
    if examined.is_sound:
        return f"change nothing: {store} is complete"
    return f"move the journal and the wiring of {store} to a quarantine, and put what is complete in their place"


def _print_findings(report: SalvageReport) -> None:
    out = long_line_console()
    if report.findings:
        table = TextTable("container", "LSN", "damage", "unknown records", title="Damage", prose=("damage",))
        gaps = {gap.finding: gap for gap in report.gaps}
        for finding in report.findings:
            gap = gaps.get(finding)
            lsns = f"{finding.first_lsn} to {finding.end_lsn}" if finding.end_lsn else ""
            unknown = f"at most {gap.unknown_records}" if gap is not None and gap.unknown else ""
            table.add_row(finding.place or "none", lsns, printable(f"{finding.kind}: {finding.reason}"), unknown)
        out.print(table)
    for remark in report.remarks:
        out.print(printable(remark))


def _print(report: SalvageReport) -> None:
    out = long_line_console()
    _print_findings(report)
    if not report.salvaged:
        out.print("everything is complete and in its place: nothing was changed")
        return
    table = TextTable("queue", "salvaged", "lost", "doubtful", title="Messages")
    for name, count in report.queues.items():
        lost = sum(name in map(report.name_of, message.queue_ids) for message in report.lost)
        doubtful = sum(message.queue == name for message in report.doubtful)
        table.add_row(printable(name), str(count), str(lost), str(doubtful))
    out.print(table)
    if report.unplaced:
        out.print(f"quarantined {counted(len(report.unplaced), 'message')} of unknown queues")
    if report.doubtful:
        out.print("a doubtful message may have been dequeued before; the report names each")
    out.print(f"salvaged {counted(report.messages, 'message')} to {report.salvaged}")
