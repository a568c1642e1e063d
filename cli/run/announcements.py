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
from .settings import BrokerSettings

_log = logging.getLogger("cairnmq.broker")


def announce(event: str, text: str, level: int = logging.INFO) -> None:
    """Log a lifecycle event. In text and logfmt it goes to standard output, unless there is a log file."""
    _log.log(level, "%s", text, extra={"event": event, "is_announced": True})


def reporting_errors(command: Callable[[BrokerSettings], None]) -> Callable[..., None]:
    """The command, which begins the log first. The error that ends it is a record of a log that is not a terminal's.

    Errors of the command line stay text: its options were not read when they occur.
    """

    def wrapped(**values: Any) -> None:
        given = BrokerSettings(**values)
        begin_log(given.log_format, "debug" if given.verbose else given.log_level, given.log_file or "")
        if given.log_file or given.log_format != "text":
            _run_logged(lambda: command(given), has_file=bool(given.log_file))
        else:
            command(given)

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
