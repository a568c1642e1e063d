"""The broker's log on standard error: lines for people, or a JSON object per line for programs.

In either format a record is one line, and no character in it can start another record or control a terminal: client
names, addresses and error texts come from outside. The lines of a traceback are indented.

With `json` an object has `time` (RFC 3339, UTC), `level`, `logger` and `message`; `error` if there was one; what the
message is about, as far as it says so (`connection`, `link`, `queue`); and `event` with its fields for audit records.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from ...base.printable import printable, printable_json

ABOUT = ("connection", "link", "queue", "event")
"""Given to the log by `extra`; `fields` are more of an event's."""


class TextFormatter(logging.Formatter):
    """One line, and an indented traceback if there is one."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei: object) -> str:
        return _indented(super().formatException(ei))  # type: ignore[arg-type]

    def formatStack(self, stack_info: str) -> str:
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    return "\n".join(f"    {printable(line)}" for line in text.split("\n"))


class JsonFormatter(logging.Formatter):
    """One object, in one line whatever the message has in it."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        told |= {name: getattr(record, name) for name in ABOUT if hasattr(record, name)}
        told |= getattr(record, "fields", {})
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return printable_json(json.dumps(told, ensure_ascii=False, default=str))


def begin_log(kind: str, *, verbose: bool) -> None:
    """Log to standard error from now on."""
    level = logging.DEBUG if verbose else logging.INFO
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(level)  # an audit file makes its logger say more than the log is to have
    handler.setFormatter(JsonFormatter() if kind == "json" else TextFormatter())
    logging.basicConfig(level=level, handlers=[handler])
    logging.getLogger("alembic").setLevel(logging.WARNING)
