"""Processes of clients, so that they do not share one interpreter.

A worker connects its clients, runs them, and reports their progress and the result of each iteration to its parent. The
roles of a test interact only through the queues of the broker. The pipe carries reports for display, and the only
command in the other direction is to stop.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, Pipe
from typing import NamedTuple

from ...amqp.client.login import BrokerLogin
from ...amqp.client.loop import Loop
from ...amqp.client.wire import Wire
from ...base.errors import BrokerError, CairnError
from .client import LoadClient
from .figures import Report
from .plan import Options
from .publisher import Publisher
from .subscriber import Subscriber

PROGRESS_S = 0.5
STOP = "stop"


class Place(NamedTuple):
    """One client: its role, its number, and its queue or topic."""

    is_publisher: bool
    number: int
    queue: int


class Progress(NamedTuple):
    """The progress of a worker."""

    published: int
    received: int


class Trouble(NamedTuple):
    """A worker can't continue."""

    text: str


Word = Report | Progress | Trouble


class Worker:
    """A process, seen from its parent."""

    def __init__(self, where: BrokerLogin, options: Options, places: list[Place]) -> None:
        self.pipe, theirs = Pipe()
        self.places = places
        self.over = False
        self.progress = Progress(0, 0)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import main; main({theirs.fileno()})"],
                stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), start_new_session=True,
            )  # fmt: skip  # Ctrl-C is for its parent alone
        self.pipe.send((where, options, places))

    def words(self) -> list[Word]:
        """The messages of the worker since the last call."""
        found: list[Word] = []
        try:
            while self.pipe.poll():
                word = self.pipe.recv()
                if isinstance(word, Progress):
                    self.progress = word
                self.over |= isinstance(word, Trouble)
                found.append(word)
        except (EOFError, ConnectionError):
            if not self.over:
                self.over = True
                if status := self.process.wait():
                    found.append(Trouble(f"a client process died (status {status})"))
        return found

    def stop(self) -> None:
        """Ask for what it has so far."""
        with suppress(OSError):  # it has ended already
            self.pipe.send(STOP)

    def end(self, timeout_s: float) -> None:
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.pipe.close()


def shared_out(options: Options, *, publish: bool, subscribe: bool, alone: bool, processes: int) -> list[list[Place]]:
    """Return the clients of each process. *alone*: all clients of the test; otherwise one for each queue or topic.

    *processes* applies to the publishers, and again to the subscribers; 0: the number of processors.
    """
    most = processes or os.cpu_count() or 1
    found: list[list[Place]] = []
    for is_publisher, wanted, per_queue in ((False, subscribe, options.subs), (True, publish, options.pubs)):
        each = (per_queue if alone else min(1, per_queue)) if wanted else 0
        number = 0 if alone else secrets.randbits(23) << 8
        places = [
            Place(is_publisher, number + queue * each + one, queue)
            for queue in range(options.queues)
            for one in range(each)
        ]
        share = -(-len(places) // most) or 1
        found += [places[at : at + share] for at in range(0, len(places), share)]
    if options.single_connection and found:
        return [[place for places in found for place in places]]
    return found


def main(fd: int) -> None:
    """The life of a worker process."""
    with Connection(fd) as pipe:
        try:
            where, options, places = pipe.recv()
            _Clients(where, options, places, pipe).run()
        except CairnError as error:
            _say(pipe, Trouble(str(error)))
        except EOFError:
            pass  # the parent has ended, and no process waits


def _say(pipe: Connection, word: Word) -> None:
    try:
        pipe.send(word)
    except OSError:
        raise EOFError from None


class _Clients:
    def __init__(self, where: BrokerLogin, options: Options, places: list[Place], pipe: Connection) -> None:
        self._pipe = pipe
        self._loop = Loop()
        self._clients: list[LoadClient] = []
        self._stopped = False
        shared: Wire | None = None
        for place in places:
            name = f"{options.base_name}-{'pub' if place.is_publisher else 'sub'}-{place.number}-{os.getpid()}"
            wire = shared or Wire(where, name)
            make = Publisher if place.is_publisher else Subscriber
            client = make(wire, options, place.number, options.address(place.queue), self._share)
            client.done = partial(_say, pipe)
            self._clients.append(client)
            if not options.single_connection:
                self._loop.add(wire, [client])
            shared = wire if options.single_connection else None
        if shared is not None:
            self._loop.add(shared, self._clients)
        self._loop.watch(pipe.fileno(), self._received)

    def run(self) -> None:
        said_s = 0.0
        try:
            while not self._stopped and not all(client.is_idle() for client in self._clients):
                self._loop.turn(int(PROGRESS_S * 1000))
                now_s = time.monotonic()
                if now_s - said_s >= PROGRESS_S:
                    said_s = now_s
                    _say(self._pipe, self._progress())
        except BrokerError:
            self._say_partial()
            raise
        if self._stopped:
            self._say_partial()
        _say(self._pipe, self._progress())
        self._loop.close()

    def _say_partial(self) -> None:
        for client in self._clients:
            if client.started:
                _say(self._pipe, client.report(partial=True))

    def _received(self) -> None:
        self._pipe.recv()  # the only command is to stop; EOFError if the parent has ended
        self._stopped = True

    def _share(self) -> float:
        return time.process_time() / max(1, len(self._clients))

    def _progress(self) -> Progress:
        counts = Counter[str]()
        for client in self._clients:
            counts[client.role] += client.total + (client.messages if client.started else 0)
        return Progress(counts["publisher"], counts["subscriber"])
