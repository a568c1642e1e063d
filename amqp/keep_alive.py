"""Long tasks in programs with a `BlockingConnection` of Proton, which sends heartbeats only while it is called."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

from proton import Timeout

T = TypeVar("T")
MOST_PERIOD_S = 5.0
_SERVICE_S = 0.05


def keep_alive(connection: Any, function: Callable[..., T], *arguments: Any) -> T:
    """Return `function(*arguments)`, which runs in a thread, and keep *connection* alive meanwhile.

    The function must not use the connection. Raises the error of the function, or `proton.ConnectionException` if the
    connection was lost: the broker then delivers unsettled messages again.
    """
    job: Future[T] = Future()
    Thread(target=_run, args=(job, function, arguments), name="task", daemon=True).start()
    expected_s = connection.conn.transport.remote_idle_timeout
    period_s = min(MOST_PERIOD_S, expected_s / 4) if expected_s else MOST_PERIOD_S
    while not wait([job], period_s).done:
        with suppress(Timeout):
            connection.wait(job.done, timeout=_SERVICE_S)
    return job.result()


def _run(job: Future[T], function: Callable[..., T], arguments: tuple[Any, ...]) -> None:
    try:
        job.set_result(function(*arguments))
    except BaseException as error:  # raised again by the caller's thread
        job.set_exception(error)
