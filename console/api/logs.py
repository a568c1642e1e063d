"""The end of the broker's log file, and its configuration; both for administrators only."""

from __future__ import annotations

import asyncio
import json
import os
import re
from datetime import datetime
from typing import Any

from ..session.errors import NOT_IMPLEMENTED, ApiError
from ..session.options import ConsoleOptions
from ..session.sessions import BrowserSession
from .access import may_manage, require_manager
from .endpoint import LIST_QUERY, ApiCall, Endpoint, Field
from .lists import page_of

MOST_BYTES = 512 << 10
MOST_LINES = 2000
_TEXT = re.compile(r"(?P<time>\d{4}-\S+Z) (?P<level>[A-Z]+) (?P<rest>.*)", re.S)
_EVENT = re.compile(r"([a-z][a-z0-9-]*(?:\.[a-z0-9-]+)+) (.*)", re.S)


class LogTail:
    """Reads of the log file. Any thread."""

    def __init__(self, path: str | None) -> None:
        self._path = path

    def end(self) -> int:
        """Return the size of the file."""
        try:
            return os.stat(self._path).st_size if self._path else 0
        except OSError:
            return 0

    async def may_read(self, session: BrowserSession) -> bool:
        return self._path is not None and await may_manage(session)

    def after(self, offset: int) -> tuple[list[dict[str, Any]], int]:
        """Return the complete lines behind *offset*, at most the last `MOST_LINES`, and the offset behind them."""
        if self._path is None:
            raise ApiError(501, NOT_IMPLEMENTED, "the log is not in a file: start the broker with --log-file")
        try:
            with open(self._path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                begin = offset if 0 <= offset <= size else 0  # the file was rotated
                begin = max(begin, size - MOST_BYTES)
                file.seek(begin)
                data = file.read(MOST_BYTES)
        except OSError as error:
            raise ApiError(501, NOT_IMPLEMENTED, f"the log can't be read: {error.strerror}; see --log-file") from error
        complete = data[: data.rfind(b"\n") + 1]
        end = begin + len(complete)
        items = []
        at = begin
        for number, line in enumerate(complete.split(b"\n")[:-1]):
            if not (number == 0 and begin not in (0, offset)):
                items.append(parsed(at, line.decode(errors="replace")))
            at += len(line) + 1
        return items[-MOST_LINES:], end


def parsed(offset: int, line: str) -> dict[str, Any]:
    """Return the parts of a log line in the formats `text` and `json`; other lines are texts."""
    found: dict[str, Any] = {"id": offset, "time": None, "level": "info", "event": None, "text": line}
    if line.startswith("{"):
        try:
            record = json.loads(line)
            moment = record.get("time") or record.get("timestamp")
            found |= {"time": _ms(str(moment)), "level": str(record.get("level", "info")).lower()}
            found |= {"event": record.get("event"), "text": str(record.get("message", record.get("text", line)))}
        except (ValueError, AttributeError):
            pass
        return found
    match = _TEXT.match(line)
    if match:
        event = _EVENT.match(match["rest"])
        found |= {"time": _ms(match["time"]), "level": match["level"].lower()}
        found |= {"event": event[1], "text": event[2]} if event else {"text": match["rest"]}
    return found


def _ms(text: str) -> int | None:
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return None


class BrokerFiles:
    """Endpoints of the log and of the configuration."""

    def __init__(self, options: ConsoleOptions, logs: LogTail) -> None:
        self._options = options
        self._logs = logs

    async def list_lines(self, call: ApiCall) -> Any:
        await require_manager(call.session)
        lines, end = await asyncio.to_thread(self._logs.after, call.query["after"])
        return {"items": lines, "next": end}

    async def list_options(self, call: ApiCall) -> Any:
        await require_manager(call.session)
        if not self._options.configuration:
            raise ApiError(501, NOT_IMPLEMENTED, "only the console that the broker starts knows its options")
        rows = [{"name": one["option"], **one} for one in self._options.configuration]
        return page_of(rows, call.query, ("name", "value", "source"))

    def endpoints(self) -> tuple[Endpoint, ...]:
        return (
            Endpoint(
                "GET", "/logs", "Show the end of the broker's log", self.list_lines,
                query={"after": Field("integer", "The `next` of the previous response.", default=0)},
            ),
            Endpoint(
                "GET", "/configuration", "List the options of the broker", self.list_options, LIST_QUERY, result="list"
            ),
        )  # fmt: skip
