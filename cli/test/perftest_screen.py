"""The output of `cairnmq perftest`: progress while it runs, then tables for people or a document for programs."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from statistics import stdev
from typing import Any, Self

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ...base.errors import DiskError
from ...base.texts import counted
from ...tools.perftest.figures import Iteration, Report, mean, totals
from ...tools.perftest.plan import Options
from ...tools.perftest.run import View
from ..common.csv_rows import columns_of, print_csv, without_lists
from ..common.output import OutputConsole, printable
from ..common.standard_streams import discard_output

WIDTH_IN_PIPES = 120
_SMOOTH = 0.5


class Screen:
    """Shows the progress of a test on standard error, and its results on standard output."""

    def __init__(self, options: Options, *, output_format: str, summary: bool, live: bool | None) -> None:
        self._options = options
        self._output_format, self._summary = output_format, summary
        self._live = sys.stderr.isatty() if live is None else live
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(), console=Console(stderr=True), transient=True, disable=not self._live,
        )  # fmt: skip
        totals = (options.all_pubs * options.count, options.all_subs * options.quota)
        self._tasks = [
            self._progress.add_task(name, total=total * options.iterations, rate="")
            for name, total in zip(("published", "received"), totals, strict=True)
        ]
        self._before = [(time.monotonic(), 0, 0.0)] * 2

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def look(self, view: View) -> None:
        if not self._live:
            return
        now_s = time.monotonic()
        for number, done in enumerate((view.published, view.received)):
            then_s, before, rate = self._before[number]
            if now_s - then_s >= _SMOOTH:
                rate = (done - before) / (now_s - then_s)
                self._before[number] = now_s, done, rate
            self._progress.update(self._tasks[number], completed=done, rate=f"{rate:,.0f}/s" if rate else "")

    def document(self, iterations: list[Iteration], stopped_by: str) -> dict[str, Any]:
        """Return all results; *stopped_by* is the reason if the test is incomplete."""
        options = asdict(self._options) | {"addresses": self._options.addresses._asdict()}
        return {
            "complete": not stopped_by,
            "stopped_by": stopped_by or None,
            "options": options,
            "iterations": [iteration.as_json() for iteration in iterations],
            "averages": dict(totals(iterations)) if iterations else None,
        }

    def result(self, iterations: list[Iteration], document: dict[str, Any]) -> None:
        """Print the result. Raises `DiskError` if the output fails."""
        if self._output_format == "json":
            put(lambda: print(json.dumps(document, indent=2)))
        elif self._output_format == "csv":
            rows = [without_lists(one.as_json()) for one in iterations]
            put(lambda: print_csv(columns_of(rows, ()), rows))
        elif self._summary:
            put(lambda: self._lines(iterations))
        else:
            put(lambda: self._tables(iterations, document))

    def _lines(self, iterations: list[Iteration]) -> None:
        """A line for each iteration, as qpid-perftest prints it."""
        for one in iterations:
            found = one.as_json()
            rates = (mean(r.per_s for r in one.of(role)) for role in ("publisher", "subscriber"))
            figures = (*rates, found["transfers_per_s"], found["mbytes_per_s"])
            print("\t".join(f"{figure:.6g}" for figure in figures) + ("\tpartial" if one.partial else ""))
        if len(iterations) > 1:
            print("Averages:")
            print("\t".join(f"{figure:.6g}" for figure in totals(iterations).values()))

    def _tables(self, iterations: list[Iteration], document: dict[str, Any]) -> None:
        console = OutputConsole(width=None if sys.stdout.isatty() else WIDTH_IN_PIPES, highlight=False)
        for one in iterations:
            found = one.as_json()
            stopped = " (partial)" if one.partial else ""
            console.print(
                f"iteration {one.number + 1}{stopped}: {counted(one.transfers, 'transfer', spec=',')} of "
                f"{counted(one.body_bytes, 'byte')} in "
                f"{one.seconds:.2f} s: {found['transfers_per_s']:,.0f}/s, {found['mbytes_per_s']:,.1f} MB/s"
            )
            console.print(_rates(one))
            console.print(_times(found))
            if found["wrong"]:
                console.print(
                    "[bold red]wrong: " + ", ".join(f"{n:,} {name}" for name, n in found["wrong"].items()) + "[/]"
                )
        if len(iterations) > 1:
            names = ("published/s", "received/s", "transfers/s", "MB/s")
            figures = [f"{name} {figure:,.1f}" for name, figure in zip(names, totals(iterations).values(), strict=True)]
            console.print("averages: " + ", ".join(figures))
        if not iterations:
            console.print("nothing was measured")
        if document["stopped_by"]:
            console.print(Text(f"not all of the test: {printable(document['stopped_by'])}", style="yellow"))


def _rates(one: Iteration) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "clients", "messages", "per second each", "std.dev.", "CPU us/message"):
        table.add_column(name, justify="right" if name else "left")
    for role in ("publisher", "subscriber"):
        if reports := one.of(role):
            table.add_row(role, *_figures(reports), f"{one.cpu_us(role):.2f}")
    return table


def _figures(reports: list[Report]) -> tuple[str, ...]:
    rates = [report.per_s for report in reports]
    messages = sum(report.messages for report in reports)
    return str(len(reports)), f"{messages:,}", f"{mean(rates):,.0f}", f"{stdev(rates):,.0f}" if len(rates) > 1 else ""


def _times(found: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    names = ("min", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "max")
    table.add_column("us")
    for name in names:
        table.add_column(name, justify="right")
    for what, key in (("sent to accepted", "accepted_us"), ("sent to received", "end_to_end_us")):
        if found[key]:
            table.add_row(what, *(f"{found[key][name]:,.0f}" for name in names))
    return table


def put(printing: Callable[[], None]) -> None:
    """Print a result. Raises `DiskError` if the output fails; a closed pipe is no error."""
    try:
        printing()
        sys.stdout.flush()
    except OSError as error:
        discard_output()
        if not isinstance(error, BrokenPipeError):
            reason = f"the result can't be written: {error.strerror}"
            raise DiskError("standard output", reason, "free space") from error


def check_writable(option: str, path: str) -> None:
    """Raises `click.UsageError` if no result could be written there: better before a test than behind it."""
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            return  # a pipe, whose reader may come later
        is_there = os.path.lexists(path)
        with open(path, "a"):
            pass
        if not is_there:
            os.unlink(path)
    except OSError as error:
        raise click.UsageError(f"{option} {path}: it can't be written: {error.strerror}; name another file") from error


def write_out(path: str, document: dict[str, Any]) -> None:
    """Write and sync the document. Raises `DiskError` on failure; the file may then be incomplete."""
    try:
        with open(path, "w") as file:
            json.dump(document, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise DiskError(
            path, f"the result can't be written: {error.strerror}", "make room, or name another file with --to"
        ) from error
