"""How the commands that look at a store answer: on standard output, with a status that scripts can tell apart.

0: nothing is wrong. 1: something was found. 2: the command is wrong, or nothing could be read. 130: Ctrl-C.
A closed pipe (`| head`) is no error. A full disk is one, and what was printed by then stays.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from threading import Event, current_thread, main_thread
from types import FrameType
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from ..base.errors import CairnError
from ..tools.checking import Progress

FOUND, UNREADABLE = 1, 2
_INTERRUPTED = "cairnmq: interrupted"
WIDTH_IN_PIPES = 200
"""Where nobody looks, lines are not folded at 80."""
_Command = Callable[..., Any]


def answering(command: _Command) -> _Command:
    """The command, ended as the module says. It returns its status, or None for 0."""

    def wrapped(*args: Any, **options: Any) -> Any:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        with _ctrl_c() as came:
            try:
                status = command(*args, **options)
                sys.stdout.flush()
            except KeyboardInterrupt:
                _end(_INTERRUPTED, 128 + signal.SIGINT)
            except Exception as error:
                if came.is_set():
                    _end(_INTERRUPTED, 128 + signal.SIGINT)
                _end_with(error)
        sys.exit(status or 0)

    return update_wrapper(wrapped, command)


def _end_with(error: Exception) -> None:
    """As the module says; what is none of these errors is a defect, and raised again."""
    if isinstance(error, CairnError):
        _end(f"cairnmq: {error}", UNREADABLE)
    elif isinstance(error, BrokenPipeError):
        _forget_output()
        sys.exit(0)
    elif isinstance(error, OSError):
        _forget_output()
        where = f"{error.filename}: " if error.filename else "standard output: "
        _end(f"cairnmq: {where}{error.strerror}; what stands there is not all", UNREADABLE)
    raise error


@contextmanager
def _ctrl_c() -> Iterator[Event]:
    """Ctrl-C does what it did before, and is remembered: out of C code it may come as any other error."""
    came = Event()
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or current_thread() is not main_thread():  # nobody wants it, or it does not come here
        yield came
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        came.set()
        before(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)


def _end(text: str, status: int) -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _forget_output()
    print(text, file=sys.stderr)
    sys.exit(status)


def _forget_output() -> None:
    """What is buffered must not fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_json(value: object) -> None:
    """One document."""
    json.dump(value, sys.stdout, ensure_ascii=False, indent=1)
    sys.stdout.write("\n")


def console() -> Console:
    """For tables on standard output."""
    return Console(width=None if sys.stdout.isatty() else WIDTH_IN_PIPES, highlight=False, markup=False, emoji=False)


def printable(text: str) -> str:
    """Names and bodies are others': nothing in them may steer the terminal."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


@contextmanager
def bars() -> Iterator[Progress]:
    """A bar for each thing that is done one after another, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as shown:
        tasks: dict[str, TaskID] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = shown.add_task(what, total=total)
            shown.update(tasks[what], completed=done, total=total)

        yield tell


def store_argument(command: _Command) -> _Command:
    """STORE, a store directory."""
    return click.argument("store", metavar="STORE", type=click.Path())(command)
