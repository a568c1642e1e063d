"""Output of the commands that read a store: on standard output, with an exit status for scripts.

0: nothing is wrong. 1: something was found, or the answer is not whole. 2: the command is wrong, or nothing could be
read. 130: Ctrl-C; 143: SIGTERM. A closed pipe (`| head`) is no error: the status is what was found by then. A full disk
is one, and what was printed by then stays.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import update_wrapper
from typing import TYPE_CHECKING, Any

from rich import progress
from rich.console import Console
from rich.text import Text

from ...base.errors import CairnError, IncompleteResult
from ...base.printable import printable, printable_json
from ..options.color import console_colors
from ..tables.human_values import raw
from ..tables.text_table import TextTable
from .csv_rows import plain, print_csv
from .signals import remembered, status_of
from .standard_streams import INCOMPLETE, discard_output
from .statuses import FOUND, UNREADABLE, error_status

if TYPE_CHECKING:
    from ...tools.inspect.journal_check import Progress

__all__ = [
    "WIDTH_IN_PIPES", "Bars", "OutputConsole", "answering", "bars", "console", "long_line_console", "output",
    "print_fields", "print_json", "print_line", "print_rows", "print_table", "print_values", "printable", "remark",
]  # fmt: skip

_INTERRUPTED = "cairnmq: interrupted"
WIDTH_IN_PIPES = 200
"""The line width for output other than to a terminal, where lines are not folded at 80 columns."""
_STEPS = 200
"""The maximum number of updates of a progress bar per phase."""
_COUNT_COLUMNS = progress.TextColumn("{task.completed}"), progress.TimeElapsedColumn()
_Command = Callable[..., Any]


def answering(command: _Command, failed: int = UNREADABLE) -> _Command:
    """Return *command* with the exit statuses described in the module. It returns its status, or None for 0.

    *failed*: the status of errors for a command that uses 2 for something else.
    """

    def wrapped(*args: Any, **options: Any) -> Any:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        with remembered() as came:
            try:
                status = command(*args, **options)
                with output(lambda: status or 0):
                    sys.stdout.flush()
            except KeyboardInterrupt as error:
                _end(_INTERRUPTED, status_of(error))
            except Exception as error:
                if came:
                    _end(_INTERRUPTED, status_of(came[0]))
                _end_with(error, failed)
        sys.exit(status or 0)

    return update_wrapper(wrapped, command)


def _end_with(error: Exception, failed: int) -> None:
    """End the process with the status described in the module; an unexpected error is a defect, and raised again."""
    if isinstance(error, CairnError):
        is_usage = error_status(error) == UNREADABLE
        status = UNREADABLE if is_usage else FOUND if isinstance(error, IncompleteResult) else failed
        _end(f"cairnmq: {error}", status)
    elif isinstance(error, BrokenPipeError):
        discard_output()
        sys.exit(0)
    elif isinstance(error, OSError):
        discard_output()
        where = f"{error.filename}: " if error.filename else "standard output: "
        _end(f"cairnmq: {where}{error.strerror}; {INCOMPLETE}", failed)
    raise error


@contextmanager
def output(status: Callable[[], int]) -> Iterator[None]:
    """While something is printed: who reads it may have seen enough, which ends the program with *status*."""
    try:
        yield
    except BrokenPipeError:
        discard_output()
        sys.exit(status())


def _end(text: str, status: int) -> None:
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()
    print(printable(text), file=sys.stderr)
    sys.exit(status)


def remark(verb: str, text: str) -> None:
    """Prints a remark on standard error."""
    print(f"cairnmq {verb}: {printable(text)}", file=sys.stderr)


def print_json(value: object) -> None:
    """Print one JSON document."""
    sys.stdout.write(printable_json(json.dumps(value, ensure_ascii=False, indent=1)) + "\n")


def print_line(value: object) -> None:
    """Print one JSON object as a line."""
    sys.stdout.write(json.dumps(value, separators=(",", ":")) + "\n")


def print_rows(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], output_format: str, document: object = None
) -> bool:
    """Print *document*, or else the rows, in JSON; or the rows in CSV or raw. Return False for a table."""
    if output_format == "json":
        print_json(rows if document is None else document)
        return True
    return print_values(rows, columns, output_format)


def print_values(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], output_format: str) -> bool:
    """Print the rows in CSV, or as a table of unformatted values; return False for another format."""
    if output_format == "csv":
        print_csv(columns, rows)
    elif output_format == "raw":
        print_table(([(raw(plain(row.get(name))), "") for name in columns] for row in rows), columns, is_raw=True)
    return output_format in ("csv", "raw")


def print_fields(fields: Mapping[str, Any], output_format: str, name: str = "") -> bool:
    """Print one object for programs, in JSON or CSV; return False for a table.

    *name*: the name of the object on a line of JSON; without one it is a document.
    """
    if name and output_format == "json":
        print_line({name: fields})
        return True
    return print_rows([fields], tuple(fields), output_format, fields)


def print_table(
    rows: Iterable[Iterable[tuple[str, str]]], columns: Sequence[str] = (), *, prose: Sequence[str] = (),
    is_raw: bool = False,
) -> None:  # fmt: skip
    """Print rows of texts with their styles, below the names of the columns if there are any."""
    table = TextTable(*columns, prose=prose if columns else ("",), raw=is_raw)
    for row in rows:
        table.add_row(*(Text(text, style) for text, style in row))
    console().print(table, soft_wrap=is_raw)


class OutputConsole(Console):
    """A console on standard output. A closed pipe does not make rich end the program with a status that means damage.
    """

    def on_broken_pipe(self) -> None:
        self.quiet = True
        discard_output()


def console() -> Console:
    """Return the console for tables on standard output."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else WIDTH_IN_PIPES
    return OutputConsole(width=width, highlight=False, markup=False, emoji=False, **console_colors())


def long_line_console() -> Console:
    """Return the console for tables, and for text whose lines are not folded."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else WIDTH_IN_PIPES
    return OutputConsole(highlight=False, soft_wrap=True, markup=False, width=width, **console_colors())


class Bars:
    """Progress on standard error, if that is a terminal; a total of 0 is not known."""

    def __init__(self, *columns: progress.ProgressColumn) -> None:
        """*columns*: the columns behind the bar; by default the count and the time."""
        shown = progress.TextColumn("{task.description}"), progress.BarColumn(), *(columns or _COUNT_COLUMNS)
        stderr = Console(stderr=True)
        self._progress = progress.Progress(*shown, console=stderr, transient=True, disable=not sys.stderr.isatty())
        self._tasks: dict[str, progress.TaskID] = {}
        self._shown: dict[str, int] = {}

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, what: str, done: int, total: int) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total or None)
        if not total or done == total or (done - self._shown.get(what, 0)) * _STEPS >= total:
            self._shown[what] = done
            self._progress.update(self._tasks[what], completed=done)


@contextmanager
def bars() -> Iterator[Progress]:
    """Show a progress bar in bytes for each phase."""
    with Bars(progress.DownloadColumn(binary_units=True), progress.TimeRemainingColumn()) as shown:
        yield shown.show
