"""The broker's log on standard error: lines for people, or a JSON object per line for programs.

With `json` an object has `time` (RFC 3339, UTC), `level`, `logger` and `message`; `error` if there was one; and what
the message is about, as far as it says so: `connection`, `link`, `queue`.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

ABOUT = ("connection", "link", "queue")
"""Given to the log by `extra`."""


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
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False, default=str)


def begin_log(kind: str, *, verbose: bool) -> None:
    """Log to standard error from now on."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonFormatter() if kind == "json" else text)
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])
    logging.getLogger("alembic").setLevel(logging.WARNING)
