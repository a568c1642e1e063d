"""Announcements of a broker while it starts, reloads and stops: records of the log with stable event names."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import click

from ...base.errors import CairnError
from ..common.log import begin_log
from ..common.signals import status_of
from ..common.statuses import error_status

_log = logging.getLogger("cairnmq.broker")


def announce(event: str, text: str, level: int = logging.INFO) -> None:
    """Log a lifecycle event. In text and logfmt it goes to standard output, unless there is a log file."""
    _log.log(level, "%s", text, extra={"event": event, "is_announced": True})


def reporting_errors(command: Callable[..., None]) -> Callable[..., None]:
    """The command, which begins the log first. The error that ends it is a record of a log that is not a terminal's.

    Errors of the command line stay text: its options were not read when they occur.
    """

    def wrapped(*, log_format: str, log_file: str | None, log_level: str, verbose: bool, **options: Any) -> None:
        begin_log(log_format, "debug" if verbose else log_level, log_file or "")
        options |= {"log_format": log_format, "log_file": log_file, "log_level": log_level, "verbose": verbose}
        if log_file or log_format != "text":
            _run_logged(lambda: command(**options), has_file=bool(log_file))
        else:
            command(**options)

    return update_wrapper(wrapped, command)


def _run_logged(run: Callable[[], None], *, has_file: bool) -> None:
    """Log the error that ends *run*; with a log file it is raised again, for standard error."""
    try:
        run()
    except click.ClickException:
        raise
    except CairnError as error:
        _log.error("%s", error, extra={"event": "broker.failed"})
        if has_file:
            raise
        sys.exit(error_status(error))
    except KeyboardInterrupt as error:
        _log.warning("interrupted", extra={"event": "broker.failed"})
        sys.exit(status_of(error))
    except Exception:
        _log.exception("internal error", extra={"event": "broker.failed"})
        sys.exit(1)
