"""Processes that read the history of the store, at most `MOST_READERS` at a time, each with a time limit.

Questions of users whom the broker reserves connections for (managers) are next, however many others wait.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterable
from typing import Any

from ..session.errors import INTERNAL, LIMIT, NOT_IMPLEMENTED, ApiError, refusal
from ..session.rooms import Room
from .places import labels_of

MOST_READERS = 2
MOST_WAITING = 16
MOST_WAITING_OF_USER = 6
QUESTION_S = 120.0
MOST_ANSWER_BYTES = 16 << 20
MOST_BYTES = min(2 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8)
"""Memory of a reader: some hundred bytes for each message of the part of the log that it reads."""


class Progress:
    """The progress of a question that runs."""

    def __init__(self, question: str) -> None:
        self.question = question
        self.stage = ""
        self.done = self.total = 0

    def update(self, line: bytes) -> None:
        """Take a line of the reader."""
        self.stage, self.done, self.total = json.loads(line)


class HistoryReaders:
    """Questions to the files of the store. Event loop only."""

    def __init__(
        self,
        store_dir: str | None,
        archive_dir: str | None,
        also: Iterable[str] = (),
        most_bytes: int = MOST_BYTES,
        url: str = "",
    ) -> None:
        """*also*: the stores of other brokers; *most_bytes*: the memory of a reader; *url*: the broker of the store."""
        self._url = url
        self._most_bytes = most_bytes
        self._store_dir = store_dir
        self._archive_dir = archive_dir
        self.others = labels_of(also, store_dir or "")
        """The stores of other brokers, by label."""
        self._room = Room(MOST_READERS, MOST_WAITING, _too_many_questions)
        self._rooms: dict[str | None, Room] = {}
        """The users with questions: of each, one is read at a time, so that others have a reader."""
        self.running: dict[str | None, Progress] = {}
        """The questions that are read, by user."""

    async def ask(self, user: str | None, question: str, *, is_manager: bool = False, **asked: Any) -> Any:
        """Return the answer. Raises `ApiError`."""
        if self._store_dir is None:
            text = "this console has no store directory; history requires --store-dir on the host of the broker"
            raise ApiError(501, NOT_IMPLEMENTED, text)
        places = {"store_dir": self._store_dir, "archive_dir": self._archive_dir, "most_bytes": self._most_bytes}
        places["url"] = self._url
        room = self._rooms.setdefault(user, Room(1, MOST_WAITING_OF_USER, _too_many_of_user))
        try:
            async with room.turn(), self._room.turn(is_preferred=is_manager):
                progress = self.running[user] = Progress(question)
                try:
                    return await _answer(json.dumps({"question": question, **places, **asked}).encode(), progress)
                finally:
                    del self.running[user]
        finally:
            if room.is_empty:
                self._rooms.pop(user, None)


def _too_many_of_user() -> ApiError:
    text = f"{MOST_WAITING_OF_USER} questions of this user about the history wait; try again later"
    return ApiError(429, LIMIT, text, 10)


def _too_many_questions() -> ApiError:
    return ApiError(503, LIMIT, f"{MOST_WAITING} questions about the history wait; try again later", 10)


async def _answer(asked: bytes, progress: Progress) -> Any:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cairnmq.console.history.worker",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=MOST_ANSWER_BYTES,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(QUESTION_S):
            process.stdin.write(asked)
            process.stdin.close()
            data = bytearray()
            while chunk := await process.stdout.read(1 << 16):
                searched = len(data)
                data += chunk
                while (end := data.find(b"\n", searched)) >= 0:  # the answer is one line without an end
                    progress.update(bytes(data[:end]))
                    del data[: end + 1]
                    searched = 0
                if len(data) > MOST_ANSWER_BYTES:
                    raise ApiError(507, LIMIT, "the answer is too large; name a queue or a shorter range")
            status = await process.wait()
    except TimeoutError as error:
        text = f"the history was not read within {QUESTION_S:g} s; name a queue or a shorter range"
        raise ApiError(503, LIMIT, text) from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if status:
        raise ApiError(500, INTERNAL, f"the reader of the history ended with status {status}; see the log")
    found = json.loads(data)
    if "status" in found:
        raise refusal(found["status"], found["text"])
    return found["found"]
