"""Results of commands: tables and progress bars by rich, and objects as lines."""

from __future__ import annotations

import json
import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ..options.color import console_colors
from .output import OutputConsole

_WIDTH = 160
"""The line width of output that is not a terminal."""
_STEPS = 200
"""The maximum number of updates of a progress bar per phase."""


def console() -> Console:
    """Return the console for tables, and for text without markup."""
    width = None if sys.stdout.isatty() else _WIDTH
    return OutputConsole(highlight=False, soft_wrap=True, markup=False, width=width, **console_colors())


def line(value: object) -> None:
    """Print one JSON object as a line."""
    sys.stdout.write(json.dumps(value, separators=(",", ":")) + "\n")


class Bars:
    """Progress on standard error, if that is a terminal; a total of 0 is not known."""

    def __init__(self) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}"), TimeElapsedColumn()
        stderr = Console(stderr=True)
        self._progress = Progress(*columns, console=stderr, transient=True, disable=not sys.stderr.isatty())
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, what: str, done: int, total: int) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total or None)
        if not total or done == total or done % max(1, total // _STEPS) == 0:
            self._progress.update(self._tasks[what], completed=done)
