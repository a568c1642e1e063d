"""`cairnmq load`: a store from the lines of a dump. The implementation is in `tools.load`."""

from __future__ import annotations

from typing import IO

import click

from ...base.clock import SystemClock
from ...base.texts import counted
from ...tools.load.loader import load as run_load
from ..common.local_directory import LocalDirectory
from ..common.output import Bars, answering, print_fields, remark
from ..common.units import SIZE
from ..options.common_options import output_options
from ..options.subjects import INPUT, TARGET, GroupedCommand, option


@click.command("load", cls=GroupedCommand)
@click.argument("target", metavar="DIR", type=LocalDirectory())
@click.argument("source", metavar="[FILE]", type=click.File("rb"), default="-")
@option(TARGET, "--plain", is_flag=True, help="Make the directory of a journal, without a wiring.")
@option(TARGET, "--container-size", type=SIZE, default="1M", show_default=True, metavar="SIZE",
              help="Size of the new log's containers, at least 512K.")  # fmt: skip
@option(INPUT, "--without-end", is_flag=True,
              help="Accept input without a last line: written by hand, of an older version, or truncated.")  # fmt: skip
@output_options
@answering
def load(
    target: str, source: IO[bytes], plain: bool, container_size: int, without_end: bool, output_format: str
) -> None:
    """Make a store at DIR from the output of `cairnmq dump --complete`, in FILE or on standard input.

    Lines may have been removed, added or changed. The new store is another log: records keep their order, and LSNs and
    references to them are replaced. An invalid line is an error with its number, and no store is made. The same applies
    to a truncated dump, which has no last line. DIR must not exist.
    """
    with Bars() as bars:
        made = run_load(
            source, target, SystemClock(), bars.show,
            plain=plain, container_bytes=container_size, without_end=without_end,
        )  # fmt: skip
    fields = {"store": target, **made._asdict()}
    if not print_fields(fields, output_format, "loaded"):
        messages = f"{counted(made.messages, 'message')} on {counted(made.queues, 'queue')}"
        places = "a plain journal" if plain else messages
        print(f"loaded {counted(made.records, 'record')} to {target}: {places}")
    if made.unknown:
        reported = f"records refer to {counted(made.unknown, 'LSN')} without a record, as in the dumped store"
        remark("load", reported)
    if made.left_out > 0:
        remark("load", f"the lines contain {counted(made.left_out, 'record')} fewer than were dumped")
    elif made.left_out < 0:
        remark("load", f"the lines contain {counted(-made.left_out, 'record')} more than were dumped")
    if made.damaged:
        reported = f"damage is reported by {counted(made.damaged, 'line')}: the records there are not loaded"
        remark("load", reported)
