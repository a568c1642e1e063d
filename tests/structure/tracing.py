"""Traces of one durable message through a broker in this process: the product's functions, by thread, as entered."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from cairnmq.broker_plugin.options import BrokerOptions, RouterOptions
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.security.wire import DISPOSITION, TRANSFER, Wire, flow, message, transfer, wired

from .modules import FLOORS, ROOT

MESSAGES = 20
LAYERS = list(FLOORS)


class Entry(NamedTuple):
    """An entry into a function."""

    path: str
    """Path of the file below the product's root."""
    function: str


Trace = dict[str, list[Entry]]
"""Entries by thread name."""


class Recorder:
    """A profile function that records entries while *is_on*."""

    def __init__(self) -> None:
        self.is_on = False
        self.trace: Trace = {}
        self._paths: dict[str, str] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and self.is_on:
            code = frame.f_code
            path = self._paths.get(code.co_filename)
            if path is None:
                path = self._paths[code.co_filename] = self._below_root(code.co_filename)
            if path:
                entry = Entry(path, code.co_qualname.replace(".<locals>", ""))
                self.trace.setdefault(threading.current_thread().name, []).append(entry)

    @staticmethod
    def _below_root(name: str) -> str:
        path = Path(name)
        if not path.is_relative_to(ROOT):
            return ""
        below = path.relative_to(ROOT)
        return str(below) if below.parts[0] in FLOORS else ""


@dataclass(frozen=True)
class Figures:
    """The effort of a reader to follow one message: calls, files, stays in a file, climbs between layers."""

    calls: int
    files: int
    stays: int
    climbs: int

    @classmethod
    def of(cls, threads: Iterable[list[Entry]]) -> Figures:
        """Count the figures of one trace.

        Entries in one file, one after another and in one thread, are one stay; a move to a file of a higher layer is a
        climb.
        """
        files: set[str] = set()
        calls = stays = climbs = 0
        for entries in threads:
            files.update(entry.path for entry in entries)
            calls += len(entries)
            stopped_at = [path for path, _ in groupby(entries, lambda entry: entry.path)]
            stays += len(stopped_at)
            layers = [LAYERS.index(path.partition("/")[0]) for path in stopped_at]
            climbs += sum(after > before for before, after in pairwise(layers))
        return cls(calls, len(files), stays, climbs)


def traced(store_dir: Path) -> list[Trace]:
    """Return the traces of `MESSAGES` messages, each put on a queue with a receiver and delivered."""
    recorder = Recorder()
    threading.setprofile(recorder)
    try:
        options = BrokerOptions(str(store_dir), router=RouterOptions(port=0), auto_create=("*",), store_kind="journal")
        running = RunningBroker(options)
        try:
            with wired(running.port) as wire:
                return [_one(wire.open() if not number else wire, recorder, number) for number in range(MESSAGES)]
        finally:
            running.stop()
    finally:
        threading.setprofile(None)


def _one(wire: Wire, recorder: Recorder, number: int) -> Trace:
    if not number:
        wire.attach("in", 0, "q", sends=True)
        wire.attach("out", 1, "q", sends=False)
        wire.say(flow(1, MESSAGES * 2))
    trace: Trace = {}
    recorder.trace = trace
    recorder.is_on = True
    wire.say(transfer(number, message("x" * 200, durable=True)))
    missing = {TRANSFER, DISPOSITION}
    while missing:
        missing.discard(wire.next()[0])
    recorder.is_on = False
    return trace
