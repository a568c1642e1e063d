"""How the commands that look at a store answer: on standard output, with a status that scripts can tell apart.

0: nothing is wrong. 1: something was found, or the answer is not whole. 2: the command is wrong, or nothing could be
read. 130: Ctrl-C; 143: SIGTERM. A closed pipe (`| head`) is no error: the status is what was found by then. A full disk
is one, and what was printed by then stays.
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
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from ..base.errors import CairnError, NotWhole
from ..tools.checking import Progress
from ..tools.lines import printable

__all__ = [
    "FOUND", "UNREADABLE", "WIDTH_IN_PIPES", "Shown", "WrongCall", "answering", "bars", "console", "interrupting",
    "output", "print_json", "printable", "remark", "status_of", "store_argument", "terminable",
]  # fmt: skip

FOUND, UNREADABLE = 1, 2
_INTERRUPTED = "cairnmq: interrupted"
WIDTH_IN_PIPES = 200
"""Where nobody looks, lines are not folded at 80."""
_Command = Callable[..., Any]


class WrongCall(CairnError):
    """An option is wrong, and that is told in one line; the status is 2."""


def answering(command: _Command, failed: int = UNREADABLE) -> _Command:
    """The command, ended as the module says. It returns its status, or None for 0.

    *failed* is for what gives other things a status, and another one to errors than 2.
    """

    def wrapped(*args: Any, **options: Any) -> Any:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        with _signals() as came:
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
    """As the module says; what is none of these errors is a defect, and raised again."""
    if isinstance(error, CairnError):
        _end(f"cairnmq: {error}", FOUND if isinstance(error, NotWhole) else failed)
    elif isinstance(error, BrokenPipeError):
        _forget_output()
        sys.exit(0)
    elif isinstance(error, OSError):
        _forget_output()
        where = f"{error.filename}: " if error.filename else "standard output: "
        _end(f"cairnmq: {where}{error.strerror}; what stands there is not all", failed)
    raise error


class Ended(KeyboardInterrupt):
    """A signal that is heard as Ctrl-C is, and has a status of its own."""


def status_of(error: KeyboardInterrupt) -> int:
    """What a shell expects of a program that ended so."""
    return 128 + (error.args[0] if isinstance(error, Ended) else signal.SIGINT)


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP raise `Ended`, so that nothing is left behind; unless they mean something else already."""
    if current_thread() is not main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise Ended(number)

    heard = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) == signal.SIG_DFL]
    for number in heard:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def interrupting(interrupt: Callable[[], None]) -> Iterator[None]:
    """Signals that raise have *interrupt* called before: for C code that may swallow what is raised within it."""
    if current_thread() is not main_thread():
        yield
        return
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}

    def heard(number: int, frame: FrameType | None) -> None:
        interrupt()
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    changed = [number for number, handler in before.items() if callable(handler)]
    for number in changed:
        signal.signal(number, heard)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, before[number])


@contextmanager
def _signals() -> Iterator[list[KeyboardInterrupt]]:
    """Ctrl-C and SIGTERM raise, and are remembered: out of C code they may come as any other error."""
    came: list[KeyboardInterrupt] = []
    if current_thread() is not main_thread():
        yield came
        return
    with terminable():
        before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}

        def remember(number: int, frame: FrameType | None) -> None:
            handler = before[signal.Signals(number)]
            try:
                assert callable(handler)
                handler(number, frame)
            except KeyboardInterrupt as error:
                came.append(error)
                raise

        heard = [one for one, handler in before.items() if callable(handler)]  # what is ignored stays so
        for number in heard:
            signal.signal(number, remember)
        try:
            yield came
        finally:
            for number in heard:
                signal.signal(number, before[number])


@contextmanager
def output(status: Callable[[], int]) -> Iterator[None]:
    """While something is printed: who reads it may have seen enough, which ends the program with *status*."""
    try:
        yield
    except BrokenPipeError:
        _forget_output()
        sys.exit(status())


def _end(text: str, status: int) -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _forget_output()
    print(printable(text), file=sys.stderr)
    sys.exit(status)


def _forget_output() -> None:
    """What is buffered must not fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def remark(verb: str, text: str) -> None:
    """What is worth knowing beside, on standard error."""
    print(f"cairnmq {verb}: {printable(text)}", file=sys.stderr)


def print_json(value: object) -> None:
    """One document."""
    json.dump(value, sys.stdout, ensure_ascii=False, indent=1)
    sys.stdout.write("\n")


class Shown(Console):
    """On standard output. A pipe that closes ends no program from inside of rich, with a status that means damage."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        _forget_output()


def console() -> Console:
    """For tables on standard output."""
    return Shown(width=None if sys.stdout.isatty() else WIDTH_IN_PIPES, highlight=False, markup=False, emoji=False)


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
