"""Records of a soak that its clients write as they act, for the checker of the guarantees of the broker.

A client appends its events to a file of its own, one JSON list a line: the name of the event, then its fields. An
intended action is in the file before the bytes that perform it leave the process. A file therefore contains at least
what the broker can know, even of a client that was killed. Times are `time.monotonic_ns()`, one clock for all
processes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, get_args


class Sent(NamedTuple):
    """A message is about to be sent, for the only time."""

    message: str
    queue: str
    sender: str
    number: int
    """The number of the message, increasing for the messages of one sender to one queue."""
    life: int
    at: int
    digest: str
    txn: str = ""
    """The transaction in which it is sent, if it is in one."""


class Confirmed(NamedTuple):
    """The broker settled a message as accepted."""

    message: str
    at: int


class Refused(NamedTuple):
    """The broker settled a message with another outcome, or none."""

    message: str
    at: int
    state: int


class Got(NamedTuple):
    """A receiver has a whole message. A *session* is one link of one receiver, a *life* one process of the broker."""

    message: str
    """Empty if no id can be read from it."""
    queue: str
    session: str
    life: int
    at: int
    digest: str
    marked: bool
    """True if the message is marked as possibly delivered before."""


class Answered(NamedTuple):
    """A receiver is about to give a message an outcome."""

    message: str
    queue: str
    session: str
    life: int
    at: int
    outcome: str
    """`taken` if the broker is to delete the message (accepted, rejected), `returned` if not (released, modified)."""
    txn: str = ""
    """The transaction with which that is to happen."""


class Asked(NamedTuple):
    """A client is about to ask for the end of a transaction."""

    txn: str
    at: int
    commit: bool


class Decided(NamedTuple):
    """The broker did what it was asked. Beside a commit stand `Confirmed` and `Settled` of all that was in it."""

    txn: str
    at: int
    commit: bool


class Settled(NamedTuple):
    """The broker settled a message that was answered `taken`: its consumption is confirmed."""

    message: str
    queue: str
    session: str
    life: int
    at: int


class Ended(NamedTuple):
    """A receiver is about to end a session; all it sent before was on its way, unless the session is *lost*."""

    queue: str
    session: str
    life: int
    at: int
    lost: bool


class Died(NamedTuple):
    """A client is about to be killed; its sessions are called CLIENT/..."""

    client: str
    life: int
    at: int


class Stopped(NamedTuple):
    """The broker is about to be asked to end in good order, with SIGTERM."""

    life: int
    at: int


class Trouble(NamedTuple):
    """An unexpected error that the broker reported to a client."""

    client: str
    life: int
    at: int
    text: str


Event = Sent | Confirmed | Refused | Got | Answered | Asked | Decided | Settled | Ended | Died | Stopped | Trouble
KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}


class Notebook:
    """A file of events. `note` remembers one, `flush` has all of them outlive the process."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._lines: list[str] = []

    def note(self, event: Event) -> None:
        self._lines.append(json.dumps([type(event).__name__, *event]))

    def flush(self) -> None:
        if not self._lines:
            return
        data = memoryview(("\n".join(self._lines) + "\n").encode())
        self._lines.clear()
        while data:
            data = data[os.write(self._fd, data) :]


def read(paths: Iterable[Path]) -> list[Event]:
    """Return all events in these files, without the incomplete last event of a killed client, which was never sent."""
    events: list[Event] = []
    for path in paths:
        complete, _, _ = path.read_bytes().rpartition(b"\n")
        for line in complete.splitlines():
            kind, *fields = json.loads(line)
            events.append(KINDS[kind](*fields))
    return events
