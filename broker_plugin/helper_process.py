"""A process beside the broker, which reads the log's files to make column indexes or exports; nothing waits for it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from typing import Any

from .options import BrokerOptions

log = logging.getLogger(__name__)

END_S = 10.0
"""Seconds that a process has to finish its work at the end."""


class HelperProcess:
    """A process that ends with the broker, however that ends: its standard input is closed then. Any thread."""

    def __init__(self, what: str, module: str, arguments: list[str], connect: str | None = None) -> None:
        """*what*: the product of the process; *connect*: the SQL server with the names of queues."""
        self._what = what
        environment = os.environ if connect is None else {**os.environ, "CAIRNMQ_CONNECT": connect}
        # in a session of its own, so that the broker ends it, and not Ctrl-C before
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE, start_new_session=True, env=environment
        )
        self._is_stopping = False
        threading.Thread(target=self._watch, name=f"cairnmq-{what}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """End the process after its present work, or by force after a time limit."""
        self._is_stopping = True
        end_process(self._process, END_S)

    def _watch(self) -> None:
        status = self._process.wait()
        if not self._is_stopping:
            text = "no more %s are written: their process ended with status %d; restart the broker"
            log.warning(text, self._what, status, extra={"event": "broker.helper-ended"})


def end_process(process: subprocess.Popen[Any], wait_s: float) -> None:
    """End a process by closing its standard input, or by force after a time limit."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def helper_processes(options: BrokerOptions) -> list[HelperProcess]:
    """Start the processes that *options* request, and return them."""
    archive = options.store.archive_dir or ""
    found = []
    if options.sidecars is not None:
        arguments = [options.store_dir, sidecar_dir(options), archive, str(options.sidecars.most_bytes)]
        found.append(HelperProcess("sidecars", "cairnmq.analytics.sidecars.keeper", arguments))
    if options.export is not None:
        chosen = options.export
        arguments = [options.store_dir, chosen.target, chosen.kind, archive, str(chosen.every_s)]
        arguments.append(options.store.catalog or "")
        found.append(HelperProcess("exports", "cairnmq.analytics.export.keeper", arguments, options.store.connect))
    return found


def sidecar_dir(options: BrokerOptions) -> str:
    """Return the directory of the column indexes that *options* request; empty for none."""
    chosen = options.sidecars
    return "" if chosen is None else chosen.directory or os.path.join(options.store_dir, "sidecars")
