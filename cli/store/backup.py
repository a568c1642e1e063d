"""`cairnmq backup` and `cairnmq restore`. The implementation is in `tools.backup`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from ...base.clock import SystemClock
from ...base.texts import counted
from ...tools.backup.backup import back_up
from ...tools.backup.manifest import Manifest
from ...tools.backup.restore import restore as run_restore
from ..common.local_directory import LocalDirectory
from ..common.output import bars, print_fields
from ..common.signals import status_of, terminable
from ..options.common_options import output_options
from ..options.store_options import connect_options
from ..options.subjects import TARGET, GroupedCommand


@click.command("backup", cls=GroupedCommand)
@click.argument("store", metavar="STORE", type=LocalDirectory(file_okay=False))
@click.argument("target", metavar="DEST", type=LocalDirectory())
@connect_options("The PostgreSQL server that the store's wiring is on")
@output_options
def backup(store: str, target: str, connect: str | None, catalog: str | None, output_format: str) -> None:
    """Back up a store, also while its broker runs.

    The backup contains everything that was confirmed before it began, as of one point in time. DEST must not exist, or
    must be empty; it gets its name only when all of it is on the disk. `cairnmq restore` makes a store of it, and
    `cairnmq dump` reads it. In a backup the wiring is always an SQLite file.
    """
    begun_s = time.monotonic()
    with _interruptible("backup", target), bars() as progress:
        made, messages = back_up(store, target, SystemClock(), progress, connect, catalog)
    _say("backup", target, made, messages, time.monotonic() - begun_s, output_format)


@click.command("restore", cls=GroupedCommand)
@click.argument("source", metavar="BACKUP", type=click.Path())
@click.argument("target", metavar="STORE", type=LocalDirectory())
@connect_options("A PostgreSQL server to put the wiring on, in a new catalog", TARGET)
@output_options
def restore(source: str, target: str, connect: str | None, catalog: str | None, output_format: str) -> None:
    """Make a store from a backup.

    The backup is checked before anything is written, and the store is read back at the end. STORE must not exist, or
    be empty; it may have any name.
    """
    begun_s = time.monotonic()
    with _interruptible("restore", target), bars() as progress:
        restored, messages, queues = run_restore(source, target, progress, connect, catalog)
    _say("restored", target, restored, messages, time.monotonic() - begun_s, output_format, queues=queues)


def _say(what: str, path: str, made: Manifest, messages: int, seconds: float, output_format: str, **more: int) -> None:
    fields: dict[str, Any] = {
        what: path, "store_uuid": made.store_uuid, "time": made.time, "base_lsn": made.base_lsn,
        "end_lsn": made.end_lsn, "messages": messages, **more, "files": len(made.files), "bytes": made.total_bytes,
        "seconds": round(seconds, 3),
    }  # fmt: skip
    if not print_fields(fields, output_format):
        on_queues = counted(messages, "message")
        if "queues" in more:
            on_queues += f" on {counted(more['queues'], 'queue')}"
        size = f"{made.total_bytes / (1 << 20):.1f} MiB"
        print(f"{what} {path}: {on_queues}, LSN {made.base_lsn} to {made.end_lsn}, {size} in {seconds:.1f} s")


@contextmanager
def _interruptible(what: str, target: str) -> Iterator[None]:
    """On Ctrl-C and SIGTERM remove the incomplete target, and exit with the status that a shell expects."""
    with terminable():
        try:
            yield
        except KeyboardInterrupt as error:
            print(f"cairnmq: {what} interrupted: {target} was not made", file=sys.stderr)
            sys.exit(status_of(error))
