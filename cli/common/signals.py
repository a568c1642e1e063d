"""Signals of a command: Ctrl-C, SIGTERM and SIGHUP raise `KeyboardInterrupt`, so that no temporary files are left.

Handlers are changed only in the main thread; in other threads these functions have no effect. Ignored signals stay so.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from tempfile import TemporaryDirectory
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

Handler = Callable[[Any, int, FrameType | None], None]
"""A handler that gets the previous one, the signal and the frame."""
ENDING = (signal.SIGINT, signal.SIGTERM)


class Ended(KeyboardInterrupt):
    """A signal with the effect of Ctrl-C, and an exit status of its own."""


def status_of(error: KeyboardInterrupt) -> int:
    """The exit status that a shell expects of a program ended by that signal."""
    return 128 + (error.args[0] if isinstance(error, Ended) else signal.SIGINT)


@contextmanager
def replaced(
    numbers: tuple[signal.Signals, ...], handler: Handler, applies: Callable[[Any], bool] = callable
) -> Iterator[None]:
    """Install *handler* for those signals whose previous handler satisfies *applies*; it receives that handler, too."""
    before: dict[signal.Signals, Any] = {}
    if current_thread() is main_thread():
        for number in numbers:
            old = signal.getsignal(number)
            if applies(old):
                before[number] = old
                signal.signal(number, partial(handler, old))
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP raise `Ended`, unless they mean something else already."""

    def end(before: Any, number: int, frame: FrameType | None) -> None:
        raise Ended(number)

    with replaced((signal.SIGTERM, signal.SIGHUP), end, lambda before: bool(before == signal.SIG_DFL)):
        yield


@contextmanager
def temporary_directory(prefix: str) -> Iterator[str]:
    """Create a temporary directory that no signal leaves behind: `ENDING` wait until its removal is certain."""
    with ExitStack() as cleanup:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            place = cleanup.enter_context(TemporaryDirectory(prefix=prefix))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield place


@contextmanager
def interrupting(interrupt: Callable[[], None]) -> Iterator[None]:
    """Signals that raise have *interrupt* called before: for C code that may swallow what is raised within it."""

    def received(before: Any, number: int, frame: FrameType | None) -> None:
        interrupt()
        before(number, frame)

    with replaced(ENDING, received):
        yield


@contextmanager
def remembered() -> Iterator[list[KeyboardInterrupt]]:
    """Ctrl-C and SIGTERM raise, and are remembered: out of C code they may come as any other error."""
    came: list[KeyboardInterrupt] = []

    def remember(before: Any, number: int, frame: FrameType | None) -> None:
        try:
            before(number, frame)
        except KeyboardInterrupt as error:
            came.append(error)
            raise

    with terminable(), replaced(ENDING, remember):
        yield came
