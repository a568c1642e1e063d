"""Signals of a command: Ctrl-C, SIGTERM and SIGHUP raise `KeyboardInterrupt`, so that no temporary files are left.

Handlers are changed only in the main thread; in other threads these functions have no effect. Ignored signals stay so.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]
ENDING = (signal.SIGINT, signal.SIGTERM)


class Ended(KeyboardInterrupt):
    """A signal with the effect of Ctrl-C, and an exit status of its own."""


def status_of(error: KeyboardInterrupt) -> int:
    """The exit status that a shell expects of a program ended by that signal."""
    return 128 + (error.args[0] if isinstance(error, Ended) else signal.SIGINT)


@contextmanager
def replaced(numbers: tuple[signal.Signals, ...], made_of: Callable[[Any], Handler | None]) -> Iterator[None]:
    """Each of these has the handler that *made_of* makes of the one before, or that one if it makes none."""
    before: dict[signal.Signals, Any] = {}
    if current_thread() is main_thread():
        for number in numbers:
            old = signal.getsignal(number)
            new = made_of(old)
            if new is not None:
                before[number] = old
                signal.signal(number, new)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP raise `Ended`, unless they mean something else already."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Ended(number)

    with replaced((signal.SIGTERM, signal.SIGHUP), lambda before: end if before == signal.SIG_DFL else None):
        yield


@contextmanager
def interrupting(interrupt: Callable[[], None]) -> Iterator[None]:
    """Signals that raise have *interrupt* called before: for C code that may swallow what is raised within it."""

    def made_of(before: Any) -> Handler | None:
        def received(number: int, frame: FrameType | None) -> None:
            interrupt()
            before(number, frame)

        return received if callable(before) else None

    with replaced(ENDING, made_of):
        yield


@contextmanager
def remembered() -> Iterator[list[KeyboardInterrupt]]:
    """Ctrl-C and SIGTERM raise, and are remembered: out of C code they may come as any other error."""
    came: list[KeyboardInterrupt] = []

    def made_of(before: Any) -> Handler | None:
        def remember(number: int, frame: FrameType | None) -> None:
            try:
                before(number, frame)
            except KeyboardInterrupt as error:
                came.append(error)
                raise

        return remember if callable(before) else None

    with terminable(), replaced(ENDING, made_of):
        yield came
