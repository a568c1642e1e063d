"""The command `cairnmq calibrate`: the cost of a sync on a disk."""

from __future__ import annotations

import click

from ...tools.inspect.format_text import size_text
from ...tools.load.calibrate import ALLOCATED, WRITTEN, Calibration
from ...tools.load.calibrate import calibrate as run_calibrate
from ..common.csv_rows import columns_of
from ..common.output import answering, bars, console, print_rows, printable
from ..common.units import Duration
from ..options.common_options import output_options
from ..options.subjects import GroupedCommand
from ..tables.text_table import TextTable


@click.command("calibrate", cls=GroupedCommand)
@click.argument("directory", metavar="DIR", type=click.Path())
@click.option("--seconds", default="5s", show_default=True, type=Duration(0.1, 3600), help="The approximate duration.")
@output_options
@answering
def calibrate(directory: str, seconds: float, output_format: str) -> None:
    """Measure the cost of durable writes in DIR, and suggest options for a broker there.

    It writes two unnamed files of 32 MiB, which are removed at the end, also on Ctrl-C. Other load on the disk
    influences the result.
    """
    found = Calibration(directory)
    try:
        with bars() as progress:
            run_calibrate(found, seconds, progress)
    finally:
        if found.timings:
            rows = [timing.fields() for timing in found.timings]
            if not print_rows(rows, columns_of(rows, ()), output_format, found.fields()):
                _show(found)


def _show(found: Calibration) -> None:
    shown = console()
    kind = {True: ", rotating", False: ", flash or virtual", None: ""}[found.rotational]
    cache = f", {found.write_cache} cache" if found.write_cache else ""
    where = f"{found.file_system} on {found.device}{kind}{cache}, mounted at {found.mount_point}"
    shown.print(printable(f"{found.directory}: {where}"))
    shown.print("append and fdatasync, in microseconds:")
    table = TextTable("size", "blocks", "p50", "p90", "p99", "max", "per second")
    for timing in found.timings:
        texts = [f"{timing.percentile_us(percent):.0f}" for percent in (50, 90, 99)]
        speed = f"{size_text(timing.bytes_per_s)}/s"
        table.add_row(size_text(timing.size_bytes), timing.kind, *texts, f"{timing.times_us[-1]:.0f}", speed)
    shown.print(table)
    if not found.complete:
        shown.print("interrupted: the rest was not measured")
        return
    ratios = [
        found.of(ALLOCATED)[size].percentile_us(50) / timing.percentile_us(50)
        for size, timing in found.of(WRITTEN).items()
    ]
    shown.print(f"blocks that were written before sync {min(ratios):.1f} to {max(ratios):.1f} times as fast; "
                "containers are always such")  # fmt: skip
    for warning in found.warnings:
        shown.print(f"warning: {warning}")
    for option, reason in found.suggestions:
        shown.print(f"cairnmq broker {option}: {reason}")
    if not found.suggestions and not found.warnings:
        shown.print("the defaults suit this disk")
