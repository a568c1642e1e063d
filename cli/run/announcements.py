"""Announcements of a broker while it starts and stops: lines on standard output, or JSON records of the log."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import click

from ...base.errors import CairnError
from ...base.printable import printable
from ..common.signals import status_of
from ..store.log import begin_log

Announce = Callable[[str, str], None]
"""Takes the name of an event and a text."""
_log = logging.getLogger("cairnmq.broker")


def announcer(log_format: str) -> Announce:
    """With the log format `json`, every line of the broker is a JSON object on standard error, with `event`."""
    return _logged if log_format == "json" else _printed


def _logged(event: str, text: str) -> None:
    _log.info("%s", text, extra={"event": event})


def _printed(event: str, text: str) -> None:
    try:
        print(f"{printable(text)}\n", end="", flush=True)  # one write: log lines of other threads come between two
    except BrokenPipeError:  # the reader has closed the pipe: the broker runs on, and stops in order
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def reporting_errors(command: Callable[..., None]) -> Callable[..., None]:
    """The command, which begins the log first. With the log format `json` the error that ends it is a record, too.

    Errors of the command line stay text: its options were not read when they occur.
    """

    def wrapped(*, log_format: str, verbose: bool, **options: Any) -> None:
        begin_log(log_format, verbose=verbose)
        options |= {"log_format": log_format, "verbose": verbose}
        if log_format == "json":
            _run_logged(lambda: command(**options))
        else:
            command(**options)

    return update_wrapper(wrapped, command)


def _run_logged(run: Callable[[], None]) -> None:
    try:
        run()
    except click.ClickException:
        raise
    except CairnError as error:
        _log.error("%s", error, extra={"event": "broker.failed"})
        sys.exit(1)
    except KeyboardInterrupt as error:
        _log.warning("interrupted", extra={"event": "broker.failed"})
        sys.exit(status_of(error))
    except Exception:
        _log.exception("internal error", extra={"event": "broker.failed"})
        sys.exit(1)
