"""`cairnmq salvage`: recover what is whole of a damaged store. Everything it does is in `tools.salvage`."""

from __future__ import annotations

import io
import json
import sys

import click
from rich.console import Console
from rich.table import Table

from ..base.clock import SystemClock
from ..base.errors import CairnError
from ..tools.in_place import salvage_in_place
from ..tools.salvage import salvage as run_salvage
from ..tools.salvage_report import LOST_STATUS, SalvageReport
from .connect import connect_options
from .showing import Bars

_WIDTH = 160
"""Of what goes to no terminal."""


@click.command("salvage")
@click.argument("store", type=click.Path())
@click.option("--to", "target", type=click.Path(), metavar="NEW_STORE", help="Make a new store there.")
@click.option("--in-place", is_flag=True, help="Put the salvaged store in the place of the damaged one.")
@connect_options("The PostgreSQL server that the damaged store's wiring is on; only with --to")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
def salvage(
    store: str, target: str | None, in_place: bool, connect: str | None, catalog: str | None, as_json: bool
) -> None:
    """Recover every message that is whole from a damaged STORE, on which no broker runs.

    With --to the damaged store is only read. With --in-place its journal and wiring are moved to
    STORE/quarantine-TIME first. Nothing is ever deleted. What could not be recovered is kept in the directory
    quarantine of the new store, with a report that also lists the messages that may have been dequeued before.
    The wiring of the new store is in SQLite.

    The exit status is 0 if everything was whole, 3 if something was lost or may have been, and 1 for an error.
    """
    if bool(target) == in_place:
        raise CairnError("cairnmq salvage", "where to?", "give either --to NEW_STORE or --in-place")
    if in_place and connect:
        raise CairnError("cairnmq salvage", "a wiring on a server has no place in the store", "give --to NEW_STORE")
    with Bars() as bar:
        if target:
            report: SalvageReport | dict[str, object] = run_salvage(
                store, target, SystemClock(), bar.show, connect, catalog
            )
        else:
            report = salvage_in_place(store, SystemClock(), bar.show)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if isinstance(report, dict):  # of an earlier run, which is completed now
        print(json.dumps(report, indent=1))
        sys.exit(0 if report["whole"] else LOST_STATUS)
    if as_json:
        print(json.dumps(report.fields(), indent=1))
    else:
        _print(report)
    sys.exit(report.exit_status)


def _print(report: SalvageReport) -> None:
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _WIDTH)
    if report.findings:
        table = Table("container", "LSN", "what is wrong", "unknown records", title="Damage", title_justify="left")
        gaps = {gap.finding: gap for gap in report.gaps}
        for finding in report.findings:
            gap = gaps.get(finding)
            lsns = f"{finding.first_lsn} to {finding.end_lsn}" if finding.end_lsn else ""
            unknown = f"at most {gap.unknown_records}" if gap is not None and gap.unknown else ""
            table.add_row(finding.place or "none", lsns, f"{finding.kind}: {finding.why}", unknown)
        console.print(table)
    for remark in report.remarks:
        console.print(remark, markup=False)
    if not report.salvaged:
        console.print("everything is whole, and in its place: nothing was changed")
        return
    table = Table("queue", "salvaged", "lost", "doubtful", title="Messages", title_justify="left")
    for name, count in report.queues.items():
        lost = sum(name in map(report.name_of, message.queue_ids) for message in report.lost)
        doubtful = sum(message.queue == name for message in report.doubtful)
        table.add_row(name, str(count), str(lost), str(doubtful))
    console.print(table)
    if report.unplaced:
        console.print(f"{len(report.unplaced)} messages are in the quarantine: their queue is not known")
    if report.doubtful:
        console.print("a doubtful message may have been dequeued before; the report names each")
    console.print(f"salvaged {report.messages} messages to {report.salvaged}", markup=False)
