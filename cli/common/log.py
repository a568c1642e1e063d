"""The broker's log: text for people, logfmt, or a JSON object per line.

In each format a record is one line, and no character in it can start another record or control a terminal: client
names, addresses and error texts come from outside. The lines of a traceback are indented.

A text line is `TIME LEVEL EVENT MESSAGE`, with the time in UTC (ISO 8601). Logfmt and JSON have `time`, `level`,
`event`, `logger` and `message`; `error` if there was one; what the message is about (`connection`, `link`, `queue`);
and the fields of the event. The event of a record without a name of its own is the layer that logs, such as `router`.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from typing import Any

from ...base.errors import CairnError, InvalidOption
from ...base.printable import printable, printable_json
from .standard_streams import discard_output
from .statuses import PASSING

ABOUT = ("connection", "link", "queue")
"""Given to the log by `extra`; `fields` are more of an event's."""
_PLAIN = re.compile(r"[!#-<>-~]+")
"""Values that logfmt needs not quote."""


def event_of(record: logging.LogRecord) -> str:
    """Return the event name of a record."""
    event = getattr(record, "event", None)
    if event is not None:
        return str(event)
    first, *more = record.name.split(".")
    return more[0] if first == "cairnmq" and more else first


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class TextFormatter(logging.Formatter):
    """A format with one line, and an indented traceback if the record has one."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        head = f"{_time(record).replace('+00:00', 'Z')} {record.levelname} {event_of(record)}"
        return f"{head} {printable(record.message)}"

    def formatException(self, ei: object) -> str:
        return _indented(super().formatException(ei))  # type: ignore[arg-type]

    def formatStack(self, stack_info: str) -> str:
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    return "\n".join(f"    {printable(line)}" for line in text.split("\n"))


class _FieldsFormatter(logging.Formatter):
    """A format with one line of named fields, regardless of the content of the message."""

    def fields_of(self, record: logging.LogRecord) -> dict[str, object]:
        reported: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "event": event_of(record),
            "logger": record.name,
            "message": record.getMessage(),
        }
        reported |= {name: getattr(record, name) for name in ABOUT if hasattr(record, name)}
        reported |= getattr(record, "fields", {})
        if record.exc_info:
            reported["error"] = self.formatException(record.exc_info)
        return reported


class JsonFormatter(_FieldsFormatter):
    """A format with one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        return printable_json(json.dumps(self.fields_of(record), ensure_ascii=False, default=str))


class LogfmtFormatter(_FieldsFormatter):
    """Pairs of name and value; values with spaces, quotes or control characters are quoted as in JSON."""

    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{name}={_logfmt(value)}" for name, value in self.fields_of(record).items())


def _logfmt(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if _PLAIN.fullmatch(text) else printable_json(json.dumps(text, ensure_ascii=False))


FORMATTERS = {"text": TextFormatter, "json": JsonFormatter, "logfmt": LogfmtFormatter}


class _Output(logging.StreamHandler[Any]):
    """Announcements on standard output. If the reader closes the pipe, the broker runs on."""

    def filter(self, record: logging.LogRecord) -> bool:
        return getattr(record, "is_announced", False)

    def handleError(self, record: logging.LogRecord) -> None:
        discard_output()


class _File(WatchedFileHandler):
    """A log file. A file that was renamed or deleted is created again, so that it can be rotated."""

    _has_failed = False

    def handleError(self, record: logging.LogRecord) -> None:
        """Report the first failure, such as a full disk, on standard error; the broker continues to run."""
        if not self._has_failed:
            self._has_failed = True
            print(f"cairnmq: --log-file {self.baseFilename}: can't be written: {sys.exc_info()[1]}", file=sys.stderr)


def begin_log(kind: str, level: str, path: str = "") -> None:
    """Log from now on: to the file at *path*, or JSON to standard error, or else to both standard streams.

    Raises `InvalidOption` if the file can't be written at its place, and `CairnError` for errors that pass.
    """
    handlers: list[logging.Handler]
    if path:
        try:
            handlers = [_File(path, encoding="utf-8", errors="backslashreplace")]
        except OSError as error:
            kind_of_error = CairnError if error.errno in PASSING else InvalidOption
            reason = f"can't be written: {error.strerror}"
            raise kind_of_error(f"--log-file {path}", reason, "name a file in a directory of this user") from error
    elif kind == "json":
        handlers = [logging.StreamHandler(sys.stderr)]
    else:
        handlers = [_Output(sys.stdout), logging.StreamHandler(sys.stderr)]
        handlers[1].addFilter(lambda record: not getattr(record, "is_announced", False))
    for handler in handlers:
        handler.setFormatter(FORMATTERS[kind]())
    logging.basicConfig(handlers=handlers)
    set_level(level)
    logging.getLogger("alembic").setLevel(logging.WARNING)


def set_level(level: str) -> None:
    """Log records of this level and above. An audit file makes its logger send lower levels to the handlers."""
    root = logging.getLogger()
    root.setLevel(level.upper())
    for handler in root.handlers:
        handler.setLevel(level.upper())
